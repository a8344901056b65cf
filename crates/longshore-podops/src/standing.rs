//! Where a pod stands on its way through operations, and what holds it there: for people, and to be counted. Pure.

mod blockers;
pub mod transitions;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use longshore_api::podops::{FINALIZER_SERVICES, LABEL_SERVICE_AVAILABLE, OperationLabel};
use serde::Serialize;

use self::blockers::{Around, blocker, to_be_gone, to_serve};
use crate::{
    eviction::{self, Held},
    lifecycle::RuleSays,
    model::{Operation, Operations, Pod, parse_stamp},
};

/// No operation on a pod has begun before 2020.
const EARLIEST: Timestamp = Timestamp::constant(1_577_836_800, 0);
/// How far the clock of a client that writes a label may be ahead of ours.
const TOLERATED: SignedDuration = SignedDuration::from_hours(24);

/// Where a pod stands. Upstream's words, and two for what its words do not cover. In the order in which the phase of a pod
/// is that of the operation that is furthest on its way out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Phase {
    /// The pod serves.
    ServiceAvailable,
    /// The pod is about to serve, for the first time or again.
    Completing,
    /// The work is done, and the rules about it have yet to pass.
    PostCheck,
    /// The rules have yet to let an operation begin.
    PreCheck,
    /// Traffic is being drained.
    Preparing,
    /// An operation may touch the pod.
    Operating,
    /// The pod was deleted, and is about to go.
    Terminating,
    /// The pod runs no more.
    Ended,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ServiceAvailable,
        Self::Completing,
        Self::PostCheck,
        Self::PreCheck,
        Self::Preparing,
        Self::Operating,
        Self::Terminating,
        Self::Ended,
    ];

    /// As people read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServiceAvailable => "ServiceAvailable",
            Self::Completing => "Completing",
            Self::PostCheck => "PostCheck",
            Self::PreCheck => "PreCheck",
            Self::Preparing => "Preparing",
            Self::Operating => "Operating",
            Self::Terminating => "Terminating",
            Self::Ended => "Ended",
        }
    }
}

/// What kind of thing holds a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum BlockerKind {
    /// A PodDisruptionBudget: the eviction of the pod waits for room in it.
    Budget,
    /// A PodTransitionRule.
    Rule,
    /// A finalizer: traffic is still routed to the pod.
    Protection,
    /// Another finalizer of a pod that is about to go.
    Finalizer,
    /// The client that operates on the pod: it is not done.
    Operator,
    /// An operation that has no type: the client that began it has to say which one.
    Untyped,
    /// Another operation on the same pod.
    Operation,
    /// Its node: it is not Ready.
    Node,
    /// A controller that has yet to route traffic to it.
    Expected,
    /// A person that keeps it out of service.
    Person,
    /// Our controller, which has yet to write it: not for long, where it runs.
    Controller,
    /// What its labels or annotations say, which cannot be followed.
    Invalid,
}

impl BlockerKind {
    /// As people read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "Budget",
            Self::Rule => "Rule",
            Self::Protection => "Protection",
            Self::Finalizer => "Finalizer",
            Self::Operator => "Operator",
            Self::Untyped => "Untyped",
            Self::Operation => "Operation",
            Self::Node => "Node",
            Self::Expected => "Expected",
            Self::Person => "Person",
            Self::Controller => "Controller",
            Self::Invalid => "Invalid",
        }
    }
}

/// What holds a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// What kind of thing it is.
    pub kind: BlockerKind,
    /// Its name.
    pub name: String,
    /// What has to happen.
    pub message: String,
    /// Since when, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Where one operation stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationStanding {
    /// Its id.
    pub id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub operation_type: String,
    /// Where it stands.
    pub phase: Phase,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Where a pod stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// Its phase: that of the operation that is furthest on its way out of service.
    pub phase: Phase,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Its operations, by id.
    pub operations: Vec<OperationStanding>,
    /// What holds it there. Empty where the pod serves, or goes on by itself.
    pub blockers: Vec<Blocker>,
    /// When a client last asked for its eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicted_at: Option<Timestamp>,
}

impl Standing {
    /// Where a pod that takes part stands; `rules` are those that are about it.
    pub fn of(pod: &Pod, rules: &[RuleSays]) -> Self {
        let operations = match Operations::of(&pod.labels) {
            Ok(operations) => operations,
            Err(invalid) => {
                let words = blocker(BlockerKind::Invalid, "labels", invalid.to_string(), None);
                let mut standing = Self::idle(pod);
                standing.blockers.insert(0, words);
                return standing;
            }
        };
        let mut standing = if operations.is_empty() {
            Self::idle(pod)
        } else {
            Self::operated_on(pod, &operations, rules)
        };
        if pod.has_ended {
            (standing.phase, standing.since) = (Phase::Ended, None);
            standing.blockers.clear();
        } else if pod.is_deleting {
            (standing.phase, standing.since) = (Phase::Terminating, pod.deleted_at);
            standing.blockers = to_be_gone(pod);
        }
        standing
    }

