//! What people see of a rule on its pods.

use longshore_api::podops::{CONTROLLED, LABEL_CONTROL};
use longshore_core::{Patch, PatchKind};
use serde_json::{Value, json};

use crate::model::Pod;

/// Writes an annotation of a pod, or removes the one that it has.
///
/// The API server applies the patch only while the pod takes part: the request that takes the label away removes all
/// our annotations, and no controller would remove one that came after it. The version of the pod would say the same,
/// but its node and its own controller write the pod in these very moments, and each conflict costs two requests.
pub(super) fn annotate(pod: &Pod, key: &str, value: Option<String>) -> Patch {
    let path = |of: &str, key: &str| {
        let key = key.replace('~', "~0").replace('/', "~1");
        format!("/metadata/{of}/{key}")
    };
    let takes_part = path("labels", LABEL_CONTROL);
    let mut operations = vec![json!({"op": "test", "path": takes_part, "value": CONTROLLED})];
    if pod.annotations.is_empty() {
        // Annotations that another client added since then must not be lost.
        let all = "/metadata/annotations";
        operations.push(json!({"op": "test", "path": all, "value": null}));
        operations.push(json!({"op": "add", "path": all, "value": {}}));
    }
    let path = path("annotations", key);
    operations.push(match value {
        Some(value) => json!({"op": "add", "path": path, "value": value}),
        None => json!({"op": "remove", "path": path}),
    });
    Patch {
        target: pod.target.clone(),
        subresource: None,
        kind: PatchKind::Json,
        patch: Value::Array(operations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a pod by a patch that was decided upon when it was as `seen`; `None`: the patch is refused.
    fn patched(seen: &Value, now: &Value, value: Option<&str>) -> Option<Value> {
        let pod = Pod::of(&json!({"metadata": seen})).unwrap();
        let patch = annotate(&pod, "example.com/a", value.map(str::to_owned));
        let mut object = json!({"metadata": now});
        for operation in patch.patch.as_array()? {
            let path = operation["path"].as_str()?;
            // API servers take a member that is not there for null.
            let is_test = operation["op"] == "test";
            if is_test && operation["value"].is_null() && object.pointer(path).is_none() {
                continue;
            }
            let operation = json!([operation]);
            let operation: json_patch::Patch = serde_json::from_value(operation).unwrap();
            json_patch::patch(&mut object, &operation.0).ok()?;
        }
        Some(object["metadata"].take())
    }

    #[test]
    fn a_pod_that_takes_part_no_more_is_not_annotated() {
        let pod = |control: Value, annotations: Value| {
            let mut pod = json!({"labels": {"app": "web", LABEL_CONTROL: control}});
            pod["labels"]
                .as_object_mut()
                .unwrap()
                .retain(|_, value| !value.is_null());
            if !annotations.is_null() {
                pod["annotations"] = annotations;
            }
            pod
        };
        let bare = || pod(json!("true"), Value::Null);
        let shows = || pod(json!("true"), json!({"b": "1", "example.com/a": "0"}));
        let others = || pod(json!("true"), json!({"b": "1"}));
        let table = [
            (
                bare(),
                bare(),
                Some("1"),
                Some(json!({"example.com/a": "1"})),
            ),
            (
                others(),
                others(),
                Some("1"),
                Some(json!({"b": "1", "example.com/a": "1"})),
            ),
            (shows(), shows(), None, Some(json!({"b": "1"}))),
            // The controller decides upon it anew: the annotation of another client stays.
            (bare(), others(), Some("1"), None),
            (bare(), pod(Value::Null, Value::Null), Some("1"), None),
            (
                shows(),
                pod(Value::Null, json!({"b": "1"})),
                Some("1"),
                None,
            ),
            (
                shows(),
                pod(json!("no"), json!({"b": "1"})),
                Some("1"),
                None,
            ),
        ];
        for (seen, now, value, expected) in table {
            let annotations = patched(&seen, &now, value).map(|pod| pod["annotations"].clone());
            assert_eq!(annotations, expected, "{seen} {now} {value:?}");
        }
    }
}
