//! The update that never lets old and new pods run together. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::{
    decide::resize,
    model::{Desired, Set, Sets},
};
use crate::controllers::workloads::{controller_of, hands::Request, pods};

/// The next step of the strategy `Recreate`.
pub(super) enum Step {
    Do(Vec<Request>),
    /// The new ReplicaSet, in full size.
    Create,
}

pub(super) fn step(desired: &Desired, sets: &Sets, pods: &[Pod]) -> Step {
    let active = sets.old.iter().filter(|set| set.n_replicas() > 0);
    let shrunk: Vec<Request> = active.flat_map(|set| resize(desired, set, 0)).collect();
    if !shrunk.is_empty() {
        return Step::Do(shrunk);
    }
    if has_old_pods(sets, pods) {
        return Step::Do(Vec::new());
    }
    match &sets.new {
        Some(new) => Step::Do(resize(desired, new, desired.n_replicas)),
        None => Step::Create,
    }
}

/// Whether a pod of an old template may still run; one that is on its way out does.
fn has_old_pods(sets: &Sets, pods: &[Pod]) -> bool {
    let old: BTreeSet<&str> = sets.old.iter().map(|set| set.0.uid()).collect();
    let is_old = |pod: &&Pod| {
        controller_of(&pod.metadata).is_some_and(|owner| old.contains(owner.uid.as_str()))
    };
    let runs = |pod: &Pod| !matches!(pods::phase(pod), "Succeeded" | "Failed");
    let is_counted = |set: &Set| set.0.count("/status/replicas") > 0;
    sets.old.iter().any(is_counted) || pods.iter().filter(is_old).any(runs)
}
