//! How many pods a budget can spare. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use longshore_api::podops::{ANNOTATION_EVICTED_AT, ID_POD_DELETE, OperationLabel, Stage};
use serde::Serialize;

use super::{
    budget::{Budget, Reservation},
    keeps_reservations,
};
use crate::{
    admit::grace::is_begun,
    model::{ConditionStatus, Operation, Operations, Pod},
    rule::Rule,
};

/// A budget that holds a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The name of the budget.
    pub budget: String,
    /// What it asks for, and what there is.
    pub message: String,
}

/// How many pods of each budget are available, and not on their way out of service.
///
/// One count for all: a pod that is not Ready, is being deleted, was taken out by any operation or is about to be, does
/// not count, whichever client began that operation.
///
/// The count knows operations of which the disruption controller knows nothing. That controller and the API server
/// know evictions of which the count knows nothing, in pods without the label: a Ready pod may go only where both have
/// room.
#[derive(Debug)]
pub struct Counts<'a> {
    budgets: &'a [Budget],
    rules: &'a [Rule],
    now: Timestamp,
    /// By the name of the budget.
    available: BTreeMap<&'a str, i64>,
    /// Disruptions that are left to reserve, by the name of the budget.
    allowed: BTreeMap<&'a str, i64>,
}

impl<'a> Counts<'a> {
    /// Counts these pods: all that the budgets select, as far as they are known.
    pub fn of(pods: &[Pod], budgets: &'a [Budget], rules: &'a [Rule], now: Timestamp) -> Self {
        let mut counts = Self {
            budgets,
            rules,
            now,
            available: BTreeMap::new(),
            allowed: BTreeMap::new(),
        };
        for budget in budgets {
            let selected = pods.iter().filter(|pod| counts.counts(budget, pod));
            let available = selected.filter(|pod| counts.serves(pod));
            let n = i64::try_from(available.count()).unwrap_or(i64::MAX);
            counts.available.insert(&budget.name, n);
            // Operations that have begun come first: the controller cannot take them back.
            let begun = pods.iter().filter(|pod| keeps_reservations(pod));
            let begun = begun.filter(|pod| counts.is_missing(budget, pod));
            let n = i64::try_from(begun.count()).unwrap_or(i64::MAX);
            let allowed = budget.allowed.saturating_sub(n);
            counts.allowed.insert(&budget.name, allowed);
        }
        counts
    }

    /// The budgets that hold a pod; none where it may go.
    ///
    /// Budgets ask nothing of a pod that has yet to run. One that is not available costs them nothing: it may go while
    /// the others suffice, or always, where the budget says so.
    pub fn held(&self, pod: &Pod) -> Vec<Held> {
        if pod.is_pending {
            return Vec::new();
        }
        let selecting = self.budgets.iter().filter(|budget| budget.selects(pod));
        let held = selecting.filter_map(|budget| {
            if !self.spares(budget, pod) {
                return Some(Held {
                    budget: budget.name.clone(),
                    message: budget.says(self.available(budget)),
                });
            }
            let is_spent = !self.has_disruption(budget, pod);
            is_spent.then(|| self.spent(budget))
        });
        held.collect()
    }

    /// A budget that has room by this count, and no disruption left. The disruption controller may not have seen all pods.
    fn spent(&self, budget: &Budget) -> Held {
        let mut held = budget.holds_without_disruption();
        let n_ready = self.available(budget);
        let counted = budget.counted.as_ref();
        if let Some(counted) = counted.ok().filter(|counted| counted.healthy < n_ready) {
            let more = format!("; {} are counted, {n_ready} are Ready", counted.healthy);
            held.message.push_str(&more);
        }
        held
    }

    /// Counts a pod as taken out of service from now on.
    pub fn take(&mut self, pod: &Pod) {
        for budget in self.budgets {
            let n = i64::from(self.is_missing(budget, pod));
            if let Some(allowed) = self.allowed.get_mut(budget.name.as_str()) {
                *allowed -= n;
            }
            let cost = self.cost(budget, pod);
            if let Some(available) = self.available.get_mut(budget.name.as_str()) {
                *available -= cost;
            }
        }
    }

