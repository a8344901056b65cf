//! GraceDelete: the delete of a pod becomes an operation, and is refused until that operation may touch the pod. An
//! eviction is only noted: the controller begins the operation when the disruption budgets of the pod have room for it.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::podops::{
    ANNOTATION_DELETE_TIMESTAMP, ANNOTATION_EVICTED_AT, ANNOTATION_HELD_UNTIL, CONTROLLED,
    ID_POD_DELETE, LABEL_CONTROL, LABEL_PREPARING_TO_DELETE, LABEL_TO_DELETE, OperationLabel,
    TYPE_DELETE,
};
use longshore_core::{Patch, PatchKind};
use serde_json::{Value, json};

use super::{Denial, GRACE_DELETE, Request, Verdict};
use crate::{
    config::{AdmitConfig, MAX_HOLD},
    eviction::{Budget, can_be_past, evicted_at, is_overdue, is_waiting},
    model::{Labels, Operation, Pod, parse_stamp, stamp},
};

/// Upstream's words.
const UNDER_WAY: &str = "pod deletion process is underway and being managed by PodOpsLifecycle";
/// Deletes that are repeated sooner write nothing.
const REMEMBERED: Duration = Duration::from_secs(5);
/// An eviction that is still asked for after this time is noted again, so that it is not forgotten.
const NOTED_AGAIN: Duration = Duration::from_secs(30);
/// How long the controller leaves a pod alone after the delete that is held for it had to be answered.
const AFTER_HOLD: Duration = Duration::from_secs(2);

/// A delete. It is refused with 403, as upstream does: controllers of workloads take it for one that failed and try
/// again.
pub(super) fn delete(
    config: &AdmitConfig,
    pod: &Pod,
    request: &Request,
    now: Timestamp,
) -> Verdict {
    let is_forced = request.options["gracePeriodSeconds"] == 0;
    if passes(config, pod) || (is_forced && config.force_delete_passes) {
        return Verdict::default();
    }
    Verdict {
        denial: Some(Denial::by(GRACE_DELETE, under_way(pod))),
        begin: begin(pod, request, now, config.hold_deletes),
    }
}

/// An eviction. It is refused with 429 and a retry time, which a client that drains a node expects. Where a budget
/// holds the pod, the answer has no such time, as the API server's own: clients of Go would retry ten times by
/// themselves, and kubectl could neither say why it waits nor end in time.
///
/// A dry run is answered as the real one ends: by the API server, which holds the budget of the pod against it. If it
/// were refused like the first real one, the client would retry for ever, because a dry run begins no operation.
///
/// `budgets` are those of the pod, where they were looked up.
pub(super) fn evict(
    config: &AdmitConfig,
    pod: &Pod,
    budgets: &[Budget],
    request: &Request,
    now: Timestamp,
) -> Verdict {
    if passes(config, pod) || is_of_another(pod, &request.object) || request.is_dry() {
        return Verdict::default();
    }
    let is_under_way = is_begun(&Operation::of(&pod.labels, ID_POD_DELETE));
    let selecting = budgets.iter().filter(|budget| budget.selects(pod));
    let selecting: Vec<&Budget> = selecting.collect();
    let has_room = selecting.iter().all(|budget| budget.has_room_for(pod, now));
    let is_stuck = !selecting.is_empty() && is_overdue(pod, now);
    let is_held = !is_under_way && (!has_room || is_stuck);
    let why = if is_under_way {
        under_way(pod)
    } else {
        waits_for(pod, &selecting, now)
    };
    let denial = Denial {
        code: 429,
        reason: "TooManyRequests".to_owned(),
        message: format!("failed to validate {GRACE_DELETE}, {why}"),
        retry_after_seconds: (!is_held).then_some(config.eviction_retry_after_seconds),
    };
    let is_noted = is_under_way || is_noted(pod, now);
    Verdict {
        denial: Some(denial),
        begin: (!is_noted).then(|| note(pod, now)),
    }
}

/// Whether the eviction of a pod waits for its budgets, which are worth looking up.
pub(super) fn is_held(config: &AdmitConfig, pod: &Pod, now: Timestamp) -> bool {
    !passes(config, pod) && is_waiting(pod, now)
}

/// The eviction names an incarnation, and this is another one: API servers say so, and nothing of this pod is noted.
fn is_of_another(pod: &Pod, eviction: &Value) -> bool {
    let meant = eviction.pointer("/deleteOptions/preconditions/uid");
    let meant = meant.and_then(Value::as_str);
    meant.is_some_and(|meant| pod.target.uid.as_deref() != Some(meant))
}

