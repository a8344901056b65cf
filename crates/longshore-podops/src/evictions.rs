//! The controller of evictions: it begins the operations of pods that their disruption budgets can spare, a namespace at
//! a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kube::{Api, api::ListParams};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL};
use longshore_core::{Class, Classify, Never, ObjectRef, Resource, Seen, error::chain};
use longshore_kit::{
    Applier, ApplyError, Cache, Clock, Controller, Parsed, RawObject, api_resource,
};
use serde::de::DeserializeOwned;

use crate::{
    eviction::{self, Budget, EvictionEffect, EvictionPlan, Observed, TRIED_AGAIN},
    model::{Pod, PodKey},
    rule::Rule,
};

/// The namespace whose evictions are decided upon.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EvictionsOf(pub(crate) String);

impl fmt::Display for EvictionsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "evictions of {}", self.0)
    }
}

/// Decides about evictions.
#[derive(Debug)]
pub(crate) struct Evictions {
    pub(crate) pods: Arc<Cache<Parsed<Pod>>>,
    pub(crate) rules: Arc<Cache<Parsed<Rule>>>,
    pub(crate) budgets: Arc<Cache<Parsed<Budget>>>,
    pub(crate) applier: Applier,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) failed: Failed,
}

/// Pods and budgets that could not be written, by their uids.
#[derive(Debug, Default)]
pub(crate) struct Failed(Mutex<BTreeMap<String, Failure>>);

/// A write that failed.
#[derive(Debug)]
struct Failure {
    /// When it is tried again.
    until: Timestamp,
    why: String,
}

/// After this time without another failure the object was written, or is gone.
const FORGOTTEN: Duration = Duration::from_secs(60);

impl Failed {
    /// Answers whether that is news: the last write of the object did not fail, or for another reason.
    fn note(&self, target: &ObjectRef, why: &str, now: Timestamp) -> bool {
        let (Some(uid), Ok(until)) = (&target.uid, now.checked_add(TRIED_AGAIN)) else {
            return true;
        };
        let failure = Failure {
            until,
            why: why.to_owned(),
        };
        let before = self.failures().insert(uid.clone(), failure);
        before.is_none_or(|before| before.why != why)
    }

    fn failures(&self) -> MutexGuard<'_, BTreeMap<String, Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are not to be tried yet.
    fn at(&self, now: Timestamp) -> BTreeSet<String> {
        let mut failures = self.failures();
        failures.retain(|_, failure| {
            let forgotten = failure.until.checked_add(FORGOTTEN);
            forgotten.is_ok_and(|forgotten| now < forgotten)
        });
        let waiting = failures.iter().filter(|(_, failure)| now < failure.until);
        waiting.map(|(uid, _)| uid.clone()).collect()
    }
}

impl Controller for Evictions {
    type Key = EvictionsOf;
    type Observed = Observed;
    type Status = Never;
    type Effect = EvictionEffect;
    type Error = ApplyError;

    fn name(&self) -> &'static str {
        "podops.evictions"
    }

    async fn observe(&self, key: &EvictionsOf, now: Timestamp) -> Result<Observed, ApplyError> {
        let EvictionsOf(namespace) = key;
        let (pods, budgets) = concerned(
            self.pods.beginning(namespace, ""),
            self.budgets.beginning(namespace, ""),
            now,
        );
        let mut observed = Observed {
            now,
            pods,
            budgets,
            // The others hold nobody, so that they change no count.
            rules: read_some(self.rules.beginning(namespace, ""), Rule::rejects),
            others: Seen::Absent,
            failed: self.failed.at(now),
        };
        if eviction::is_short(&observed) {
            observed.others = self.others(namespace).await;
        }
        Ok(observed)
    }

    fn decide(&self, observed: &Observed) -> EvictionPlan {
        eviction::decide(observed)
    }

    async fn persist(&self, _: &EvictionsOf, status: &Never) -> Result<(), ApplyError> {
        match *status {}
    }

    /// An object that somebody else wrote first is decided upon anew. Any other failure is about this object alone.
    async fn call(&self, key: &EvictionsOf, effect: &EvictionEffect) -> Result<(), ApplyError> {
        let (patch, cannot) = match effect {
            EvictionEffect::Reserve(patch) => (patch, "no disruption can be reserved"),
            EvictionEffect::Begin(patch) => (patch, "the eviction cannot begin"),
        };
        match self.applier.patch(key, patch).await {
            Err(error) if error.class() != Class::Conflict => {
                let (object, error) = (&patch.target, chain(&error));
                if self.failed.note(object, &error, self.clock.now()) {
                    tracing::info!(%object, error, "{cannot}, trying again");
                } else {
                    tracing::debug!(%object, error, "{cannot}, trying again");
                }
                Ok(())
            }
            written => written,
        }
    }
}

