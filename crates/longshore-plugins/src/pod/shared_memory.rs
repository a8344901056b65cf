//! Memory that the processes of a task share: a volume in memory.

use longshore_k8s::Quantity;
use longshore_proto::flyteidl2::core::SharedMemory;
use serde_json::{Value, json};

use super::{build, raw::Pod};
use crate::{json::push, plugin::BuildError};

/// Adds the volume, and its mount in the primary container.
pub(super) fn add(pod: &mut Pod, memory: &SharedMemory) -> Result<(), BuildError> {
    let (name, path) = (&memory.mount_name, &memory.mount_path);
    let bad = |problem: String| {
        Err(BuildError::bad_specification(format!(
            "shared memory: {problem}"
        )))
    };
    if name.is_empty() || path.is_empty() {
        return bad(format!(
            "expected a mount name and a mount path, found {name:?} and {path:?}"
        ));
    }
    let mut volume = json!({"name": name, "emptyDir": {"medium": "Memory"}});
    let limit = &memory.size_limit;
    if !limit.is_empty() {
        if Quantity::parse(limit).is_none() {
            return bad(format!("expected a size limit as \"2Gi\", found {limit:?}"));
        }
        volume["emptyDir"]["sizeLimit"] = json!(limit);
    }
    if has(pod.spec.get("volumes"), "name", name) {
        return bad(format!("the pod has a volume {name:?} already"));
    }
    push(&mut pod.spec, "volumes", volume);
    let Some(primary) = build::primary(pod) else {
        return bad("the pod has no primary container".to_owned());
    };
    let mounts = primary.get("volumeMounts");
    if has(mounts, "name", name) || has(mounts, "mountPath", path) {
        return bad(format!(
            "the primary container mounts {name:?}, or something at {path:?}, already"
        ));
    }
    let mount = json!({"name": name, "mountPath": path});
    push(primary, "volumeMounts", mount);
    Ok(())
}

fn has(list: Option<&Value>, field: &str, value: &str) -> bool {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.map(|item| &item[field]).any(|own| own == value)
}
