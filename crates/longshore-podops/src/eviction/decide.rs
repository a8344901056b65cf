//! Which of the pods of a namespace whose evictions were asked for begin their operation now.
//!
//! Decided upon all pods of the namespace together, because two that are decided upon apart from each other would both
//! take the last place of a budget. The places are in the labels: a pod whose operation has begun is counted as taken
//! out by the next round and by the next leader, so that a crash gives no place away twice. For the API server, which
//! evicts pods without the label, they are in the status of the budget: one round [reserves](super::reserve) them, and the
//! next round, which sees the reservation, begins the operation.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use longshore_api::podops::{ANNOTATION_DELETE_TIMESTAMP, LABEL_TO_DELETE};
use longshore_core::{Action, Never, Next, Patch, Plan, Seen};
use serde::Serialize;
use serde_json::{Map, json};

use super::{
    budget::Budget,
    count::{Counts, Held},
    evicted_at, is_overdue, is_to_leave, is_waiting, keeps_reservations,
    recount::recount,
    reserve::{has_reservations, holding, renewed_in, reserve, stuck},
};
use crate::{
    LOOK_AGAIN,
    admit::grace::{begun, may_delete},
    lifecycle::upon,
    model::{Pod, stamp},
    rule::Rule,
};

/// What is done about the evictions of a namespace.
pub type EvictionPlan = Plan<Never, EvictionEffect>;

/// What a round writes.
///
/// Effects of their own: an object that cannot be written, because another operator's webhook refuses it, must not keep
/// the other pods of the namespace from their turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum EvictionEffect {
    /// Disruptions of a budget are reserved for pods, with this write of its status.
    Reserve(Patch),
    /// The operation of a pod begins, with this write.
    Begin(Patch),
    /// The disruption controller counts a budget again, after this write of its status.
    CountAgain(Patch),
}

/// Operations that begin in one round; the changes of their pods bring about the next one. Of pods whose operations are
/// yet to begin, as many get reservations.
const BEGUN_A_ROUND: usize = 16;
/// When it is looked again for what could not be written.
pub(crate) const TRIED_AGAIN: Duration = Duration::from_secs(5);
/// When it is looked again for pods whose operations were refused for long.
const LOOKED_FOR_AGAIN: Duration = Duration::from_secs(30);

/// A snapshot of all that a round about the evictions of a namespace reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The current instant.
    pub now: Timestamp,
    /// The pods of the namespace that take part.
    pub pods: Seen<Vec<Pod>>,
    /// Its budgets.
    pub budgets: Seen<Vec<Budget>>,
    /// Its PodTransitionRules.
    pub rules: Seen<Vec<Rule>>,
    /// Pods that take no part: they count as well. `Absent` where they were not listed.
    pub others: Seen<Vec<Pod>>,
    /// The uids of pods and budgets that could not be written a moment ago.
    pub failed: BTreeSet<String>,
    /// The uids of pods whose operations were refused for so long that others have their turn.
    pub given_up: BTreeSet<String>,
    /// The uids of budgets that were to be counted again a moment ago.
    pub recounted: BTreeSet<String>,
}

impl EvictionEffect {
    /// What it writes.
    pub(crate) fn patch(&self) -> &Patch {
        match self {
            Self::Reserve(patch) | Self::Begin(patch) | Self::CountAgain(patch) => patch,
        }
    }
}

/// Decides about the evictions of a namespace.
pub fn decide(observed: &Observed) -> EvictionPlan {
    let (Seen::Present(pods), Seen::Present(budgets), Seen::Present(rules)) =
        (&observed.pods, &observed.budgets, &observed.rules)
    else {
        return Plan::after(LOOK_AGAIN);
    };
    if let Seen::Unknown(_) = observed.others {
        return Plan::after(LOOK_AGAIN);
    }
    let now = observed.now;
    let all = all(observed, pods);
    let counts = Counts::of(&all, budgets, rules, now);
    // Pods that could not be written keep their places: the answer may have been lost on its way.
    let has_failed = |uid: Option<&String>| uid.is_some_and(|uid| observed.failed.contains(uid));
    // A pod that cannot be written for long has no place, and its entry is not renewed: others have their turn.
    let has_given_up = |pod: &Pod| {
        let uid = pod.target.uid.as_ref();
        let is_known = uid.is_some_and(|uid| observed.given_up.contains(uid));
        is_known && budgets.iter().any(|budget| budget.selects(pod))
    };
    let (given_up, waiting): (Vec<&Pod>, Vec<&Pod>) = waiting(pods, now)
        .into_iter()
        .partition(|pod| has_given_up(pod));
    let assigned = assign(waiting, counts).begins;
    let (reserved, unreserved): (Vec<&Pod>, Vec<&Pod>) = assigned
        .iter()
        .copied()
        .partition(|pod| has_reservations(pod, budgets, now));
    let is_due = |pod: &&Pod| !has_failed(pod.target.uid.as_ref());
    let begins = reserved.into_iter().filter(is_due);
    let unreserved = unreserved.into_iter().filter(is_due);
    // Operations that have begun come first: the controller cannot take them back.
    let mut lacking = unprotected(pods, budgets, now);
    lacking.extend(unreserved.take(BEGUN_A_ROUND));
    let begins = begins.take(BEGUN_A_ROUND).map(|pod| begin(pod, now));
    let reserves = reserve(&lacking, budgets, &observed.failed, now);
    let is_stuck = budgets.iter().any(|budget| has_failed(budget.uid.as_ref()));
    let reserved = reserves.iter().map(|it| it.target.name.as_str()).collect();
    let passed_over = observed.failed.union(&observed.recounted).collect();
    let recount = recount(&all, budgets, &passed_over, &reserved, now);
    let is_idle = assigned.is_empty()
        && reserves.is_empty()
        && !is_stuck
        && !recount.looks_again
        && recount.writes.is_empty();
    let recounts = recount.writes.into_iter();
    let recounts = recounts.map(|patch| Action::Call(EvictionEffect::CountAgain(patch)));
    let reserves = reserves.into_iter();
    let reserves = reserves.map(|patch| Action::Call(EvictionEffect::Reserve(patch)));
    let renewed = renewed_in(pods, budgets, now).map_or(Next::AwaitChange, Next::After);
    let next = if is_idle && given_up.is_empty() {
        Next::AwaitChange
    } else if is_idle {
        Next::After(LOOKED_FOR_AGAIN)
    } else {
        Next::After(TRIED_AGAIN)
    };
    Plan {
        actions: begins.chain(reserves).chain(recounts).collect(),
        next: next.min(renewed),
    }
}

