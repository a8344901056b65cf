//! Memory that the processes of a task share: a volume in memory.

use longshore_core::Quantity;
use longshore_proto::flyteidl2::core::SharedMemory;
use serde_json::{Value, json};

use super::{build, raw::Pod};
use crate::plugin::BuildError;

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
    let volumes = pod.spec.entry("volumes").or_insert_with(|| json!([]));
    if has(volumes, "name", name) {
        return bad(format!("the pod has a volume {name:?} already"));
    }
    push(volumes, volume);
    let Some(primary) = build::primary(pod) else {
        return bad("the pod has no primary container".to_owned());
    };
    let mounts = primary.entry("volumeMounts").or_insert_with(|| json!([]));
    if has(mounts, "name", name) || has(mounts, "mountPath", path) {
        return bad(format!(
            "the primary container mounts {name:?}, or something at {path:?}, already"
        ));
    }
    push(mounts, json!({"name": name, "mountPath": path}));
    Ok(())
}

fn has(list: &Value, field: &str, value: &str) -> bool {
    let items = list.as_array().into_iter().flatten();
    items.map(|item| &item[field]).any(|own| own == value)
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}
