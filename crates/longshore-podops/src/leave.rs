//! What has to be taken off pods and PodTransitionRules when the role is uninstalled, so that nothing waits for it any
//! more. Pure.
//!
//! What users wrote stays: `kusionstack.io/control`, `stay-offline`, and the finalizers and annotations of other
//! controllers. Operations that are under way are given up, and their pods serve again.

use jiff::Timestamp;
use longshore_api::podops::{
    ANNOTATION_DELETE_TIMESTAMP, ANNOTATION_EVICTED_AT, ANNOTATION_HELD_UNTIL,
    CONDITION_SERVICE_READY, FINALIZER_PROTECTED, FINALIZER_SERVICES, LABEL_PREPARING_TO_DELETE,
    LABEL_RELEASED, LABEL_SERVICE_AVAILABLE, LABEL_STAY_OFFLINE, LABEL_TO_DELETE, OperationLabel,
    SERVICE_READY_MESSAGE, detail_annotation, is_operation_permission,
};
use longshore_core::{Patch, PatchKind};
use serde_json::{Map, Value, json};

use crate::{
    lifecycle::upon,
    model::{ConditionStatus, Pod, has_prefix},
    rule::Rule,
};

/// What is left of us on a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Left {
    /// What removes it: the gate is opened first, so that a crash in between leaves the pod in service. Each patch is on
    /// condition that the pod is as it was seen; the second one is made anew from the pod that the first one leaves.
    pub patches: Vec<Patch>,
    /// Finalizers of other controllers that protect traffic: they keep a deleted pod until their controllers let go.
    pub protections: Vec<String>,
    /// Whether its gate stays closed, because a user keeps it offline.
    pub stays_offline: bool,
}

/// What is left of us on a pod.
pub fn of_pod(pod: &Pod, now: Timestamp) -> Left {
    let is_ours = |finalizer: &&str| *finalizer == FINALIZER_SERVICES;
    let protections = pod.protections().filter(|it| !is_ours(it));
    let protections = protections.map(str::to_owned).collect();
    let is_closed = pod.has_gate
        && !pod.is_deleting
        && !pod.has_ended
        && pod.service_ready != Some(ConditionStatus::True);
    let stays_offline = is_closed && pod.labels.contains_key(LABEL_STAY_OFFLINE);
    let opened = (is_closed && !stays_offline).then(|| open(pod, now));
    let cleaned = clean(pod);
    Left {
        patches: opened.into_iter().chain(cleaned).collect(),
        protections,
        stays_offline,
    }
}

fn open(pod: &Pod, now: Timestamp) -> Patch {
    let condition = json!({
        "type": CONDITION_SERVICE_READY,
        "status": "True",
        "message": SERVICE_READY_MESSAGE,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    Patch {
        subresource: Some("status"),
        kind: PatchKind::Strategic,
        ..upon(pod, json!({"status": {"conditions": [condition]}}))
    }
}

/// Removes labels, annotations and the finalizer with one write.
fn clean(pod: &Pod) -> Option<Patch> {
    let mut metadata = Map::new();
    let labels = pod.labels.keys().filter(|key| is_our_label(key));
    let annotations = pod.annotations.keys().filter(|key| is_our_annotation(key));
    for (field, removed) in [
        ("labels", nulls(labels)),
        ("annotations", nulls(annotations)),
    ] {
        if !removed.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(removed));
        }
    }
    let mut finalizers = pod.finalizers.clone();
    finalizers.retain(|finalizer| finalizer != FINALIZER_SERVICES);
    if finalizers != pod.finalizers {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
    (!metadata.is_empty()).then(|| upon(pod, json!({"metadata": metadata})))
}

fn nulls<'a>(keys: impl Iterator<Item = &'a String>) -> Map<String, Value> {
    keys.map(|key| (key.clone(), Value::Null)).collect()
}

/// Whether the label is one of an operation, of a deletion, or a mark of ours.
pub(crate) fn is_our_label(key: &str) -> bool {
    let whole = [
        LABEL_SERVICE_AVAILABLE,
        LABEL_PREPARING_TO_DELETE,
        LABEL_TO_DELETE,
        LABEL_RELEASED,
    ];
    whole.contains(&key) || has_prefix(key, &OperationLabel::ALL) || is_operation_permission(key)
}

