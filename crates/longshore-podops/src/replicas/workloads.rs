//! What is known of workloads, by namespace. Those whose pods take no part are not kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_api::podops::{CONTROLLED, LABEL_CONTROL};
use longshore_core::Seen;
use longshore_kit::{RawObject, Update};

use super::model::Workload;
use crate::{model::PodKey, service::key_of};

/// StatefulSets and ReplicaSets as last seen. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workloads(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// Of which kinds all objects that exist are known.
    complete: BTreeSet<&'static str>,
    workloads: BTreeMap<(&'static str, PodKey), Workload>,
}

/// So many kinds are followed.
const KINDS: usize = 2;

/// Whose replicas have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// Nobody's.
    Nothing,
    /// Those of a workload of this namespace.
    Namespace(String),
    /// Any: now everything is known.
    All,
}

impl Workloads {
    /// Takes in a change of a workload of this kind. One that cannot be read is to have no pods.
    pub(crate) fn see(&self, kind: &'static str, update: &Update<RawObject>) -> Changed {
        let mut known = self.known();
        let (key, workload) = match update {
            Update::Reached(_) => {
                let is_new = known.complete.insert(kind);
                let is_complete = known.complete.len() == KINDS;
                return match is_complete && is_new {
                    true => Changed::All,
                    false => Changed::Nothing,
                };
            }
            Update::Applied(object) => (key_of(object), object.read::<Workload>().ok()),
            Update::Deleted(object) => (key_of(object), None),
        };
        let takes_part = |workload: &Workload| {
            let control = workload.labels.get(LABEL_CONTROL);
            control.map(String::as_str) == Some(CONTROLLED)
        };
        let workload = workload.filter(takes_part);
        let namespace = key.namespace.clone();
        let key = (kind, key);
        if known.workloads.get(&key) == workload.as_ref() {
            return Changed::Nothing;
        }
        match workload {
            Some(workload) => known.workloads.insert(key, workload),
            None => known.workloads.remove(&key),
        };
        Changed::Namespace(namespace)
    }

    /// The workloads of a namespace whose pods take part.
    pub(crate) fn of(&self, namespace: &str) -> Seen<Vec<Workload>> {
        let known = self.known();
        if known.complete.len() < KINDS {
            return Seen::Unknown("the workloads were not listed yet".to_owned());
        }
        let all = known.workloads.iter();
        let here = all.filter(|((_, key), _)| key.namespace == namespace);
        Seen::Present(here.map(|(_, workload)| workload.clone()).collect())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
