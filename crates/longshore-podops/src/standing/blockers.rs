//! What holds a pod where it stands. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, ANNOTATION_EVICTED_AT, ANNOTATION_PROTECTION_DEADLINE,
    ANNOTATION_SKIP_RULES, CONDITION_SERVICE_READY, FINALIZER_SERVICES, ID_POD_DELETE,
    LABEL_STAY_OFFLINE, OperationLabel, Stage,
};

use super::{Blocker, BlockerKind, Phase};
use crate::{
    admit::grace::held,
    lifecycle::{RuleSays, held_by, protection_deadline, waits_for_type, what_to_do},
    model::{ConditionStatus, Operation, Operations, Pod, parse_stamp},
    rule::skipped_rules,
};

/// What is seen around an operation.
pub(super) struct Around<'a> {
    pub(super) pod: &'a Pod,
    pub(super) operations: &'a Operations,
    pub(super) rules: &'a [RuleSays],
}

impl Around<'_> {
    /// What holds an operation in its phase.
    pub(super) fn hold(
        &self,
        id: &str,
        operation: &Operation,
        phase: Phase,
        since: Option<Timestamp>,
    ) -> Vec<Blocker> {
        if waits_for_type(operation) {
            return vec![blocker(BlockerKind::Untyped, id, what_to_do(id), since)];
        }
        match phase {
            Phase::PreCheck => self.rules(Stage::PreCheck, since),
            Phase::PostCheck => self.rules(Stage::PostCheck, since),
            Phase::Preparing => self.traffic(since),
            Phase::Operating if !operation.has(OperationLabel::Operating) => self.others(),
            Phase::Operating if id == ID_POD_DELETE => {
                let is_evicted = self.pod.annotations.contains_key(ANNOTATION_EVICTED_AT);
                let what = if held(self.pod).is_some() {
                    "gives the client whose delete is held some time to delete the pod, and then deletes it"
                } else if is_evicted {
                    "gives the client that evicts the pod some time to do it, and then evicts it"
                } else {
                    "has to delete the pod"
                };
                vec![controller(what, since)]
            }
            Phase::Operating => {
                let message = format!(
                    "has to remove the label {}",
                    OperationLabel::Operating.of(id)
                );
                vec![blocker(BlockerKind::Operator, id, message, since)]
            }
            Phase::Completing => {
                let mut held = self.others();
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
        let mut held = held;
        // The annotation may have been meant to skip the very rule that holds the pod.
        held.extend(
            skipped_rules(self.pod)
                .err()
                .map(|error| invalid(ANNOTATION_SKIP_RULES, &error)),
        );
        held
    }

    fn traffic(&self, since: Option<Timestamp>) -> Vec<Blocker> {
        if self.pod.has_gate && self.pod.service_ready != Some(ConditionStatus::False) {
            let what = format!("has to set the condition {CONDITION_SERVICE_READY} to False");
            return vec![controller(&what, since)];
        }
        let protections = self.pod.protections().map(|finalizer| {
            let message = if finalizer == FINALIZER_SERVICES {
                "the pod has left the EndpointSlices of its Services or is about to, and its traffic drains"
            } else {
                "the controller that routes traffic to the pod has to remove this finalizer"
            };
            let message = message.to_owned();
            blocker(BlockerKind::Protection, finalizer, message, since)
        });
        let held: Vec<Blocker> = protections.collect();
        if held.is_empty() {
            return vec![controller("has to write the pod once more", since)];
        }
        let mut held = held;
        let deadline = protection_deadline(self.pod).err();
        held.extend(deadline.map(|error| invalid(ANNOTATION_PROTECTION_DEADLINE, &error)));
        held
    }

    /// Nothing ends before all are done. Each of the others holds the pod since it has begun itself.
    fn others(&self) -> Vec<Blocker> {
        let others = self.operations.iter();
        let at_work = others.filter(|(_, other)| other.has(OperationLabel::Operating));
        at_work
            .map(|(other, labels)| {
                let message = "has to end first: operations on a pod complete together";
                let since = labels.get(OperationLabel::Operating).and_then(parse_stamp);
                blocker(BlockerKind::Operation, other, message.to_owned(), since)
            })
            .collect()
    }
}

/// What has to happen before a pod serves.
pub(super) fn to_serve(pod: &Pod) -> Vec<Blocker> {
    if let Some(since) = pod.labels.get(LABEL_STAY_OFFLINE) {
        let message = "a person has to remove this label".to_owned();
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
            return vec![invalid(ANNOTATION_AVAILABLE_CONDITIONS, &error.to_string())];
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
pub(super) fn to_be_gone(pod: &Pod) -> Vec<Blocker> {
    let protections: BTreeSet<&str> = pod.protections().collect();
    let finalizers = pod.finalizers.iter().map(|finalizer| {
        let kind = if protections.contains(finalizer.as_str()) {
            BlockerKind::Protection
        } else {
            BlockerKind::Finalizer
        };
        let message = "the client that added this finalizer has to remove it".to_owned();
        blocker(kind, finalizer, message, pod.deleted_at)
    });
    finalizers.collect()
}

/// What an annotation says cannot be followed.
fn invalid(annotation: &str, why: &str) -> Blocker {
    blocker(BlockerKind::Invalid, annotation, why.to_owned(), None)
}

fn controller(what: &str, since: Option<Timestamp>) -> Blocker {
    let name = "longshore controller --enable podops";
    blocker(BlockerKind::Controller, name, what.to_owned(), since)
}

pub(super) fn blocker(
    kind: BlockerKind,
    name: &str,
    message: String,
    since: Option<Timestamp>,
) -> Blocker {
    Blocker {
        kind,
        name: name.to_owned(),
        message,
        since,
    }
}
