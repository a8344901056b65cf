//! Pods as a controller makes them, for a floor that makes the same.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

/// A pod as the controller sent it, as far as that can be seen.
pub(crate) fn bare(pod: &Pod) -> Result<Value> {
    let mut pod = serde_json::to_value(pod)?;
    let members = pod.as_object_mut().context("a pod is an object")?;
    members.remove("status");
    if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| ["labels", "annotations"].contains(&key.as_str()));
    }
    if let Some(spec) = members.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|key, _| !["nodeName", "serviceAccount"].contains(&key.as_str()));
    }
    Ok(pod)
}
