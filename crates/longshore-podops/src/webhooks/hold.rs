//! Deletes that are held: the request is answered when the pod may go, so that the client sees no refusal.
//!
//! A delete of a protected pod is refused with 403, as upstream does: controllers of workloads try again, and people
//! think that something is wrong. Where holding is chosen, a delete of a person waits here for its operation, as long as
//! that was chosen for; then it is allowed, and it is this very request that deletes the pod. The controller leaves the
//! pod alone meanwhile: an annotation says how long.
//!
//! The webhooks answer in every replica, and the controller runs in one of them: so each held request follows its pod with
//! a watch of that one object, from the version that began the operation. Evictions are never held: a client that
//! evicts is asked to retry, and does.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use kube::{Api, Resource as _};
use longshore_core::Resource;
use longshore_kit::{Cache, ListWatch, RawObject, Requests, Update, api_resource};
use longshore_webhook::Review;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admit::grace::may_delete,
    measures::{HeldDelete, PodMeasures},
    model::Pod,
};

/// Requests that one replica holds at the same time; those beyond are answered at once. API servers have few seats for
/// requests that take long.
const MAX_HELD: usize = 32;
/// API servers ask again within the same request where the pod has changed meanwhile: a request that was held is not
/// held again.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Users that are programs which try again by themselves, and do nothing else meanwhile.
const CONTROLLERS: [&str; 3] = [
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "system:apiserver",
];
/// The same, by what their names begin with.
const CONTROLLERS_OF: [&str; 2] = ["system:node:", "system:serviceaccount:kube-system:"];

/// Holds deletes.
pub(super) struct Holds {
    requests: Requests,
    time: Duration,
    slots: Arc<Semaphore>,
    stopping: CancellationToken,
    measures: PodMeasures,
    answered: Mutex<Vec<Answered>>,
}

/// A request that was held a moment ago.
#[derive(Debug)]
struct Answered {
    asker: Asker,
    uid: String,
    until: Instant,
}

/// Which user wants which pod to go.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asker {
    namespace: String,
    name: String,
    user: String,
}

/// What is done with a delete.
#[derive(Debug)]
pub(super) enum Turn {
    /// The request has a place, and may be held.
    Held(Slot),
    /// The request is answered at once.
    AtOnce,
    /// The request was held for the pod that had this name before. Its client has never seen this pod.
    OtherPod,
}

/// A place among those that are held. It is free again when this is dropped, as when the client goes away.
#[derive(Debug)]
pub(super) struct Slot {
    _permit: OwnedSemaphorePermit,
    _counted: HeldDelete,
    asker: Asker,
    uid: String,
}

impl fmt::Debug for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holds")
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

impl Holds {
    /// Holds deletes for this time, until `stopping`.
    pub(super) fn new(
        requests: Requests,
        time: Duration,
        stopping: CancellationToken,
        measures: PodMeasures,
    ) -> Self {
        Self {
            requests,
            time,
            slots: Arc::new(Semaphore::new(MAX_HELD)),
            stopping,
            measures,
            answered: Mutex::default(),
        }
    }

    /// How long a delete is held.
    pub(super) fn time(&self) -> Duration {
        self.time
    }

