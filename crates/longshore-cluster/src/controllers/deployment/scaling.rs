//! A new number of replicas while a rollout is paused or under way. Pure.

use super::{
    decide::resize,
    model::{ANNOTATION_DESIRED, ANNOTATION_MAX, Desired, Set, Sets, Strategy},
};
use crate::controllers::workloads::hands::Request;

pub(super) fn scale(desired: &Desired, sets: &Sets) -> Vec<Request> {
    if let Some(only) = only_or_latest(sets) {
        return resize(desired, only, desired.n_replicas);
    }
    if sets
        .new
        .as_ref()
        .is_some_and(|new| is_saturated(desired, new))
    {
        let active = sets.old.iter().filter(|set| set.n_replicas() > 0);
        return active.flat_map(|set| resize(desired, set, 0)).collect();
    }
    match desired.strategy {
        Strategy::Rolling { .. } => in_proportion(desired, sets),
        Strategy::Recreate => Vec::new(),
    }
}

/// The ReplicaSet that takes the whole change, if one does.
fn only_or_latest(sets: &Sets) -> Option<&Set> {
    let mut active = sets.active();
    match (active.next(), active.next()) {
        (None, _) => sets.new.as_ref().or(sets.old.last()),
        (only, None) => only,
        (Some(_), Some(_)) => None,
    }
}

fn is_saturated(desired: &Desired, new: &Set) -> bool {
    let n = desired.n_replicas;
    new.n_replicas() == n && new.number(ANNOTATION_DESIRED) == Some(n) && new.n_available() == n
}

/// Distributes the change over the active ReplicaSets in proportion to their sizes. The largest
/// ReplicaSet takes the remainder.
fn in_proportion(desired: &Desired, sets: &Sets) -> Vec<Request> {
    let n_allowed = if desired.n_replicas > 0 {
        desired.n_replicas + desired.max_surge()
    } else {
        0
    };
    let change = n_allowed - sets.n_replicas();
    let mut ordered: Vec<&Set> = sets.active().collect();
    ordered.sort_by(|a, b| {
        let by_age = if change > 0 {
            b.age().cmp(&a.age())
        } else {
            a.age().cmp(&b.age())
        };
        b.n_replicas().cmp(&a.n_replicas()).then(by_age)
    });
    let mut left = change;
    let mut sizes = Vec::with_capacity(ordered.len());
    for set in &ordered {
        let share = share(desired, set);
        let share = if change > 0 {
            share.min(left)
        } else {
            share.max(left)
        };
        let share = if left == 0 { 0 } else { share };
        left -= share;
        sizes.push(set.n_replicas() + share);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + left).max(0);
    }
    let resized = ordered.into_iter().zip(sizes);
    resized
        .flat_map(|(set, size)| resize(desired, set, size))
        .collect()
}

/// By how much a ReplicaSet changes when it keeps its part of the whole.
fn share(desired: &Desired, set: &Set) -> i64 {
    let size = set.n_replicas();
    if desired.n_replicas == 0 {
        return -size;
    }
    let whole_before = set
        .number(ANNOTATION_MAX)
        .unwrap_or_else(|| desired.deployment.count("/status/replicas"));
    if whole_before <= 0 {
        return 0;
    }
    let whole = desired.n_replicas + desired.max_surge();
    (2 * size * whole + whole_before) / (2 * whole_before) - size
}
