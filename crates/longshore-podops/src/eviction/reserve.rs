//! Disruptions are reserved in the status of budgets before operations begin. Pure.
//!
//! The API server evicts in two steps: it takes a disruption out of the status of the budget (`disruptionsAllowed`, and
//! an entry in `disruptedPods`), and then deletes the pod. The disruption controller does not count a pod as healthy that
//! has an entry, and drops the entry when the pod goes, or after two minutes. This controller takes the same first step
//! in the same way, upon the version of the budget, so that of two takers of the last disruption one meets a conflict.
//!
//! The entry is the write-ahead log. Where the controller crashes before it begins the operation, the next leader finds
//! the entry, and begins without a second reservation, or the entry ends by itself. Where the operation has begun, the
//! entry is renewed until the pod is not Ready: from then on, the disruption controller counts it as missing anyway. A pod
//! that has an entry and is not Ready counts as missing once. Where no controller ran to renew the entry, the
//! disruption may have gone to another pod: then the pod is not taken out of service before one is reserved anew.
//!
//! A budget may change while an operation waits. Where it is not counted, or fewer pods are healthy than have to stay, the
//! pod goes on to serve and the entry is not renewed: of several pods that had room before, those whose entries have ended
//! count as healthy again, and the others may go.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use longshore_core::{Patch, PatchKind};
use serde_json::{Map, json};

use super::{
    budget::{Budget, RENEWED_AFTER, Reservation},
    count::Held,
    keeps_reservations,
};
use crate::model::Pod;

/// Budgets that are written in one round; the changes of them bring about the next one.
const RESERVED_A_ROUND: usize = 16;

/// Whether each of the budgets that charge for the pod has a reservation for it, which lasts: its operation may begin.
pub fn has_reservations(pod: &Pod, budgets: &[Budget], now: Timestamp) -> bool {
    lacking(pod, budgets, now).next().is_none()
}

/// Whether the budgets let an operation that has begun take the pod out of service: the reservations last, and enough
/// other pods are healthy. A pod that is not Ready costs nothing.
pub fn may_leave(pod: &Pod, budgets: &[Budget], now: Timestamp) -> bool {
    let mut charging = budgets.iter().filter(|budget| budget.charges(pod));
    charging.all(|budget| budget.has_enough() && budget.reservation(pod, now) == Reservation::Valid)
}

/// The budgets in which a disruption has to be reserved for the pod, or its reservation renewed.
fn lacking<'a>(
    pod: &'a Pod,
    budgets: &'a [Budget],
    now: Timestamp,
) -> impl Iterator<Item = &'a Budget> {
    let charging = budgets.iter().filter(move |budget| budget.charges(pod));
    charging.filter(move |budget| budget.reservation(pod, now) != Reservation::Valid)
}

/// The writes that reserve disruptions for these pods, one for each budget.
///
/// In the order of the names of the budgets: of two pods with the same budgets, the one that was first in the first
/// budget is first in all of them. `failed` are the uids of budgets that could not be written a moment ago: a pod that is
/// yet to begin takes no place in its other budgets meanwhile.
pub(super) fn reserve(
    pods: &[&Pod],
    budgets: &[Budget],
    failed: &BTreeSet<String>,
    now: Timestamp,
) -> Vec<Patch> {
    let has_failed = |budget: &Budget| budget.uid.as_ref().is_some_and(|it| failed.contains(it));
    let mut lacks: BTreeMap<&str, (&Budget, Vec<&Pod>)> = BTreeMap::new();
    for pod in pods {
        let is_stuck = lacking(pod, budgets, now).any(has_failed);
        if is_stuck && !keeps_reservations(pod) {
            continue;
        }
        let writable =
            lacking(pod, budgets, now).filter(|budget| budget.has_enough() && !has_failed(budget));
        for budget in writable {
            let entry = lacks.entry(&budget.name);
            let (_, lacking_pods) = entry.or_insert_with(|| (budget, Vec::new()));
            lacking_pods.push(pod);
        }
    }
    let lacks = lacks.into_values().take(RESERVED_A_ROUND);
    lacks
        .filter_map(|(budget, pods)| patch(budget, &pods, now))
        .collect()
}

/// The budgets that hold a pod in service whose operation has begun: those that are not counted, those that lack healthy
/// pods, and those that have no disruption left.
pub(crate) fn holding(pod: &Pod, budgets: &[Budget], now: Timestamp) -> Vec<Held> {
    let charging = budgets.iter().filter(|budget| budget.charges(pod));
    let holding = charging.filter_map(|budget| {
        if !budget.has_enough() {
            return Some(budget.holds());
        }
        let is_missing = budget.reservation(pod, now) == Reservation::Missing;
        (is_missing && budget.allowed < 1).then(|| budget.holds_without_disruption())
    });
    holding.collect()
}

/// The budgets of a pod that have room for it, where its operation has not begun all the same: a reservation or the pod
/// could not be written.
pub(super) fn stuck(pod: &Pod, budgets: &[Budget], now: Timestamp) -> Vec<Held> {
    let lacking = lacking(pod, budgets, now);
    let unreserved: Vec<Held> = lacking
        .map(|budget| budget.holds_with_room("no disruption could be reserved in it"))
        .collect();
    if !unreserved.is_empty() {
        return unreserved;
    }
    let selecting = budgets.iter().filter(|budget| budget.selects(pod));
    selecting
        .map(|budget| budget.holds_with_room("the operation could not begin"))
        .collect()
}

/// After which time the first reservation has to be renewed of the pods whose operations have begun; `None` where there
/// is none that lasts.
pub(super) fn renewed_in(pods: &[Pod], budgets: &[Budget], now: Timestamp) -> Option<Duration> {
    let begun = pods.iter().filter(|pod| keeps_reservations(pod));
    let left = begun.flat_map(move |pod| {
        let lasting = budgets.iter().filter(move |budget| {
            budget.charges(pod) && budget.reservation(pod, now) == Reservation::Valid
        });
        lasting.filter_map(move |budget| {
            let since = budget.disrupted.get(&pod.target.name)?;
            Duration::try_from(RENEWED_AFTER - now.duration_since(*since)).ok()
        })
    });
    left.min()
}

/// The write upon the version of the budget that was counted; `None` where no disruption is left. The first pods get what
/// is left.
fn patch(budget: &Budget, pods: &[&Pod], now: Timestamp) -> Option<Patch> {
    let mut entries = Map::new();
    let mut left = budget.allowed;
    for pod in pods {
        // The disruption controller does not count a pod as healthy that has an entry, however old the entry is:
        // renewing it takes nothing more.
        if !budget.disrupted.contains_key(&pod.target.name) {
            if left < 1 {
                continue;
            }
            left -= 1;
        }
        // Where the clock of the API server is ahead, the entry must not look like that of an earlier pod.
        let at = pod.created_at.map_or(now, |created_at| now.max(created_at));
        entries.insert(pod.target.name.clone(), json!(in_seconds(at)));
    }
    if entries.is_empty() {
        return None;
    }
    let mut status = json!({"disruptedPods": entries});
    if left < budget.allowed {
        status["disruptionsAllowed"] = json!(left);
    }
    let mut patch = json!({"status": status});
    if let Some(version) = &budget.resource_version {
        patch["metadata"] = json!({"resourceVersion": version});
    }
    Some(Patch {
        target: budget.target(),
        subresource: Some("status"),
        kind: PatchKind::Merge,
        patch,
    })
}

/// The instant as Kubernetes writes times: RFC 3339, in whole seconds.
fn in_seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).map_or_else(|_| at.to_string(), |at| at.to_string())
}