    /// What is done with this delete.
    pub(super) fn turn(&self, review: &Review) -> Turn {
        let asker = Asker {
            namespace: review.namespace.clone(),
            name: review.name.clone(),
            user: review.user.clone(),
        };
        let uid = review.old_object["metadata"]["uid"].as_str();
        let uid = uid.unwrap_or_default().to_owned();
        if let Some(before) = self.answered_uid(&asker) {
            return if before == uid {
                Turn::AtOnce
            } else {
                Turn::OtherPod
            };
        }
        let is_waited_for = is_person(&review.user) && !review.is_dry_run;
        if !is_waited_for || self.stopping.is_cancelled() {
            return Turn::AtOnce;
        }
        match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(permit) => Turn::Held(Slot {
                _permit: permit,
                _counted: self.measures.held_delete(),
                asker,
                uid,
            }),
            Err(_) => Turn::AtOnce,
        }
    }

    /// Waits until the pod may go, or is going; whether that came in time. `since` is a version of the pod in which it may
    /// not.
    ///
    /// *Cancellation*: dropping it frees the place; the operation goes on.
    pub(super) async fn wait(&self, slot: Slot, since: u64) -> bool {
        let Asker {
            namespace, name, ..
        } = &slot.asker;
        let client = self.requests.client().clone();
        let pods: Api<RawObject> =
            Api::namespaced_with(client, namespace, &api_resource(Resource::POD));
        let updates = ListWatch::new(pods)
            .fields(format!("metadata.name={name}"))
            .start_at(since)
            .into_cache(Cache::passing_on());
        let mut updates = std::pin::pin!(updates);
        let granted = async {
            while let Some(update) = updates.next().await {
                let (object, is_gone) = match update {
                    Update::Applied(object) => (object, false),
                    Update::Deleted(object) => (object, true),
                    Update::Reached(_) => continue,
                };
                let is_other = object.meta().uid.as_deref() != Some(slot.uid.as_str());
                let pod = object.read::<Pod>().ok();
                let may_go = |pod: &Pod| pod.is_deleting || pod.has_ended || may_delete(pod);
                if is_gone || is_other {
                    return false;
                }
                if pod.is_some_and(|pod| may_go(&pod)) {
                    return true;
                }
            }
            false
        };
        let granted = tokio::select! {
            granted = granted => granted,
            () = tokio::time::sleep(self.time) => false,
            () = self.stopping.cancelled() => false,
        };
        self.remember(slot);
        granted
    }

    fn remember(&self, slot: Slot) {
        let now = Instant::now();
        let mut answered = self.answered();
        answered.retain(|answered| answered.until > now);
        answered.push(Answered {
            asker: slot.asker.clone(),
            uid: slot.uid.clone(),
            until: now + REMEMBERED,
        });
    }

    /// The pod for which this request was held a moment ago.
    fn answered_uid(&self, asker: &Asker) -> Option<String> {
        let now = Instant::now();
        let answered = self.answered();
        let mut lately = answered.iter().rev();
        let found = lately.find(|answered| answered.until > now && answered.asker == *asker);
        found.map(|answered| answered.uid.clone())
    }

    fn answered(&self) -> MutexGuard<'_, Vec<Answered>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the user is a person, who waits for the answer, and no controller, which tries again by itself.
fn is_person(user: &str) -> bool {
    let mut controllers = CONTROLLERS_OF.iter();
    !CONTROLLERS.contains(&user) && !controllers.any(|prefix| user.starts_with(*prefix))
}

#[cfg(test)]
mod tests {
    use longshore_cluster::Cluster;
    use serde_json::json;

    use super::*;

    /// The review of one pod of a collection that is deleted: the request names no object.
    fn of_a_collection(name: &str, uid: &str) -> Review {
        let request = json!({
            "uid": "u", "operation": "DELETE", "namespace": "default", "name": "",
            "resource": {"resource": "pods"}, "userInfo": {"username": "ann"},
            "oldObject": {"metadata": {"name": name, "uid": uid}},
        });
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
        });
        Review::read(review.to_string().as_bytes()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_pods_of_a_collection_are_held_one_by_one() {
        let requests = Requests::new(Cluster::in_memory().client());
        let holds = Holds::new(
            requests,
            Duration::from_secs(1),
            CancellationToken::new(),
            PodMeasures::default(),
        );
        let mut slots = Vec::new();
        for name in ["mix-0", "mix-1"] {
            match holds.turn(&of_a_collection(name, &format!("{name}-uid"))) {
                Turn::Held(slot) => {
                    assert_eq!(slot.asker.name, name);
                    slots.push(slot);
                }
                turn @ (Turn::AtOnce | Turn::OtherPod) => panic!("{name}: {turn:?}"),
            }
        }
        // The first one was answered: that says nothing about the pods after it.
        holds.remember(slots.remove(0));
        let later = holds.turn(&of_a_collection("mix-2", "mix-2-uid"));
        assert!(matches!(later, Turn::Held(_)), "{later:?}");
        let again = holds.turn(&of_a_collection("mix-0", "mix-0-uid"));
        assert!(matches!(again, Turn::AtOnce), "{again:?}");
        let next = holds.turn(&of_a_collection("mix-0", "the next one"));
        assert!(matches!(next, Turn::OtherPod), "{next:?}");
    }

    #[test]
    fn controllers_of_the_cluster_are_answered_at_once() {
        for user in [
            "kubernetes-admin",
            "system:admin",
            "system:serviceaccount:ci:deployer",
            "",
        ] {
            assert!(is_person(user), "{user}");
        }
        for user in [
            "system:kube-controller-manager",
            "system:serviceaccount:kube-system:replicaset-controller",
            "system:node:n1",
        ] {
            assert!(!is_person(user), "{user}");
        }
    }
}
