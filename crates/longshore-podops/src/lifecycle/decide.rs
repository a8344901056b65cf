//! What the controller writes about the lifecycle of a pod.
//!
//! At most one write a round, each on condition that no other client wrote since: every write goes through the state
//! machine of [`advance`], and what follows is decided upon what came of it. A crash in between loses nothing, because
//! the labels say how far everything is.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use longshore_api::podops::{
    CONDITION_SERVICE_READY, Detail, ID_POD_DELETE, LABEL_SERVICE_AVAILABLE, LABEL_STAY_OFFLINE,
    OperationLabel, REASON_INVALID_LIFECYCLE, REASON_SERVICE_READY, SERVICE_READY_MESSAGE, Stage,
    operation_permission,
};
use longshore_core::{
    Action, Announcement, EventType, Never, Next, ObjectRef, Patch, PatchKind, Plan, Seen,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{blocked, clean, idle, untyped};
use crate::{
    admit::advance::advance,
    eviction::{Budget, keeps_reservations, may_leave},
    model::{ConditionStatus, Labels, Namespace, Operation, Operations, Pod, stamp},
    traffic::Traffic,
};

/// What is done about a pod.
pub type PodPlan = Plan<Never, PodEffect>;

/// What is done about a pod beside writing it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PodEffect {
    /// The controller evicts this incarnation of the pod.
    Evict(ObjectRef),
}

/// A snapshot of all that a round about a pod reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The current instant.
    pub now: Timestamp,
    /// The pod.
    pub pod: Seen<Pod>,
    /// The PodTransitionRules that are about it.
    pub rules: Seen<Vec<RuleSays>>,
    /// The selectors of the Services that hold finalizers which the pod lacks and is expected to have, by holder, as
    /// the annotation writes it.
    pub services: BTreeMap<String, Seen<Labels>>,
    /// The disruption budgets of its namespace, where it is evicted and the operation has begun; `Absent` otherwise,
    /// and where the controller does not watch budgets.
    pub budgets: Seen<Vec<Budget>>,
    /// What becomes of its namespace, where pods are deleted by operations.
    pub namespace: Namespace,
    /// What routes traffic to it; `Absent` where Services protect no pods.
    pub traffic: Seen<Traffic>,
    /// How long operations wait for the finalizers that protect traffic, unless the pod says otherwise; `None`: for
    /// ever.
    pub deadline: Option<Duration>,
}

/// What a PodTransitionRule says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSays {
    /// Its name.
    pub rule: String,
    /// What it says; `None` where it has not looked at the pod.
    pub detail: Option<Detail>,
}

/// Whether a pod may leave its stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every rule has passed.
    Passed,
    /// These rules hold it, each with what it says.
    Held(Vec<String>),
}

impl Verdict {
    /// What these rules say of a pod in this stage. A rule that has not looked at the pod yet holds it.
    pub fn of(rules: &[RuleSays], stage: Stage) -> Self {
        let held: Vec<String> = rules
            .iter()
            .filter_map(|says| held_by(says, stage))
            .collect();
        if held.is_empty() {
            Self::Passed
        } else {
            Self::Held(held)
        }
    }
}

/// Why a rule holds a pod in this stage; `None` where it has passed.
pub(crate) fn held_by(says: &RuleSays, stage: Stage) -> Option<String> {
    let detail = says.detail.as_ref();
    match detail.filter(|detail| detail.stage == stage.as_str()) {
        Some(detail) if detail.passed => None,
        Some(detail) => {
            let reasons = detail.reject_info.iter();
            let reasons: Vec<_> = reasons
                .map(|info| format!("{}: {}", info.rule_name, info.reason))
                .collect();
            Some(format!("{}: {}", says.rule, reasons.join("; ")))
        }
        None => Some(format!(
            "waiting for podtransitionrule {} processing",
            says.rule
        )),
    }
}