/// Whether it is on record that the eviction is wanted, for long enough from now on.
fn is_noted(pod: &Pod, now: Timestamp) -> bool {
    let evicted_at = evicted_at(pod).filter(|at| can_be_past(*at, now));
    let since = evicted_at.map(|at| Duration::try_from(now.duration_since(at)));
    since.is_some_and(|since| since.unwrap_or_default() < NOTED_AGAIN)
}

/// Notes that the eviction of this incarnation is wanted. The patch names no version: several replicas may write it at
/// once, and other writes in between do not change what is wanted. A pod that has lost its label since it was read is
/// left as it is: no controller would remove the mark from it.
fn note(pod: &Pod, now: Timestamp) -> Patch {
    let mut change = Change::of(pod);
    change.annotate(ANNOTATION_EVICTED_AT, Some(&stamp(now)));
    change.patch(pod)
}

/// What an eviction waits for that has not begun.
fn waits_for(pod: &Pod, budgets: &[&Budget], now: Timestamp) -> String {
    const NOTED: &str = "the eviction is noted, and begins as soon as the disruption budgets of the pod have room for it";
    const NOT_BEGUN: &str = "the disruption controller counts room for it: other operations have taken the room, or no \
                             disruption could be reserved, or the operation could not begin; longshore pods explain and the Events of the pod say more";
    let lacking = budgets
        .iter()
        .filter(|budget| !budget.has_room_for(pod, now));
    let lacking: Vec<String> = lacking.map(|budget| budget.says_to(pod, now)).collect();
    if !lacking.is_empty() {
        return format!("{NOTED}: {}", lacking.join("; "));
    }
    let noted_at = evicted_at(pod).filter(|_| is_overdue(pod, now));
    match noted_at.filter(|_| !budgets.is_empty()) {
        None => NOTED.to_owned(),
        Some(at) => {
            let says: Vec<String> = budgets.iter().map(|it| it.says_of_status()).collect();
            let (at, says) = (at.strftime("%Y-%m-%dT%H:%M:%SZ"), says.join("; "));
            format!(
                "the eviction was noted at {at}, and has not begun although {NOT_BEGUN}: {says}"
            )
        }
    }
}

/// Whether a pod may go now. One that is terminating already must be let go: its node has to remove it. One that runs
/// no more has no traffic to lose, and one without our readiness gate was never protected.
fn passes(config: &AdmitConfig, pod: &Pod) -> bool {
    let may_go = pod.is_deleting || pod.has_ended || !pod.has_gate;
    !config.grace_delete || !pod.is_controlled() || may_go || may_delete(pod)
}

/// Whether the operation that deletes this pod may touch it.
pub fn may_delete(pod: &Pod) -> bool {
    let operation = Operation::of(&pod.labels, ID_POD_DELETE);
    is_begun(&operation) && operation.has(OperationLabel::Operate)
}

/// Whether the operation that deletes a pod has begun.
pub(crate) fn is_begun(operation: &Operation) -> bool {
    let operation_type = operation.get(OperationLabel::OperationType);
    operation.has(OperationLabel::Operating) && operation_type == Some(TYPE_DELETE)
}

/// These labels, with those of the operation that deletes a pod.
pub(crate) fn begun(labels: &Labels, now: &str) -> Labels {
    let mut labels = labels.clone();
    let operating = OperationLabel::Operating.of(ID_POD_DELETE);
    labels.entry(operating).or_insert_with(|| now.to_owned());
    let operation_type = OperationLabel::OperationType.of(ID_POD_DELETE);
    labels.insert(operation_type, TYPE_DELETE.to_owned());
    let hint = LABEL_PREPARING_TO_DELETE.to_owned();
    labels.entry(hint).or_insert_with(|| now.to_owned());
    labels
}