/// Whether the annotation is of a deletion or an eviction, or says what a rule has found.
pub(crate) fn is_our_annotation(key: &str) -> bool {
    let whole = [
        ANNOTATION_DELETE_TIMESTAMP,
        ANNOTATION_EVICTED_AT,
        ANNOTATION_HELD_UNTIL,
    ];
    whole.contains(&key) || key.starts_with(&detail_annotation(""))
}

/// The removal of our finalizer from a rule, upon the version that was seen; `None` where the rule does not carry it.
pub fn of_rule(rule: &Rule) -> Option<Patch> {
    let mut kept = rule.finalizers.clone();
    kept.retain(|finalizer| finalizer != FINALIZER_PROTECTED);
    (kept != rule.finalizers).then(|| Patch {
        target: rule.target.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        patch: json!({"metadata": {
            "finalizers": kept, "resourceVersion": rule.resource_version,
        }}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(labels: Value, finalizers: Value, gate: &str) -> Pod {
        Pod::of(&json!({
            "metadata": {
                "name": "web-0", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "labels": labels, "finalizers": finalizers,
                "annotations": {"a": "b", "detail.podtransitionrule.kusionstack.io/r": "{}"},
            },
            "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
            "status": {"conditions": [{"type": CONDITION_SERVICE_READY, "status": gate}]},
        }))
        .unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-23T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_pod_in_an_operation_serves_again_and_keeps_what_others_wrote() {
        let labels = json!({
            "app": "web", "kusionstack.io/control": "true", LABEL_TO_DELETE: "1",
            LABEL_RELEASED: "1",
            "operating.podopslifecycle.kusionstack.io/pod-delete": "1",
            "operation-permission.podopslifecycle.kusionstack.io/delete": "1",
        });
        let other = "prot.podopslifecycle.kusionstack.io/table";
        let left = of_pod(
            &pod(labels, json!([other, FINALIZER_SERVICES]), "False"),
            now(),
        );
        assert_eq!(left.protections, [other]);
        let [open, clean] = left.patches.as_slice() else {
            panic!("{left:?}");
        };
        assert_eq!(open.subresource, Some("status"));
        assert_eq!(
            clean.patch,
            json!({"metadata": {
                "resourceVersion": "7",
                "finalizers": [other],
                "annotations": {"detail.podtransitionrule.kusionstack.io/r": null},
                "labels": {
                    LABEL_TO_DELETE: null,
                    LABEL_RELEASED: null,
                    "operating.podopslifecycle.kusionstack.io/pod-delete": null,
                    "operation-permission.podopslifecycle.kusionstack.io/delete": null,
                },
            }})
        );
    }

    #[test]
    fn a_pod_that_a_user_keeps_offline_stays_offline_and_is_named() {
        let labels = json!({"kusionstack.io/control": "true", LABEL_STAY_OFFLINE: "1"});
        let left = of_pod(&pod(labels, json!([]), "False"), now());
        assert!(left.stays_offline);
        assert!(left.patches.iter().all(|patch| patch.subresource.is_none()));
    }

    #[test]
    fn nothing_is_written_to_a_pod_that_has_nothing_of_ours() {
        let mut pod = pod(
            json!({"kusionstack.io/control": "true"}),
            json!(["x/y"]),
            "True",
        );
        pod.annotations.clear();
        assert_eq!(of_pod(&pod, now()), Left::default());
    }

    #[test]
    fn a_rule_loses_our_finalizer_only() {
        let rule = |finalizers: Value| {
            Rule::of(&json!({"metadata": {
                "name": "r", "namespace": "shop", "resourceVersion": "3", "finalizers": finalizers,
            }}))
            .unwrap()
        };
        let patch = of_rule(&rule(json!(["x/y", FINALIZER_PROTECTED]))).unwrap();
        assert_eq!(
            patch.patch,
            json!({"metadata": {"finalizers": ["x/y"], "resourceVersion": "3"}})
        );
        assert_eq!(of_rule(&rule(json!(["x/y"]))), None);
    }
}
