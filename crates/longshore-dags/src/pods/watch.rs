//! The one watch on our pods: it starts at the stored position, and every event becomes a fact.
//!
//! *Flow*: list (what no event tells), then follow the events since the stored position, then live. An event's effect
//! and its position are committed together, so a restart goes on exactly there; a position that has expired (410) is
//! replaced by a new list. The effects of events are idempotent, because a list and a resumed watch tell some twice.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use longshore_api::airflow::{
    LABEL_AIRFLOW_WORKER, LABEL_EXECUTOR_DONE, LABEL_KUBERNETES_EXECUTOR, TRUE,
};
use longshore_kit::{ListWatch, Update, own_writes::parse_version};
use tokio_util::sync::CancellationToken;

use super::events::{self, PodEvent};
use crate::{
    scheduler::facts::{Fact, PodChange, PodFact},
    service::{position::Position, shared::Shared},
};

/// Follows the pods of one scheduler.
pub(crate) struct PodWatch {
    what: ListWatch<Pod>,
    shared: Arc<Shared>,
}

impl PodWatch {
    pub(crate) fn new(pods: Api<Pod>, shared: Arc<Shared>) -> Self {
        let what = ListWatch::new(pods).labels(selector(shared.store.scheduler_id()));
        Self { what, shared }
    }

    /// Follows the pods until shutdown: from the events after `stored`, if the server still remembers them.
    pub(crate) async fn run(self, stored: Option<u64>, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.follow(stored)).await;
    }

    async fn follow(&self, stored: Option<u64>) {
        let mut updates = self.updates(self.what.clone());
        let listed = self.take_list(&mut updates, stored).await;
        match stored.filter(|stored| *stored < listed) {
            // What ended and went away since then is in no list.
            Some(stored) => {
                updates = self.updates(self.what.clone().start_at(stored).catching_up_to(listed));
            }
            None => self.caught_up(),
        }
        while let Some(update) = updates.next().await {
            let reached = self.take(update).await;
            if reached >= listed && !self.shared.pods.is_replayed() {
                self.caught_up();
            }
        }
    }

    fn updates(&self, what: ListWatch<Pod>) -> BoxStream<'static, Update<Pod>> {
        what.into_cache(self.shared.pods.cache.clone()).boxed()
    }

    /// Takes the first list in, whose objects come in no order of time: the position is its end. Returns it.
    ///
    /// Where no older events are to come, the commit of what the list says holds the position.
    async fn take_list(
        &self,
        updates: &mut (impl Stream<Item = Update<Pod>> + Unpin),
        stored: Option<u64>,
    ) -> u64 {
        while let Some(update) = updates.next().await {
            match update {
                Update::Applied(pod) => self.applied(&pod, None).await,
                Update::Deleted(pod) => self.deleted(&pod, None).await,
                Update::Reached(listed) => {
                    if stored.is_none_or(|stored| stored >= listed) {
                        self.shared.inbox.reached(self.position(listed));
                    }
                    self.shared.pods.set_listed();
                    return listed;
                }
            }
        }
        0
    }

    /// Takes one update in. Returns the position that it reaches.
    async fn take(&self, update: Update<Pod>) -> u64 {
        match update {
            Update::Applied(pod) => {
                let at = version(&pod);
                self.applied(&pod, Some(at)).await;
                at
            }
            Update::Deleted(pod) => {
                let at = version(&pod);
                self.deleted(&pod, Some(at)).await;
                at
            }
            Update::Reached(at) => {
                self.shared.inbox.reached(self.position(at));
                at
            }
        }
    }

    async fn applied(&self, pod: &Pod, at: Option<u64>) {
        let Some((ti_id, _)) = events::launch_of(pod) else {
            return;
        };
        self.shared.pods.insert(ti_id, pod);
        self.tell(PodEvent::Applied, pod, at).await;
        self.shared.pod_keys.add([ti_id]);
    }

    /// The fact first, then the table: whoever does not see the pod any more can see why.
    async fn deleted(&self, pod: &Pod, at: Option<u64>) {
        let Some((ti_id, _)) = events::launch_of(pod) else {
            return;
        };
        self.tell(PodEvent::Deleted, pod, at).await;
        self.shared.pods.remove(ti_id, pod);
        self.shared.pod_keys.add([ti_id]);
    }

    async fn tell(&self, event: PodEvent, pod: &Pod, at: Option<u64>) {
        if let Some(fact) = events::pod_fact(event, pod) {
            let at = at.map(|at| self.position(at));
            self.shared.inbox.push_watched(Fact::Pod(fact), at).await;
        }
    }

    fn position(&self, resource_version: u64) -> String {
        Position {
            cluster: self.shared.cluster.clone(),
            resource_version,
        }
        .to_string()
    }

    /// Every event up to the list has been seen: a pod that we know of and do not see now was deleted meanwhile.
    fn caught_up(&self) {
        self.shared.pods.set_replayed();
        let board = self.shared.board();
        for row in board.task_instances() {
            let Some(pod_uid) = &row.pod_uid else {
                continue;
            };
            if !self.shared.pods.has(&row.id, pod_uid) {
                self.shared.inbox.push(Fact::Pod(PodFact {
                    ti_id: row.id,
                    launch: row.launch,
                    pod_name: row.pod_name.clone().unwrap_or_default(),
                    pod_uid: pod_uid.clone(),
                    resource_version: None,
                    what: PodChange::Gone,
                }));
            }
        }
        self.shared
            .pod_keys
            .add(board.task_instances().map(|row| row.id));
        self.shared.pod_keys.add(self.shared.pods.ids());
    }
}

fn version(pod: &Pod) -> u64 {
    pod.metadata
        .resource_version
        .as_deref()
        .and_then(parse_version)
        .unwrap_or(0)
}

/// The selector of a scheduler's pods that are still of interest.
fn selector(scheduler_id: &str) -> String {
    format!(
        "{LABEL_KUBERNETES_EXECUTOR}={TRUE},{LABEL_AIRFLOW_WORKER}={scheduler_id},{LABEL_EXECUTOR_DONE}!={TRUE}"
    )
}