/// Decides about one pod.
pub fn decide(observed: &Observed) -> PodPlan {
    let pod = match &observed.pod {
        Seen::Present(pod) if pod.is_controlled() => pod,
        Seen::Present(_) | Seen::Absent => return Plan::await_change(),
        Seen::Unknown(_) => return look_again(),
    };
    if pod.is_deleting {
        return blocked::decide(pod, pod.deleted_at, observed);
    }
    let operations = match Operations::of(&pod.labels) {
        Ok(operations) => operations,
        Err(invalid) => return complain(pod, invalid.to_string()),
    };
    // No operation may be permitted before the condition says whether the pod serves: without it no operation waits for
    // traffic.
    if pod.has_gate && pod.service_ready.is_none() {
        let status = if stays_offline(pod) {
            ConditionStatus::False
        } else {
            ConditionStatus::True
        };
        return set_gate(pod, status, observed.now);
    }
    if let Some(labels) = clean::without_left_overs(&pod.labels, &operations) {
        return relabel(pod, &labels);
    }
    if operations.is_empty() && !stays_offline(pod) {
        return idle::decide(pod, observed);
    }
    match pass_rules(&operations, observed) {
        Seen::Unknown(_) => return look_again(),
        Seen::Present(labels) => return relabel(pod, &labels),
        Seen::Absent => {}
    }
    let wanted = wanted_gate(&operations).filter(|it| {
        // The end of an operation does not bring a pod into service that a person keeps out of it.
        *it == ConditionStatus::False || !stays_offline(pod)
    });
    if let Some(status) = wanted.filter(|it| pod.service_ready != Some(*it)) {
        return match awaits_budgets(pod, status, observed) {
            Seen::Unknown(_) => look_again(),
            Seen::Present(()) => Plan::await_change(),
            Seen::Absent => set_gate(pod, status, observed.now),
        };
    }
    let plan = rest(pod, observed.now);
    if !plan.actions.is_empty() {
        return plan;
    }
    let plan = blocked::decide(pod, blocked::prepares_since(&operations), observed);
    if !plan.actions.is_empty() {
        return plan;
    }
    let untyped = untyped::decide(pod, &operations, observed.now);
    Plan {
        next: plan.next.min(untyped.next),
        ..untyped
    }
}

/// Whether a person keeps the pod out of service.
pub(crate) fn stays_offline(pod: &Pod) -> bool {
    pod.labels.contains_key(LABEL_STAY_OFFLINE)
}

/// Nothing else is to be done: what a pod that serves no more must not say, and what the state machine has left for
/// the next write.
pub(super) fn rest(pod: &Pod, now: Timestamp) -> PodPlan {
    if !pod.is_ready && pod.is_available() {
        let mut labels = pod.labels.clone();
        labels.remove(LABEL_SERVICE_AVAILABLE);
        return relabel(pod, &labels);
    }
    match advance(pod, &pod.labels, now) {
        Err(error) => complain(pod, error.to_string()),
        Ok(labels) if labels != pod.labels => relabel(pod, &labels),
        Ok(_) => Plan::await_change(),
    }
}

/// The labels of a pod whose rules have passed; `Absent` where there is nothing to pass.
fn pass_rules(operations: &Operations, observed: &Observed) -> Seen<Labels> {
    let Seen::Present(pod) = &observed.pod else {
        return Seen::Absent;
    };
    let stage = if operations.any(OperationLabel::PreCheck) {
        Stage::PreCheck
    } else if operations.any(OperationLabel::PostCheck) {
        Stage::PostCheck
    } else {
        return Seen::Absent;
    };
    let rules = match &observed.rules {
        Seen::Present(rules) => rules.as_slice(),
        Seen::Absent => &[],
        Seen::Unknown(why) => return Seen::Unknown(why.clone()),
    };
    if Verdict::of(rules, stage) != Verdict::Passed {
        return Seen::Absent;
    }
    let now = stamp(observed.now);
    let mut labels = pod.labels.clone();
    let mut set = |key: String| {
        labels.entry(key).or_insert_with(|| now.clone());
    };
    for (id, operation) in operations.iter() {
        match stage {
            Stage::PreCheck => {
                if let Some(of) = operation.wanted_type() {
                    set(operation_permission(of));
                    set(OperationLabel::PreChecked.of(id));
                }
            }
            // Upstream marks operations that have yet to be operated on as well, and loses track of them.
            Stage::PostCheck if operation.has(OperationLabel::PostCheck) => {
                set(OperationLabel::PostChecked.of(id));
            }
            Stage::PostCheck => {}
        }
    }
    if labels == pod.labels {
        Seen::Absent
    } else {
        Seen::Present(labels)
    }
}

