//! Counts that are older than the pods. Pure.
//!
//! The disruption controller of Kubernetes looks at one of the budgets of a pod that changes, whichever it finds first: the
//! count of the other budgets of the pod may be old, and say for long that no disruption is left. It counts again whenever
//! the budget is written. Where pods wait for such a budget, an entry of no pod is written into its status: the disruption
//! controller drops entries of pods that do not exist, without an Event, and the API server never looks at them.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use longshore_api::podops::ENTRY_COUNT_AGAIN;
use longshore_core::{Patch, PatchKind};
use serde_json::json;

use super::{budget::Budget, is_concerned};
use crate::model::Pod;

/// A pod that has been Ready for less time may be about to be counted.
const SETTLED: SignedDuration = SignedDuration::from_secs(5);
/// Budgets that are written in one round.
const WRITTEN_A_ROUND: usize = 16;

/// What is done about old counts.
#[derive(Default)]
pub(super) struct Recount {
    /// The writes that have budgets counted again.
    pub(super) writes: Vec<Patch>,
    /// Whether it has to be looked again soon for a count that may be old.
    pub(super) looks_again: bool,
}

/// The budgets without room for which pods wait, and that have counted fewer pods than are Ready. `passed_over` are the
/// uids of those that could not be written, or were written, a moment ago, and `reserved` the names of those that are
/// written in this round.
pub(super) fn recount(
    pods: &[Pod],
    budgets: &[Budget],
    passed_over: &BTreeSet<&String>,
    reserved: &BTreeSet<&str>,
    now: Timestamp,
) -> Recount {
    let mut recount = Recount::default();
    for budget in budgets {
        let is_awaited = |pod: &Pod| is_concerned(pod, now) && budget.selects(pod);
        let lacks_room = budget.allowed < 1 || !budget.has_enough();
        if !lacks_room || !pods.iter().any(is_awaited) || !is_old(budget, pods, now) {
            continue;
        }
        let is_passed_over = budget
            .uid
            .as_ref()
            .is_some_and(|it| passed_over.contains(it));
        let settled_at = now.checked_sub(SETTLED).unwrap_or(Timestamp::MIN);
        let is_settled = is_old(budget, pods, settled_at);
        let is_written = reserved.contains(budget.name.as_str());
        if is_passed_over || !is_settled || is_written || recount.writes.len() >= WRITTEN_A_ROUND {
            recount.looks_again = true;
        } else {
            recount.writes.push(write(budget));
        }
    }
    recount
}

/// Whether a budget has counted fewer healthy pods than have been Ready since then. False where the budget has no
/// count, and while the entry of no pod is still there: then the disruption controller has yet to look.
fn is_old(budget: &Budget, pods: &[Pod], since: Timestamp) -> bool {
    let Ok(counted) = &budget.counted else {
        return false;
    };
    let is_healthy = |pod: &&Pod| {
        let is_long = pod.ready_changed_at.is_some_and(|at| at <= since);
        let has_entry = budget.disrupted.contains_key(&pod.target.name);
        budget.selects(pod) && pod.is_ready && is_long && !pod.is_deleting && !has_entry
    };
    let n_healthy = pods.iter().filter(is_healthy).count();
    let is_more = i64::try_from(n_healthy).is_ok_and(|n| n > counted.healthy);
    is_more && !budget.disrupted.contains_key(ENTRY_COUNT_AGAIN)
}

/// The entry has ended long ago, for every reader.
fn write(budget: &Budget) -> Patch {
    let entry = Timestamp::UNIX_EPOCH.to_string();
    let mut patch = json!({"status": {"disruptedPods": {ENTRY_COUNT_AGAIN: entry}}});
    if let Some(version) = &budget.resource_version {
        patch["metadata"] = json!({"resourceVersion": version});
    }
    Patch {
        target: budget.target(),
        subresource: Some("status"),
        kind: PatchKind::Merge,
        patch,
    }
}
