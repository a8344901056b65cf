//! Pieces that all statuses of workloads are made of. Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A number as statuses have it: left out when it is 0.
pub(crate) fn count(n: usize) -> Value {
    if n == 0 { Value::Null } else { json!(n) }
}

/// What a merge patch must say to turn one status into another; `None` when they are the same.
pub(crate) fn merge_status(present: &Value, wanted: Map<String, Value>) -> Option<Value> {
    let mut change = wanted;
    change.retain(|key, value| present.get(key).unwrap_or(&Value::Null) != value);
    (!change.is_empty()).then(|| change.into())
}

/// Kubernetes' times have whole seconds.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