/// What the gate has to be while there are operations; `None` where it stays as it is.
///
/// The gate opens for operations that complete, but not while another one prepares or works: upstream opens it then.
fn wanted_gate(operations: &Operations) -> Option<ConditionStatus> {
    let is_at_work = |operation: &Operation| {
        let is_granted = operation.has(OperationLabel::Operate);
        let is_checked = operation.has(OperationLabel::Completing);
        is_granted || (operation.has(OperationLabel::Operated) && !is_checked)
    };
    if operations.any(OperationLabel::Preparing) {
        Some(ConditionStatus::False)
    } else if operations
        .iter()
        .any(|(_, operation)| is_at_work(operation))
    {
        None
    } else {
        let completes = operations.any(OperationLabel::Completing);
        completes.then_some(ConditionStatus::True)
    }
}

/// Whether a pod has to wait for its budgets before its gate is set: `Present` where one of them holds it.
///
/// An operation that begins for an eviction has its disruptions reserved. They end where no controller has run for a
/// while, and may have gone to other pods: then the pod serves until they are reserved anew. A budget may have been
/// raised, or not be counted any more: then the pod serves until the budget has room. A pod without service that its
/// budget does not let go would neither serve nor be replaced.
fn awaits_budgets(pod: &Pod, gate: ConditionStatus, observed: &Observed) -> Seen<()> {
    let prepares = Operation::of(&pod.labels, ID_POD_DELETE).has(OperationLabel::Preparing);
    let goes_out = gate == ConditionStatus::False && prepares && keeps_reservations(pod);
    if !goes_out || observed.namespace == Namespace::Goes {
        return Seen::Absent;
    }
    match &observed.budgets {
        Seen::Present(budgets) if may_leave(pod, budgets, observed.now) => Seen::Absent,
        Seen::Present(_) => Seen::Present(()),
        Seen::Absent => Seen::Absent,
        Seen::Unknown(why) => Seen::Unknown(why.clone()),
    }
}

pub(crate) fn look_again<E>() -> Plan<Never, E> {
    Plan::after(crate::LOOK_AGAIN)
}

/// Publishes what a person has to repair on the pod.
pub(super) fn complain(pod: &Pod, note: String) -> PodPlan {
    Plan::of(vec![warn(pod, REASON_INVALID_LIFECYCLE, note)])
}

/// Publishes a warning Event about a pod.
pub(crate) fn warn(pod: &Pod, reason: &'static str, note: String) -> Action<Never, PodEffect> {
    Action::Announce(Announcement {
        regarding: pod.target.clone(),
        event_type: EventType::Warning,
        reason,
        note,
    })
}

/// Says whether the pod may serve.
pub(super) fn set_gate<E>(pod: &Pod, status: ConditionStatus, now: Timestamp) -> Plan<Never, E> {
    let status = match status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    };
    let condition = json!({
        "type": CONDITION_SERVICE_READY,
        "status": status,
        "message": SERVICE_READY_MESSAGE,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    let verb = match pod.service_ready {
        None => "append",
        Some(_) => "update",
    };
    let patch = Patch {
        subresource: Some("status"),
        kind: PatchKind::Strategic,
        ..upon(pod, json!({"status": {"conditions": [condition]}}))
    };
    let announcement = Announcement {
        regarding: pod.target.clone(),
        event_type: EventType::Normal,
        reason: REASON_SERVICE_READY,
        note: format!("{verb} service readiness gate to: {status}"),
    };
    Plan {
        actions: vec![Action::Patch(patch), Action::Announce(announcement)],
        next: Next::AwaitChange,
    }
}

/// Gives a pod these labels instead of those that it has.
pub(crate) fn relabel<E>(pod: &Pod, labels: &Labels) -> Plan<Never, E> {
    let mut changes = Map::new();
    for (key, value) in labels {
        if pod.labels.get(key) != Some(value) {
            changes.insert(key.clone(), json!(value));
        }
    }
    for key in pod.labels.keys().filter(|key| !labels.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    Plan::of(vec![Action::Patch(upon(
        pod,
        json!({"metadata": {"labels": changes}}),
    ))])
}

/// A change of the pod as it was seen.
pub(crate) fn upon(pod: &Pod, mut patch: Value) -> Patch {
    if let Some(version) = &pod.resource_version {
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    Patch {
        target: pod.target.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        patch,
    }
}