impl Evictions {
    /// Pods without the label. Nobody watches them: a list is made where a budget that holds an eviction is about some
    /// of them, and only then.
    async fn others(&self, namespace: &str) -> Seen<Vec<Pod>> {
        let client = self.applier.requests().client().clone();
        let pods: Api<RawObject> =
            Api::namespaced_with(client, namespace, &api_resource(Resource::POD));
        let others = ListParams::default().labels(&format!("{LABEL_CONTROL}!={CONTROLLED}"));
        match pods.list(&others).await {
            Ok(list) => {
                let others = list.items.iter();
                Seen::Present(others.filter_map(|it| it.read().ok()).collect())
            }
            Err(error) => Seen::Unknown(error.to_string()),
        }
    }
}

/// What can be read of these objects. A budget that cannot be read protects nobody, as for API servers.
pub(crate) fn read_all<T: DeserializeOwned + Clone>(
    objects: Seen<Vec<Arc<Parsed<T>>>>,
) -> Seen<Vec<T>> {
    read_some(objects, |_| true)
}

/// The same, of those that are asked for. Pods that cannot be read are told about where pods are decided upon.
fn read_some<T: DeserializeOwned + Clone>(
    objects: Seen<Vec<Arc<Parsed<T>>>>,
    is_asked_for: impl Fn(&T) -> bool,
) -> Seen<Vec<T>> {
    objects.map(|objects| {
        let values = objects.iter().filter_map(|object| object.value());
        let asked_for = values.filter(|value| is_asked_for(value));
        asked_for.map(|value| T::clone(value)).collect()
    })
}

/// The budgets that a pod waits for, or in which it keeps a reservation, with all pods that they count. What the other
/// budgets of the namespace count is of no consequence, and most of its pods may be theirs.
fn concerned(
    pods: Seen<Vec<Arc<Parsed<Pod>>>>,
    budgets: Seen<Vec<Arc<Parsed<Budget>>>>,
    now: Timestamp,
) -> (Seen<Vec<Pod>>, Seen<Vec<Budget>>) {
    let is_concerned =
        |pod: &Pod| eviction::is_waiting(pod, now) || eviction::keeps_reservations(pod);
    let mut waiting = Vec::new();
    for pod in pods.present().into_iter().flatten() {
        waiting.extend(pod.value().filter(|pod| is_concerned(pod)).cloned());
    }
    let budgets = read_some(budgets, |budget| {
        waiting.iter().any(|pod| budget.selects(pod))
    });
    let counted = budgets.present().map_or(&[][..], Vec::as_slice);
    let pods = read_some(pods, |pod| {
        let is_counted = counted.iter().any(|budget| budget.selects(pod));
        is_counted || is_concerned(pod)
    });
    (pods, budgets)
}

/// Which pods wait for their budgets, and until when, and which have reservations that have to be kept. Clones share it.
///
/// Changes of pods lead to a round of their namespace only while there is one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<Mutex<BTreeMap<String, BTreeMap<String, Timestamp>>>>);

impl Waiting {
    /// A pod is as this, or gone.
    pub(crate) fn see(&self, key: &PodKey, pod: Option<&Pod>) {
        let until = pod.and_then(|pod| {
            let keeps = eviction::keeps_reservations(pod).then_some(Timestamp::MAX);
            eviction::wanted_until(pod).or(keeps)
        });
        let mut waiting = self.lock();
        if let Some(until) = until {
            let names = waiting.entry(key.namespace.clone()).or_default();
            names.insert(key.name.clone(), until);
        } else if let Some(names) = waiting.get_mut(&key.namespace) {
            names.remove(&key.name);
            if names.is_empty() {
                waiting.remove(&key.namespace);
            }
        }
    }

    /// Whether a pod of the namespace waits, or has reservations that have to be kept.
    pub(crate) fn is_any_in(&self, namespace: &str, now: Timestamp) -> bool {
        let waiting = self.lock();
        let names = waiting.get(namespace).into_iter().flatten();
        names.into_iter().any(|(_, until)| now < *until)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, Timestamp>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
