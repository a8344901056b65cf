//! Evictions under PodDisruptionBudgets.
//!
//! The webhook only notes that a client asked for the eviction of a pod ([`grace`](crate::admit::grace)). One
//! controller, which decides about all pods of a namespace together, begins the operations of those that their budgets
//! can spare ([`decide`]): whatever has been taken out of service already, or is about to be, counts as missing
//! ([`Counts`]). Before such an operation begins, a disruption is reserved in the status of each budget of the pod, as
//! the API server does it before it deletes an evicted pod: the API server evicts the pods without the label that share
//! the budget, and knows no other place to look. [`removal`] says how a pod goes whose evictor has not come back, and
//! [`Held`] which budget holds a pod, for people.

mod budget;
mod count;
mod decide;
mod recount;
mod removal;
mod reserve;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use budget::{BUDGET, Budget};
pub use count::{Counts, Held};
pub(crate) use decide::TRIED_AGAIN;
pub use decide::{EvictionEffect, EvictionPlan, Observed, decide, holders, is_short};
pub use removal::{Removal, removal};
pub(crate) use reserve::holding;
pub use reserve::{has_reservations, may_leave};

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::podops::{ANNOTATION_EVICTED_AT, ID_POD_DELETE};

use crate::{
    admit::grace::{is_begun, may_delete},
    model::{ConditionStatus, Operation, Pod, parse_stamp},
};

/// How long an eviction that was refused is remembered. A client that still wants it asks again within that time; a pod
/// that a budget has held for long must not go when no client waits for it any more.
pub const REMEMBERED: Duration = Duration::from_secs(120);

/// Until when the eviction of a pod is wanted whose operation has not begun; `None` where no eviction waits.
pub fn wanted_until(pod: &Pod) -> Option<Timestamp> {
    // First what costs least: it is asked of each pod of a namespace, and hardly any of them is to be evicted.
    let evicted_at = evicted_at(pod)?;
    let can_wait = pod.is_controlled() && pod.has_gate && !pod.has_ended && !pod.is_deleting;
    if !can_wait || is_begun(&Operation::of(&pod.labels, ID_POD_DELETE)) {
        return None;
    }
    evicted_at.checked_add(REMEMBERED).ok()
}

/// Whether the eviction of a pod waits for its budgets.
pub fn is_waiting(pod: &Pod, now: Timestamp) -> bool {
    let is_meant = |at| can_be_past(at, now);
    wanted_until(pod).is_some_and(|until| now < until) && evicted_at(pod).is_some_and(is_meant)
}

/// The clocks of replicas differ by less than this.
const TOLERATED: Duration = Duration::from_secs(60);

/// Whether an instant that is on record can be past, by some clock: a later one is not what a replica has written.
pub(crate) fn can_be_past(at: Timestamp, now: Timestamp) -> bool {
    now.checked_add(TOLERATED).is_ok_and(|latest| at <= latest)
}

/// An operation begins within this time where the budgets of its pod have room; or something is in its way.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);

/// Whether the operation of a pod whose eviction waits would have begun by now, if nothing were in its way.
pub(crate) fn is_overdue(pod: &Pod, now: Timestamp) -> bool {
    let begins_by = evicted_at(pod).and_then(|at| at.checked_add(BEGINS_WITHIN).ok());
    begins_by.is_some_and(|by| by <= now)
}

/// Whether the operation of a pod has begun for its eviction, and the pod still counts as healthy for the disruption
/// controller. The reservations of such a pod are renewed: the operation goes on whenever its rules let it, and neither
/// this controller nor the API server may give its places to other pods meanwhile.
pub(crate) fn keeps_reservations(pod: &Pod) -> bool {
    let is_begun = is_begun(&Operation::of(&pod.labels, ID_POD_DELETE));
    let is_here = pod.is_controlled() && pod.is_ready && !pod.has_ended && !pod.is_deleting;
    is_begun && is_here && evicted_at(pod).is_some()
}

/// Whether a pod that [keeps its reservations](keeps_reservations) has yet to be taken out of service.
pub(crate) fn is_to_leave(pod: &Pod) -> bool {
    keeps_reservations(pod) && pod.service_ready != Some(ConditionStatus::False)
}

/// Whether what is done about a pod depends on its budgets: it is evicted, and it may go, or is about to be taken out of
/// service.
pub(crate) fn needs_budgets(pod: &Pod) -> bool {
    let is_to_go = pod.annotations.contains_key(ANNOTATION_EVICTED_AT) && may_delete(pod);
    is_to_go || keeps_reservations(pod)
}

/// Whether the budgets of a pod are of interest for its eviction: it waits for them, may be about to be taken out of
/// service, or may go.
pub(crate) fn is_concerned(pod: &Pod, now: Timestamp) -> bool {
    is_waiting(pod, now) || keeps_waiting(pod)
}

/// Whether a pod whose operation has begun for its eviction may wait for its budgets, however long that takes.
pub(crate) fn keeps_waiting(pod: &Pod) -> bool {
    let is_here = pod.is_controlled() && !pod.has_ended && !pod.is_deleting;
    is_here && needs_budgets(pod)
}

/// Until when a pod may wait for its budgets; `None`: it does not.
pub(crate) fn may_wait_until(pod: &Pod) -> Option<Timestamp> {
    let keeps = keeps_waiting(pod).then_some(Timestamp::MAX);
    wanted_until(pod).or(keeps)
}

/// When a client last asked for the eviction of a pod.
pub(crate) fn evicted_at(pod: &Pod) -> Option<Timestamp> {
    parse_stamp(pod.annotations.get(ANNOTATION_EVICTED_AT)?)
}
