//! Where a pod stands on its way through operations, and who holds it there: for people, and to be counted. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use longshore_api::podops::{
    CONDITION_SERVICE_READY, ID_POD_DELETE, LABEL_SERVICE_AVAILABLE, LABEL_STAY_OFFLINE,
    OperationLabel, Stage,
};
use serde::Serialize;

use crate::{
    lifecycle::{RuleSays, held_by},
    model::{ConditionStatus, Operation, Operations, Pod, parse_stamp},
};

/// Where a pod stands. Upstream's words, and two for what its words do not cover. In the order in which the phase of a pod
/// is that of the operation that is furthest on its way out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Phase {
    /// It serves.
    ServiceAvailable,
    /// It is about to serve, for the first time or again.
    Completing,
    /// The work is done, and rules are asked about it.
    PostCheck,
    /// Rules are asked whether an operation may begin.
    PreCheck,
    /// Traffic is being drained.
    Preparing,
    /// An operation may touch it.
    Operating,
    /// It was deleted, and is about to go.
    Terminating,
    /// It runs no more.
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
    /// A PodTransitionRule.
    Rule,
    /// A finalizer: traffic is still routed to the pod.
    Protection,
    /// Another finalizer of a pod that is about to go.
    Finalizer,
    /// Whoever operates on it, who is not done.
    Operator,
    /// Another operation on the same pod.
    Operation,
    /// Its node: it is not Ready.
    Node,
    /// Somebody who has yet to route traffic to it.
    Expected,
    /// A person, who keeps it out of service.
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
            Self::Rule => "Rule",
            Self::Protection => "Protection",
            Self::Finalizer => "Finalizer",
            Self::Operator => "Operator",
            Self::Operation => "Operation",
            Self::Node => "Node",
            Self::Expected => "Expected",
            Self::Person => "Person",
            Self::Controller => "Controller",
            Self::Invalid => "Invalid",
        }
    }
}

/// Who holds a pod.
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
    /// Who holds it there. Empty where it serves, or goes on by itself.
    pub blockers: Vec<Blocker>,
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

    /// The kinds of things that hold it.
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
        }
    }

    fn operated_on(pod: &Pod, operations: &Operations, rules: &[RuleSays]) -> Self {
        let mut standing = Self {
            phase: Phase::Completing,
            since: None,
            operations: Vec::new(),
            blockers: Vec::new(),
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

/// What is seen around an operation.
struct Around<'a> {
    pod: &'a Pod,
    operations: &'a Operations,
    rules: &'a [RuleSays],
}

impl Around<'_> {
    /// Who holds an operation in its phase.
    fn hold(
        &self,
        id: &str,
        operation: &Operation,
        phase: Phase,
        since: Option<Timestamp>,
    ) -> Vec<Blocker> {
        match phase {
            Phase::PreCheck => self.rules(Stage::PreCheck, since),
            Phase::PostCheck => self.rules(Stage::PostCheck, since),
            Phase::Preparing => self.traffic(since),
            Phase::Operating if !operation.has(OperationLabel::Operating) => self.others(since),
            Phase::Operating if id == ID_POD_DELETE => {
                vec![controller("has to delete the pod", since)]
            }
            Phase::Operating => {
                let message = format!(
                    "has to remove the label {}",
                    OperationLabel::Operating.of(id)
                );
                vec![blocker(BlockerKind::Operator, id, message, since)]
            }
            Phase::Completing => {
                let mut held = self.others(since);
                if held.is_empty() {
                    held = to_serve(self.pod);
                }
                held
            }
            Phase::ServiceAvailable | Phase::Terminating | Phase::Ended => Vec::new(),
        }
    }

    fn rules(&self, stage: Stage, since: Option<Timestamp>) -> Vec<Blocker> {
        let held = self.rules.iter().filter_map(|says| {
            let message = held_by(says, stage)?;
            Some(blocker(BlockerKind::Rule, &says.rule, message, since))
        });
        let held: Vec<Blocker> = held.collect();
        if held.is_empty() {
            let what = format!(
                "has to say that the rules of {} have passed",
                stage.as_str()
            );
            return vec![controller(&what, since)];
        }
        held
    }

    fn traffic(&self, since: Option<Timestamp>) -> Vec<Blocker> {
        if self.pod.has_gate && self.pod.service_ready != Some(ConditionStatus::False) {
            let what = format!("has to set the condition {CONDITION_SERVICE_READY} to False");
            return vec![controller(&what, since)];
        }
        let protections = self.pod.protections().map(|finalizer| {
            let message = "whoever routes traffic to the pod has to remove this finalizer";
            blocker(
                BlockerKind::Protection,
                finalizer,
                message.to_owned(),
                since,
            )
        });
        let held: Vec<Blocker> = protections.collect();
        if held.is_empty() {
            return vec![controller("has to write the pod once more", since)];
        }
        held
    }

    /// Nothing ends before all are done.
    fn others(&self, since: Option<Timestamp>) -> Vec<Blocker> {
        let others = self.operations.iter();
        let at_work = others.filter(|(_, other)| other.has(OperationLabel::Operating));
        at_work
            .map(|(other, _)| {
                let message = "has to end first: operations on a pod complete together";
                blocker(BlockerKind::Operation, other, message.to_owned(), since)
            })
            .collect()
    }
}

