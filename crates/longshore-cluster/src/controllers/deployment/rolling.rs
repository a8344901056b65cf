//! The rolling update: never more than `maxSurge` pods too many, never more than `maxUnavailable`
//! too few. Pure.

use super::{
    decide::resize,
    model::{Desired, Set, Sets},
};
use crate::controllers::workloads::hands::Request;

/// How many pods the new ReplicaSet may have now.
pub(super) fn size_of_new(desired: &Desired, sets: &Sets) -> i64 {
    let present = sets.new.as_ref().map_or(0, Set::n_replicas);
    let room = desired.n_replicas + desired.max_surge() - sets.n_replicas();
    if room <= 0 {
        return present;
    }
    present + room.min(desired.n_replicas - present)
}

/// Grows the new ReplicaSet, else shrinks the old ones.
pub(super) fn step(desired: &Desired, sets: &Sets, new: &Set) -> Vec<Request> {
    let size = if new.n_replicas() > desired.n_replicas {
        desired.n_replicas
    } else {
        size_of_new(desired, sets)
    };
    if size != new.n_replicas() {
        return resize(desired, new, size);
    }
    shrink(desired, sets, new)
}

fn shrink(desired: &Desired, sets: &Sets, new: &Set) -> Vec<Request> {
    let min_available = desired.n_replicas - desired.max_unavailable();
    let new_unavailable = new.n_replicas() - new.n_available();
    // What may go even if none of the new pods ever becomes available.
    let spare = sets.n_replicas() - min_available - new_unavailable;
    if spare <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i64> = sets.old.iter().map(Set::n_replicas).collect();
    // Pods that are not available go first, whichever old ReplicaSet they belong to.
    let mut left = spare;
    for (set, size) in sets.old.iter().zip(&mut sizes) {
        let n_broken = (set.n_replicas() - set.n_available()).clamp(0, left);
        *size -= n_broken;
        left -= n_broken;
    }
    let mut left = (sets.n_available() - min_available).max(0);
    for size in &mut sizes {
        let n_gone = (*size).clamp(0, left);
        *size -= n_gone;
        left -= n_gone;
    }
    let resized = sets.old.iter().zip(sizes);
    resized
        .filter(|(set, size)| set.n_replicas() != *size)
        .flat_map(|(set, size)| resize(desired, set, size))
        .collect()
}