    /// The same, with the Services that route traffic to it: those of the EndpointSlices that have it as ready.
    #[must_use]
    pub fn routed_by(mut self, services: &BTreeSet<&str>) -> Self {
        let names: Vec<&str> = services.iter().copied().collect();
        let ours = self.blockers.iter_mut();
        if let Some(blocker) = ours.into_iter().find(|it| it.name == FINALIZER_SERVICES)
            && !names.is_empty()
        {
            blocker.message = format!(
                "an EndpointSlice of Service {} has the pod as ready: no controller has taken it out yet",
                names.join(", ")
            );
        }
        self
    }

    /// The same, with the disruption budgets that hold its eviction.
    #[must_use]
    pub fn held_by(mut self, budgets: &[Held]) -> Self {
        if self.evicted_at.is_none() || budgets.is_empty() {
            return self;
        }
        let ours = |it: &Blocker| it.kind == BlockerKind::Controller;
        self.blockers.retain(|blocker| !ours(blocker));
        self.blockers.extend(budgets.iter().map(|held| {
            let message = held.message.clone();
            // Since when the budget holds the pod is unknown: the budget may be younger than the eviction.
            blocker(BlockerKind::Budget, &held.budget, message, None)
        }));
        self
    }

    /// The same as seen at this time, without instants that no client can have meant: labels are written by hand as
    /// well, as `stay-offline: "1"`.
    #[must_use]
    pub fn seen_at(mut self, now: Timestamp) -> Self {
        let latest = now.checked_add(TOLERATED).unwrap_or(Timestamp::MAX);
        let is_meant = |at: &Timestamp| (EARLIEST..=latest).contains(at);
        self.since = self.since.filter(is_meant);
        self.evicted_at = self.evicted_at.filter(is_meant);
        for operation in &mut self.operations {
            operation.since = operation.since.filter(is_meant);
        }
        for blocker in &mut self.blockers {
            blocker.since = blocker.since.filter(is_meant);
        }
        self
    }

    /// The kinds of the blockers of the pod.
    pub fn kinds(&self) -> BTreeSet<BlockerKind> {
        self.blockers.iter().map(|blocker| blocker.kind).collect()
    }

    fn idle(pod: &Pod) -> Self {
        let available = pod.labels.get(LABEL_SERVICE_AVAILABLE);
        let (phase, since, blockers) = match available {
            Some(since) => (Phase::ServiceAvailable, parse_stamp(since), Vec::new()),
            None => (Phase::Completing, pod.created_at, to_serve(pod)),
        };
        Self {
            phase,
            since,
            operations: Vec::new(),
            blockers,
            evicted_at: eviction::evicted_at(pod),
        }
    }

    fn operated_on(pod: &Pod, operations: &Operations, rules: &[RuleSays]) -> Self {
        let mut standing = Self {
            phase: Phase::Completing,
            since: None,
            operations: Vec::new(),
            blockers: Vec::new(),
            evicted_at: eviction::evicted_at(pod),
        };
        for (id, operation) in operations.iter() {
            let (phase, since) = phase_of(operation);
            standing.operations.push(OperationStanding {
                id: id.to_owned(),
                operation_type: operation.operation_type().unwrap_or_default().to_owned(),
                phase,
                since,
            });
            let around = Around {
                pod,
                operations,
                rules,
            };
            for blocker in around.hold(id, operation, phase, since) {
                let is_new =
                    |known: &Blocker| (known.kind, &known.name) != (blocker.kind, &blocker.name);
                if standing.blockers.iter().all(is_new) {
                    standing.blockers.push(blocker);
                }
            }
        }
        let furthest = standing.operations.iter().max_by_key(|of| of.phase);
        if let Some(furthest) = furthest {
            (standing.phase, standing.since) = (furthest.phase, furthest.since);
        }
        standing
    }
}

/// Where an operation stands, and since when.
fn phase_of(operation: &Operation) -> (Phase, Option<Timestamp>) {
    let since = |labels: &[OperationLabel]| {
        let stamps = labels.iter().find_map(|label| operation.get(*label));
        stamps.and_then(parse_stamp)
    };
    let has = |label| operation.has(label);
    if has(OperationLabel::Operate) {
        (Phase::Operating, since(&[OperationLabel::Operate]))
    } else if has(OperationLabel::Operated) && has(OperationLabel::Completing) {
        (Phase::Completing, since(&[OperationLabel::Completing]))
    } else if has(OperationLabel::Operated) {
        let labels = [OperationLabel::PostCheck, OperationLabel::Operated];
        (Phase::PostCheck, since(&labels))
    } else if has(OperationLabel::PreChecked) {
        let labels = [OperationLabel::Preparing, OperationLabel::PreChecked];
        (Phase::Preparing, since(&labels))
    } else {
        let labels = [OperationLabel::PreCheck, OperationLabel::Operating];
        (Phase::PreCheck, since(&labels))
    }
}

#[cfg(test)]
mod tests;