/// The patch that begins the operation, together with the label by which other clients ask for it: upstream leaves the
/// rest to its controller, which writes once more. The patch names no version: another client's write in between does
/// not change what is wanted. It names the uid: an earlier review of another pod of this name means nothing for this
/// one.
///
/// A client whose delete is held deletes the pod itself: an annotation says until when the controller leaves the pod to
/// it.
fn begin(pod: &Pod, request: &Request, now: Timestamp, hold: Option<Duration>) -> Option<Patch> {
    let held_until = hold.and_then(|hold| now.checked_add(hold + AFTER_HOLD).ok());
    let is_longer = held_until.is_some_and(|until| held(pod).is_none_or(|known| known < until));
    let asked_at = pod.annotations.get(ANNOTATION_DELETE_TIMESTAMP);
    let asked_at = asked_at.and_then(|text| parse_stamp(text));
    let is_recent = asked_at
        .and_then(|at| Duration::try_from(now.duration_since(at)).ok())
        .is_some_and(|since| since < REMEMBERED);
    let is_known = pod.labels.contains_key(LABEL_TO_DELETE);
    // A delete waits neither for the clients that evict the pod nor for its budgets.
    let is_evicted = pod.annotations.contains_key(ANNOTATION_EVICTED_AT);
    if request.is_dry() || (is_known && is_recent && !is_evicted && !is_longer) {
        return None;
    }
    let now = stamp(now);
    let mut change = Change::of(pod);
    change.annotate(ANNOTATION_DELETE_TIMESTAMP, Some(&now));
    if is_evicted {
        change.annotate(ANNOTATION_EVICTED_AT, None);
    }
    if let Some(until) = held_until.filter(|_| is_longer) {
        change.annotate(ANNOTATION_HELD_UNTIL, Some(&stamp(until)));
    }
    if !is_known {
        let mut labels = begun(&pod.labels, &now);
        labels.insert(LABEL_TO_DELETE.to_owned(), now);
        labels.retain(|key, value| pod.labels.get(key) != Some(value));
        for (key, value) in &labels {
            change.label(key, value);
        }
    }
    Some(change.patch(pod))
}

/// A change of a pod that was seen in a review or read for one: a JSON patch that the API server applies only to that very
/// pod, and only while that pod takes part. A review of an earlier pod of the same name therefore changes nothing.
struct Change(Vec<Value>);

impl Change {
    fn of(pod: &Pod) -> Self {
        let mut operations = vec![
            json!({"op": "test", "path": "/metadata/uid", "value": pod.target.uid}),
            json!({"op": "test", "path": path("labels", LABEL_CONTROL), "value": CONTROLLED}),
        ];
        if pod.annotations.is_empty() {
            // Annotations that another client added since then must not be lost.
            let annotations = "/metadata/annotations";
            operations.push(json!({"op": "test", "path": annotations, "value": null}));
            operations.push(json!({"op": "add", "path": annotations, "value": {}}));
        }
        Self(operations)
    }

    /// Writes an annotation; removes one that the pod has where there is no value.
    fn annotate(&mut self, key: &str, value: Option<&str>) {
        let path = path("annotations", key);
        self.0.push(match value {
            Some(value) => json!({"op": "add", "path": path, "value": value}),
            None => json!({"op": "remove", "path": path}),
        });
    }

    fn label(&mut self, key: &str, value: &str) {
        let path = path("labels", key);
        self.0
            .push(json!({"op": "add", "path": path, "value": value}));
    }

    fn patch(self, pod: &Pod) -> Patch {
        Patch {
            target: pod.target.clone(),
            subresource: None,
            kind: PatchKind::Json,
            patch: Value::Array(self.0),
        }
    }
}

/// The JSON pointer of a label or an annotation.
fn path(of: &str, key: &str) -> String {
    format!(
        "/metadata/{of}/{}",
        key.replace('~', "~0").replace('/', "~1")
    )
}

/// Until when a delete of this pod is held. The patch that says so also says when the delete was asked for. A later end
/// than a hold can have counts as none: no webhook of ours has written it.
pub(crate) fn held(pod: &Pod) -> Option<Timestamp> {
    let read = |key: &str| parse_stamp(pod.annotations.get(key)?);
    let (asked_at, until) = (
        read(ANNOTATION_DELETE_TIMESTAMP)?,
        read(ANNOTATION_HELD_UNTIL)?,
    );
    let latest = asked_at.checked_add(MAX_HOLD + AFTER_HOLD).ok()?;
    (until <= latest).then_some(until)
}

fn under_way(pod: &Pod) -> String {
    let finalizers: Vec<&str> = pod.protections().collect();
    if finalizers.is_empty() {
        UNDER_WAY.to_owned()
    } else {
        format!("{UNDER_WAY} with finalizers: [{}]", finalizers.join(" "))
    }
}
