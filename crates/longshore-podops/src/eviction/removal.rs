//! How a pod goes that an operation may delete on behalf of an eviction, and whose evictor has not come back. Pure.

use jiff::Timestamp;

use super::{
    budget::{Budget, Counted},
    count::Held,
};
use crate::model::Pod;

/// How a pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// By an eviction: the API server holds its budget against it once more.
    Evict,
    /// By a delete. API servers evict no pod of several budgets, and none that is not Ready where its budget wants no
    /// pod to stay; our own count has found room in all of them. For a pod that is still Ready, API servers take a second
    /// disruption beside the one that is reserved for it, or refuse where none is left.
    Delete,
    /// Not now: its budgets would refuse, or are not counted.
    Wait,
}

/// How a pod goes that these budgets select.
pub fn removal(pod: &Pod, budgets: &[Budget], now: Timestamp) -> Removal {
    if !refusing(pod, budgets, now).is_empty() {
        return Removal::Wait;
    }
    let mut selecting = budgets.iter().filter(|budget| budget.selects(pod));
    match (selecting.next(), selecting.next()) {
        (None, _) => Removal::Evict,
        (Some(_), Some(_)) if !pod.is_pending => Removal::Delete,
        (Some(budget), _) => {
            let wants_none = budget.counted.as_ref().is_ok_and(|it| it.desired <= 0);
            let is_spared = pod.is_pending || pod.is_ready || budget.spares_unready;
            let is_paid = budget.charges(pod) && budget.is_disrupting(pod, now);
            if is_paid || (wants_none && !is_spared) {
                Removal::Delete
            } else {
                Removal::Evict
            }
        }
    }
}

/// The budgets that refuse it, as API servers decide: upon what the disruption controller has counted, and the
/// disruptions that are left. A pod that is still Ready and has a reservation may go.
pub(super) fn refusing(pod: &Pod, budgets: &[Budget], now: Timestamp) -> Vec<Held> {
    if pod.is_pending {
        return Vec::new();
    }
    let selecting = budgets.iter().filter(|budget| budget.selects(pod));
    let refusing = selecting.filter(|budget| refuses(budget, pod, now));
    refusing.map(Budget::holds).collect()
}

fn refuses(budget: &Budget, pod: &Pod, now: Timestamp) -> bool {
    if budget.spares_unready && !pod.is_ready {
        return false;
    }
    let Ok(Counted {
        desired, healthy, ..
    }) = budget.counted
    else {
        return true;
    };
    if pod.is_ready {
        return budget.allowed < 1 && !budget.is_disrupting(pod, now);
    }
    healthy < desired
}