    /// Whether the disruption controller has seen pods of a budget that holds this pod, and that are not among those
    /// that were counted here. The controller need not list those pods while no disruption is left to reserve.
    pub(super) fn is_short(&self, pod: &Pod, pods: &[Pod]) -> bool {
        let selecting = self.budgets.iter().filter(|budget| budget.selects(pod));
        let selecting: Vec<&Budget> = selecting.collect();
        let is_spent = |budget: &&Budget| !self.has_disruption(budget, pod);
        if selecting.iter().any(is_spent) {
            return false;
        }
        let mut holding = selecting
            .into_iter()
            .filter(|budget| !self.spares(budget, pod));
        holding.any(|budget| {
            let n_pods = pods.iter().filter(|pod| budget.selects(pod)).count();
            let n_available = usize::try_from(self.available(budget)).unwrap_or_default();
            budget.has_seen_more(n_pods, n_available)
        })
    }

    fn spares(&self, budget: &Budget, pod: &Pod) -> bool {
        if budget.spares_unready && !pod.is_ready {
            return true;
        }
        let Ok(counted) = &budget.counted else {
            return false;
        };
        self.available(budget) - self.cost(budget, pod) >= counted.desired
    }

    /// Whether a disruption is reserved for the pod, is left to be, or is not needed.
    fn has_disruption(&self, budget: &Budget, pod: &Pod) -> bool {
        let allowed = self.allowed.get(budget.name.as_str()).copied();
        !self.is_missing(budget, pod) || allowed.unwrap_or_default() > 0
    }

    /// Whether the pod needs a disruption of the budget, and none is reserved.
    fn is_missing(&self, budget: &Budget, pod: &Pod) -> bool {
        budget.charges(pod) && budget.reservation(pod, self.now) == Reservation::Missing
    }

    fn available(&self, budget: &Budget) -> i64 {
        self.available
            .get(budget.name.as_str())
            .copied()
            .unwrap_or_default()
    }

    /// By how much the count of a budget falls when the pod goes.
    fn cost(&self, budget: &Budget, pod: &Pod) -> i64 {
        (self.serves(pod) && self.counts(budget, pod)).into()
    }

    fn counts(&self, budget: &Budget, pod: &Pod) -> bool {
        budget.selects(pod) && !budget.is_disrupting(pod, self.now)
    }

    /// Whether a pod is available and no operation takes it out of service.
    fn serves(&self, pod: &Pod) -> bool {
        pod.is_ready && !pod.is_deleting && !self.is_taken_out(pod)
    }

    fn is_taken_out(&self, pod: &Pod) -> bool {
        if pod.service_ready == Some(ConditionStatus::False) {
            return true;
        }
        // Labels that cannot be followed may mean anything.
        let Ok(operations) = Operations::of(&pod.labels) else {
            return true;
        };
        let mut operations = operations.iter();
        operations.any(|(id, operation)| self.takes_out(pod, id, operation))
    }

    /// An operation that completes gives its pod back. One that waits for rules takes it at any moment, unless a rule
    /// holds it; one that was begun for an eviction has been given its place, whatever rules say.
    fn takes_out(&self, pod: &Pod, id: &str, operation: &Operation) -> bool {
        let has = |label| operation.has(label);
        let is_waiting = has(OperationLabel::Operating)
            && !has(OperationLabel::PreChecked)
            && !has(OperationLabel::Operate);
        if !is_waiting {
            return !has(OperationLabel::Completing);
        }
        let is_eviction =
            id == ID_POD_DELETE && pod.annotations.contains_key(ANNOTATION_EVICTED_AT);
        (is_eviction && is_begun(operation)) || !self.is_rejected(pod)
    }

    /// Whether a rule has looked at the pod and holds it before its operation begins.
    fn is_rejected(&self, pod: &Pod) -> bool {
        let mut says = self
            .rules
            .iter()
            .filter_map(|rule| rule.says_of(pod)?.detail);
        says.any(|detail| detail.stage == Stage::PreCheck.as_str() && !detail.passed)
    }
}