/// The pods whose operations have begun, and that need a reservation or the renewal of one.
fn unprotected<'a>(pods: &'a [Pod], budgets: &[Budget], now: Timestamp) -> Vec<&'a Pod> {
    let begun = pods.iter().filter(|pod| keeps_reservations(pod));
    begun
        .filter(|pod| !has_reservations(pod, budgets, now))
        .collect()
}

/// Whether a budget that holds a pod has pods that are not among those that take part: they have to be asked for.
pub fn is_short(observed: &Observed) -> bool {
    let (Seen::Present(pods), Seen::Present(budgets), Seen::Present(rules)) =
        (&observed.pods, &observed.budgets, &observed.rules)
    else {
        return false;
    };
    let mut counts = Counts::of(pods, budgets, rules, observed.now);
    let mut waiting = waiting(pods, observed.now).into_iter();
    waiting.any(|pod| {
        if counts.held(pod).is_empty() {
            counts.take(pod);
            return false;
        }
        counts.is_short(pod, pods)
    })
}

/// The budgets that hold each pod whose eviction waits, by the name of the pod. `pods` are all of a namespace.
pub fn holders(
    pods: &[Pod],
    budgets: &[Budget],
    rules: &[Rule],
    now: Timestamp,
) -> BTreeMap<String, Vec<Held>> {
    let counts = Counts::of(pods, budgets, rules, now);
    let Assigned { begins, mut held } = assign(waiting(pods, now), counts);
    for pod in begins.into_iter().filter(|pod| is_overdue(pod, now)) {
        let stuck = stuck(pod, budgets, now);
        if !stuck.is_empty() {
            held.insert(pod.target.name.clone(), stuck);
        }
    }
    let granted = pods
        .iter()
        .filter(|pod| evicted_at(pod).is_some() && may_delete(pod));
    for pod in granted {
        let refusing = super::removal::refusing(pod, budgets, now);
        if !refusing.is_empty() {
            held.insert(pod.target.name.clone(), refusing);
        }
    }
    for pod in pods.iter().filter(|pod| is_to_leave(pod)) {
        let holding = holding(pod, budgets, now);
        if !holding.is_empty() {
            held.insert(pod.target.name.clone(), holding);
        }
    }
    held
}

/// Which pods begin their operations, and which are held by which budgets.
#[derive(Default)]
struct Assigned<'a> {
    begins: Vec<&'a Pod>,
    held: BTreeMap<String, Vec<Held>>,
}

fn assign<'a>(waiting: Vec<&'a Pod>, mut counts: Counts<'_>) -> Assigned<'a> {
    let mut assigned = Assigned::default();
    for pod in waiting {
        let held = counts.held(pod);
        if held.is_empty() {
            counts.take(pod);
            assigned.begins.push(pod);
        } else {
            assigned.held.insert(pod.target.name.clone(), held);
        }
    }
    assigned
}

/// In the order in which they have their turn: those that cost nothing, then those that have waited longest.
fn waiting(pods: &[Pod], now: Timestamp) -> Vec<&Pod> {
    let mut waiting: Vec<&Pod> = pods.iter().filter(|pod| is_waiting(pod, now)).collect();
    waiting.sort_by_key(|pod| (pod.is_ready, evicted_at(pod), &pod.target.name));
    waiting
}

fn all<'a>(observed: &'a Observed, pods: &'a [Pod]) -> Cow<'a, [Pod]> {
    let Seen::Present(others) = &observed.others else {
        return Cow::Borrowed(pods);
    };
    // A pod that has just lost the label may be in both.
    let is_new = |other: &&Pod| pods.iter().all(|pod| pod.target != other.target);
    let others = others.iter().filter(is_new);
    Cow::Owned(pods.iter().chain(others).cloned().collect())
}

/// What the webhook writes of a delete, upon the version that was counted.
fn begin(pod: &Pod, now: Timestamp) -> Action<Never, EvictionEffect> {
    let now = stamp(now);
    let mut labels = begun(&pod.labels, &now);
    let wish = LABEL_TO_DELETE.to_owned();
    labels.entry(wish).or_insert_with(|| now.clone());
    labels.retain(|key, value| pod.labels.get(key) != Some(value));
    let labels: Map<_, _> = labels
        .into_iter()
        .map(|(key, value)| (key, json!(value)))
        .collect();
    let annotations = json!({ANNOTATION_DELETE_TIMESTAMP: now});
    let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
    Action::Call(EvictionEffect::Begin(upon(pod, patch)))
}
