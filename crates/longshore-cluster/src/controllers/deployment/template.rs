//! Which ReplicaSet has which template, and how a new one is named and built. Pure.

use serde_json::{Map, Value, json};

use super::model::{ANNOTATION_DESIRED, ANNOTATION_MAX, ANNOTATION_REVISION, Desired, Set};
use crate::controllers::workloads::template::{canonical, letters};

/// Distinguishes the pods of one template from those of another.
pub(super) const LABEL_HASH: &str = "pod-template-hash";

/// Annotations that a ReplicaSet does not take over from its deployment.
const OWN_ANNOTATIONS: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    "deployment.kubernetes.io/revision-history",
    ANNOTATION_REVISION,
    ANNOTATION_DESIRED,
    ANNOTATION_MAX,
];

/// Whether a ReplicaSet has the template of the deployment, its hash aside.
pub(super) fn is_same(desired: &Desired, set: &Set) -> bool {
    let mut template = canonical(set.0.at("/spec/template"));
    if let Some(labels) = template
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.remove(LABEL_HASH);
    }
    template == canonical(desired.template())
}

/// The hash of the present template. A name that is taken is avoided by counting collisions.
pub(super) fn hash(desired: &Desired) -> String {
    let mut text = canonical(desired.template()).to_string();
    if let Some(n_collisions) = desired.deployment.at("/status/collisionCount").as_i64() {
        text.push_str(&n_collisions.to_string());
    }
    letters(&text)
}

/// The name of the ReplicaSet of the present template.
pub(super) fn set_name(desired: &Desired) -> String {
    format!("{}-{}", desired.deployment.name(), hash(desired))
}

/// The ReplicaSet of the present template.
pub(super) fn build(desired: &Desired, n_replicas: i64, revision: i64) -> Value {
    let hash = hash(desired);
    let mut template = desired.template().clone();
    let labels = &mut template["metadata"]["labels"];
    labels[LABEL_HASH] = json!(hash);
    let mut annotations = inherited(desired);
    annotations.insert(ANNOTATION_REVISION.into(), json!(revision.to_string()));
    for (key, value) in size_annotations(desired) {
        annotations.insert(key.into(), value);
    }
    let mut selector = desired.deployment.at("/spec/selector").clone();
    selector["matchLabels"][LABEL_HASH] = json!(hash);
    let mut spec = json!({
        "replicas": n_replicas, "selector": selector, "template": template,
    });
    let min_ready = desired.deployment.at("/spec/minReadySeconds");
    if !min_ready.is_null() {
        spec["minReadySeconds"] = min_ready.clone();
    }
    json!({
        "metadata": {
            "name": set_name(desired), "labels": spec["template"]["metadata"]["labels"],
            "annotations": annotations, "ownerReferences": [desired.reference()],
        },
        "spec": spec,
    })
}

/// The deployment's annotations that its ReplicaSets show as well.
pub(super) fn inherited(desired: &Desired) -> Map<String, Value> {
    let annotations = desired.deployment.meta.annotations.iter().flatten();
    annotations
        .filter(|(key, _)| !OWN_ANNOTATIONS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect()
}

/// What a ReplicaSet remembers of the deployment's size when it was last scaled.
pub(super) fn size_annotations(desired: &Desired) -> [(&'static str, Value); 2] {
    let n_max = desired.n_replicas + desired.max_surge();
    [
        (ANNOTATION_DESIRED, json!(desired.n_replicas.to_string())),
        (ANNOTATION_MAX, json!(n_max.to_string())),
    ]
}
