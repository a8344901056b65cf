//! What every object has in common: its version, its deletion, its conditions.

use serde_json::Value;

/// A `resourceVersion` as a number, `None` where it is none. Versions are compared as integers, as Kubernetes does since
/// 1.35.
pub fn parse_version(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// `metadata.resourceVersion` of an object as a number.
pub fn version(object: &Value) -> Option<u64> {
    parse_version(object["metadata"]["resourceVersion"].as_str()?)
}

/// Whether the object was deleted and waits for finalizers or for the end of its grace period.
pub fn is_deleting(object: &Value) -> bool {
    let at = object["metadata"]["deletionTimestamp"].as_str();
    at.is_some_and(|at| !at.is_empty())
}

/// The condition of this type in `status.conditions`.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// Whether the condition of this type is there and `True`.
pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_whole_numbers() {
        for (version, expected) in [("0", Some(0)), ("17", Some(17)), ("", None), ("a", None)] {
            assert_eq!(parse_version(version), expected, "{version:?}");
            let object = json!({"metadata": {"resourceVersion": version}});
            assert_eq!(super::version(&object), expected, "{version:?}");
        }
        assert_eq!(version(&json!({})), None);
    }

    #[test]
    fn an_object_is_on_its_way_out_once_it_says_since_when() {
        for (metadata, expected) in [
            (json!({}), false),
            (json!({"deletionTimestamp": null}), false),
            (json!({"deletionTimestamp": ""}), false),
            (json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), true),
        ] {
            let object = json!({"metadata": metadata});
            assert_eq!(is_deleting(&object), expected, "{object}");
        }
    }

    #[test]
    fn a_condition_that_is_missing_or_unknown_is_not_true() {
        let conditions = json!([
            {"type": "Ready", "status": "True"}, {"type": "Synced", "status": "Unknown"},
        ]);
        let object = json!({"status": {"conditions": conditions}});
        let found = ["Ready", "Synced", "Other"].map(|kind| is_true(&object, kind));
        assert_eq!(found, [true, false, false]);
        assert!(condition(&object, "Synced").is_some());
        assert!(!is_true(&json!({}), "Ready"));
    }
}