/// What has to happen before a pod serves.
fn to_serve(pod: &Pod) -> Vec<Blocker> {
    if let Some(since) = pod.labels.get(LABEL_STAY_OFFLINE) {
        let message = "somebody has to remove this label".to_owned();
        let since = parse_stamp(since);
        return vec![blocker(
            BlockerKind::Person,
            LABEL_STAY_OFFLINE,
            message,
            since,
        )];
    }
    if pod.has_gate && pod.service_ready != Some(ConditionStatus::True) {
        let what = format!("has to set the condition {CONDITION_SERVICE_READY} to True");
        return vec![controller(&what, None)];
    }
    if !pod.is_ready {
        let message = "the pod has to become Ready".to_owned();
        return vec![blocker(
            BlockerKind::Node,
            "Ready",
            message,
            pod.ready_changed_at,
        )];
    }
    let expected = match pod.expected_finalizers() {
        Ok(expected) => expected,
        Err(error) => {
            return vec![blocker(
                BlockerKind::Invalid,
                "annotations",
                error.to_string(),
                None,
            )];
        }
    };
    let missing = expected
        .iter()
        .filter(|(_, finalizer)| !pod.finalizers.contains(finalizer));
    let missing: Vec<Blocker> = missing
        .map(|(holder, finalizer)| {
            let message =
                format!("has to route traffic to the pod and add the finalizer {finalizer}");
            blocker(BlockerKind::Expected, holder, message, pod.ready_changed_at)
        })
        .collect();
    if missing.is_empty() {
        return vec![controller("has to say that the pod serves", None)];
    }
    missing
}

/// What has to happen before a pod is gone.
fn to_be_gone(pod: &Pod) -> Vec<Blocker> {
    let protections: BTreeSet<&str> = pod.protections().collect();
    let finalizers = pod.finalizers.iter().map(|finalizer| {
        let kind = if protections.contains(finalizer.as_str()) {
            BlockerKind::Protection
        } else {
            BlockerKind::Finalizer
        };
        let message = "whoever added this finalizer has to remove it".to_owned();
        blocker(kind, finalizer, message, pod.deleted_at)
    });
    finalizers.collect()
}

fn controller(what: &str, since: Option<Timestamp>) -> Blocker {
    let name = "longshore controller --enable podops";
    blocker(BlockerKind::Controller, name, what.to_owned(), since)
}

fn blocker(kind: BlockerKind, name: &str, message: String, since: Option<Timestamp>) -> Blocker {
    Blocker {
        kind,
        name: name.to_owned(),
        message,
        since,
    }
}

#[cfg(test)]
mod tests;
