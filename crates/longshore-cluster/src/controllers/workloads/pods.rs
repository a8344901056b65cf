//! What the state of a pod means to its controller. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Map, Value, json};

pub(crate) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub(crate) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status.and_then(|it| it.phase.as_deref()).unwrap_or("")
}

/// Whether an init container runs beside the others, as long as the pod does.
pub(crate) fn is_sidecar(init: &Container) -> bool {
    init.restart_policy.as_deref() == Some("Always")
}

pub(crate) fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Neither over nor on its way out: this is what counts as a replica.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed") && !is_deleting(pod)
}

/// Since when the pod is ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|it| it.type_ == "Ready")?;
    let is_ready = ready.status == "True";
    is_ready.then(|| {
        ready
            .last_transition_time
            .as_ref()
            .map_or(Timestamp::MIN, |time| time.0)
    })
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// From when on the pod is available, if it stays ready.
pub(crate) fn available_at(pod: &Pod, min_ready: Duration) -> Option<Timestamp> {
    let since = ready_since(pod)?;
    Some(since.checked_add(min_ready).unwrap_or(Timestamp::MAX))
}

pub(crate) fn is_available(pod: &Pod, min_ready: Duration, now: Timestamp) -> bool {
    available_at(pod, min_ready).is_some_and(|at| at <= now)
}

/// How long until the next of these pods is available.
pub(crate) fn next_available<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    min_ready: Duration,
    now: Timestamp,
) -> Option<Duration> {
    let times = pods.filter_map(|pod| available_at(pod, min_ready));
    let next = times.filter(|at| *at > now).min()?;
    Some(next.duration_since(now).unsigned_abs())
}

/// A pod as a template wants it, controlled by an owner. It has no name yet.
pub(crate) fn from_template(template: &Value, controller: Value) -> Value {
    let mut metadata = Map::new();
    for key in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.pointer(&format!("/metadata/{key}")) {
            metadata.insert(key.into(), value.clone());
        }
    }
    metadata.insert("ownerReferences".into(), json!([controller]));
    json!({"metadata": metadata, "spec": template.get("spec").cloned().unwrap_or_default()})
}

/// Whether a pod has all labels of the template.
pub(crate) fn has_labels_of(pod: &Pod, template: &Value) -> bool {
    let labels = template
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    labels.into_iter().flatten().all(|(key, value)| {
        let present = pod.metadata.labels.as_ref().and_then(|it| it.get(key));
        present.map(String::as_str) == value.as_str()
    })
}
