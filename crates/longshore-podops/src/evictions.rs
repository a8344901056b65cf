//! The controller of evictions: it begins the operations of pods that their disruption budgets can spare, a namespace at
//! a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use kube::{Api, api::ListParams};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL};
use longshore_core::{Class, Classify, Never, ObjectRef, Resource, Seen};
use longshore_kit::{Applier, ApplyError, Cache, Clock, Controller, RawObject, api_resource};

use crate::{
    eviction::{self, Begin, EvictionPlan, Observed, TRIED_AGAIN},
    model::{Pod, PodKey},
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
    pub(crate) pods: Arc<Cache<RawObject>>,
    pub(crate) rules: Arc<Cache<RawObject>>,
    pub(crate) budgets: Arc<Cache<RawObject>>,
    pub(crate) applier: Applier,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) failed: Failed,
}

/// Pods that could not be written, by their uids, and when they are tried again.
#[derive(Debug, Default)]
pub(crate) struct Failed(Mutex<BTreeMap<String, Timestamp>>);

impl Failed {
    fn note(&self, pod: &ObjectRef, now: Timestamp) {
        if let (Some(uid), Ok(until)) = (&pod.uid, now.checked_add(TRIED_AGAIN)) {
            let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            failed.insert(uid.clone(), until);
        }
    }

    /// Those that are not to be tried yet; the others are forgotten.
    fn at(&self, now: Timestamp) -> BTreeSet<String> {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|_, until| now < *until);
        failed.keys().cloned().collect()
    }
}

impl Controller for Evictions {
    type Key = EvictionsOf;
    type Observed = Observed;
    type Status = Never;
    type Effect = Begin;
    type Error = ApplyError;

    fn name(&self) -> &'static str {
        "podops.evictions"
    }

    async fn observe(&self, key: &EvictionsOf, now: Timestamp) -> Result<Observed, ApplyError> {
        let EvictionsOf(namespace) = key;
        let mut observed = Observed {
            now,
            pods: read_all(self.pods.beginning(namespace, "")),
            budgets: read_all(self.budgets.beginning(namespace, "")),
            rules: read_all(self.rules.beginning(namespace, "")),
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

    /// A pod that somebody else wrote first is decided upon anew. Any other failure is about this pod alone.
    async fn call(&self, key: &EvictionsOf, begin: &Begin) -> Result<(), ApplyError> {
        let Begin(patch) = begin;
        match self.applier.patch(key, patch).await {
            Err(error) if error.class() != Class::Conflict => {
                tracing::info!(pod = %patch.target, %error, "the eviction cannot begin, trying again");
                self.failed.note(&patch.target, self.clock.now());
                Ok(())
            }
            begun => begun,
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

/// What can be read of these objects. Pods that cannot are told about where pods are decided upon; a budget that cannot
/// be read protects nobody, as for API servers.
pub(crate) fn read_all<T: serde::de::DeserializeOwned>(
    objects: Seen<Vec<Arc<RawObject>>>,
) -> Seen<Vec<T>> {
    objects.map(|objects| {
        let objects = objects.iter();
        objects.filter_map(|object| object.read().ok()).collect()
    })
}

/// Which pods wait for their budgets, and until when. Clones share it.
///
/// Changes of pods lead to a round of their namespace only while one of them waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<Mutex<BTreeMap<String, BTreeMap<String, Timestamp>>>>);

impl Waiting {
    /// A pod is as this, or gone.
    pub(crate) fn see(&self, key: &PodKey, pod: Option<&Pod>) {
        let until = pod.and_then(eviction::wanted_until);
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

    /// Whether a pod of the namespace waits.
    pub(crate) fn is_any_in(&self, namespace: &str, now: Timestamp) -> bool {
        let waiting = self.lock();
        let names = waiting.get(namespace).into_iter().flatten();
        names.into_iter().any(|(_, until)| now < *until)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, Timestamp>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
