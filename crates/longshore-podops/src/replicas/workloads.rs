//! What is known of workloads, by namespace. Those whose pods take no part are not kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_api::podops::{CONTROLLED, LABEL_CONTROL};
use longshore_core::{Seen, UnknownCause};
use longshore_kit::{RawObject, Update};

use super::model::{REPLICA_SET, STATEFUL_SET, Workload};
use crate::{
    model::{Labels, PodKey},
    service::key_of,
};

/// StatefulSets and ReplicaSets as last seen. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workloads(Arc<Mutex<WorkloadIndex>>);

#[derive(Debug, Default)]
struct WorkloadIndex {
    /// Of which kinds all objects that exist are known.
    complete: BTreeSet<&'static str>,
    workloads: BTreeMap<(&'static str, PodKey), Workload>,
}

/// The kinds that are followed.
const KINDS: [&str; 2] = [REPLICA_SET.kind, STATEFUL_SET.kind];

/// Whose replicas have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// No workload's.
    Nothing,
    /// The replicas of a workload of this namespace. Its pods have or had these labels.
    Pods(String, Vec<Labels>),
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
                let is_complete = known.complete.len() == KINDS.len();
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
        let after = workload.as_ref().map(|workload| workload.labels.clone());
        let before = match workload {
            Some(workload) => known.workloads.insert(key, workload),
            None => known.workloads.remove(&key),
        };
        let before = before.map(|workload| workload.labels);
        let before = before.filter(|labels| Some(labels) != after.as_ref());
        Changed::Pods(namespace, before.into_iter().chain(after).collect())
    }

    /// The workloads of a namespace whose pods take part, and that are asked for.
    pub(crate) fn of(
        &self,
        namespace: &str,
        is_asked_for: impl Fn(&Workload) -> bool,
    ) -> Seen<Vec<Workload>> {
        let known = self.known();
        if known.complete.len() < KINDS.len() {
            return Seen::unknown(
                UnknownCause::NotListedYet,
                "the workloads were not listed yet",
            );
        }
        let mut found = Vec::new();
        for kind in KINDS {
            let first = PodKey {
                namespace: namespace.to_owned(),
                name: String::new(),
            };
            let from_here = known.workloads.range((kind, first)..);
            let here = from_here
                .take_while(|((of, key), _)| *of == kind && key.namespace == namespace)
                .map(|(_, workload)| workload);
            found.extend(here.filter(|it| is_asked_for(it)).cloned());
        }
        Seen::Present(found)
    }

    fn known(&self) -> MutexGuard<'_, WorkloadIndex> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
