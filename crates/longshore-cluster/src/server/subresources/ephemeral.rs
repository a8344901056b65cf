//! `pods/ephemeralcontainers`: adds containers to a running pod, and changes nothing else.

use serde_json::Value;

use crate::server::{meta, strategy};

/// The pod with the ephemeral containers of the request `asked`.
pub(crate) fn with_ephemeral_containers(pod: &Value, asked: &Value) -> Value {
    let mut changed = pod.clone();
    if let Some(spec) = asked.get("spec") {
        meta::keep(
            meta::member(&mut changed, "spec"),
            spec,
            "ephemeralContainers",
        );
    }
    strategy::set_pod_defaults(&mut changed["spec"]);
    changed
}
