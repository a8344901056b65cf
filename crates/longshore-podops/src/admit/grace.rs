//! GraceDelete: the delete of a pod becomes an operation, and is refused until that operation may touch the pod.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::podops::{
    ANNOTATION_DELETE_TIMESTAMP, ANNOTATION_EVICTED_AT, ID_POD_DELETE, LABEL_PREPARING_TO_DELETE,
    LABEL_TO_DELETE, OperationLabel, TYPE_DELETE,
};
use longshore_core::{Patch, PatchKind};
use serde_json::{Map, Value, json};

use super::{Denial, GRACE_DELETE, Request, Verdict};
use crate::{
    config::AdmitConfig,
    model::{Labels, Operation, Pod, parse_stamp, stamp},
};

/// Upstream's words.
const UNDER_WAY: &str = "pod deletion process is underway and being managed by PodOpsLifecycle";
/// Deletes that are repeated sooner write nothing.
const REMEMBERED: Duration = Duration::from_secs(5);

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
        begin: begin(pod, Asked::Delete, request, now),
    }
}

/// An eviction. It is refused with 429 and a time to stay away, which is what whoever drains a node waits for.
pub(super) fn evict(config: &AdmitConfig, pod: &Pod, request: &Request, now: Timestamp) -> Verdict {
    if passes(config, pod) {
        return Verdict::default();
    }
    let denial = Denial {
        code: 429,
        reason: "TooManyRequests".to_owned(),
        message: format!("failed to validate {GRACE_DELETE}, {}", under_way(pod)),
        retry_after_seconds: Some(config.eviction_retry_after_seconds),
    };
    Verdict {
        denial: Some(denial),
        begin: begin(pod, Asked::Evict, request, now),
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The controller shall delete the pod as soon as it may.
    Delete,
    /// Whoever asks comes again, and does it: by name, so that the next pod of that name must not be there yet.
    Evict,
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

/// What begins the operation, together with the label by which others wish for it: upstream leaves the rest to its
/// controller, and writes once more. It names no version: that somebody else writes the pod meanwhile changes nothing
/// about the wish.
fn begin(pod: &Pod, asked: Asked, request: &Request, now: Timestamp) -> Option<Patch> {
    let is_evicted = pod.annotations.contains_key(ANNOTATION_EVICTED_AT);
    let asked_at = pod.annotations.get(ANNOTATION_DELETE_TIMESTAMP);
    let asked_at = asked_at.and_then(|text| parse_stamp(text));
    let is_recent = asked_at
        .and_then(|at| Duration::try_from(now.duration_since(at)).ok())
        .is_some_and(|since| since < REMEMBERED);
    let is_known = pod.labels.contains_key(LABEL_TO_DELETE);
    // Whoever wants it deleted does not wait for those who evict it.
    let is_other = is_evicted && asked == Asked::Delete;
    if request.is_dry_run || (is_known && is_recent && !is_other) {
        return None;
    }
    let now = stamp(now);
    let mut annotations = json!({ANNOTATION_DELETE_TIMESTAMP: now});
    if is_other {
        annotations[ANNOTATION_EVICTED_AT] = Value::Null;
    } else if asked == Asked::Evict && (is_evicted || !is_known) {
        annotations[ANNOTATION_EVICTED_AT] = json!(now);
    }
    let mut metadata = Map::from_iter([("annotations".to_owned(), annotations)]);
    if !is_known {
        let mut labels = begun(&pod.labels, &now);
        labels.insert(LABEL_TO_DELETE.to_owned(), now);
        labels.retain(|key, value| pod.labels.get(key) != Some(value));
        let labels = labels.into_iter().map(|(key, value)| (key, json!(value)));
        metadata.insert("labels".to_owned(), Value::Object(labels.collect()));
    }
    Some(Patch {
        target: pod.target.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        patch: json!({"metadata": metadata}),
    })
}

fn under_way(pod: &Pod) -> String {
    let finalizers: Vec<&str> = pod.protections().collect();
    if finalizers.is_empty() {
        UNDER_WAY.to_owned()
    } else {
        format!("{UNDER_WAY} with finalizers: [{}]", finalizers.join(" "))
    }
}
