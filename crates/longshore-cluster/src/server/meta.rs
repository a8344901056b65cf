//! Reading and keeping `metadata`: which fields a client may set, and which only the server sets.

use jiff::Timestamp;
use longshore_k8s::names::{key_violations, label_value_violations};
use serde_json::{Map, Value};

use super::error::Cause;

/// The text at a JSON pointer, empty when there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// `metadata.name`.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// `metadata.finalizers`.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Whether the object is on its way out.
pub(crate) fn is_deleting(object: &Value) -> bool {
    longshore_k8s::metadata::is_deleting(object)
}

/// The object's map, made if it is something else.
#[expect(clippy::expect_used, reason = "the value has just been made an object")]
pub(crate) fn members(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object above")
}

/// The map of a member, made if it is missing.
pub(crate) fn member<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    members(members(value).entry(key).or_insert(Value::Null))
}

/// The `metadata` map, made if it is missing.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    member(object, "metadata")
}

/// An instant as metadata carries it: whole seconds, UTC.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Removes what decoding into upstream's types would remove: nulls anywhere, empty lists and maps
/// of metadata, and fields that only the server sets.
pub(crate) fn normalise(object: &mut Value, has_free_form_nulls: bool) {
    if !has_free_form_nulls {
        prune_nulls(object);
    }
    let metadata = metadata(object);
    for key in ["selfLink", "managedFields"] {
        metadata.remove(key);
    }
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    });
}

fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Copies a member from the old object, or removes it when the old object has none.
pub(crate) fn keep(new: &mut Map<String, Value>, old: &Value, key: &str) {
    match old.get(key) {
        Some(value) => new.insert(key.to_owned(), value.clone()),
        None => new.remove(key),
    };
}

/// Adds one to `metadata.generation`, if the object counts generations.
pub(crate) fn count_generation(object: &mut Value) {
    let metadata = metadata(object);
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// Whether anything but metadata and status differs.
pub(crate) fn spec_differs(new: &Value, old: &Value) -> bool {
    let is_spec = |key: &str| !matches!(key, "kind" | "apiVersion" | "metadata" | "status");
    let has_other = |one: &Value, other: &Value| {
        let mut members = one.as_object().into_iter().flatten();
        members.any(|(key, value)| is_spec(key) && other.get(key) != Some(value))
    };
    has_other(new, old) || has_other(old, new)
}

/// Largest sum of annotation keys and values, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// What is wrong with labels, annotations and owner references.
pub(crate) fn violations(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let pairs = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
    };
    for (key, value) in pairs("/metadata/labels") {
        causes.extend(label_violations("metadata.labels", key, value));
    }
    let mut size = 0;
    for (key, value) in pairs("/metadata/annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        let complaints = key_violations(&key.to_lowercase());
        causes.extend(
            complaints
                .iter()
                .map(|why| Cause::invalid("metadata.annotations", &key.as_str().into(), why)),
        );
    }
    if size > ANNOTATIONS_LIMIT {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_LIMIT));
    }
    causes.extend(owner_violations(object));
    causes.extend(finalizer_violations(object));
    causes
}

/// What is wrong with one label.
pub(crate) fn label_violations(field: &str, key: &str, value: &Value) -> Vec<Cause> {
    let mut causes: Vec<Cause> = key_violations(key)
        .iter()
        .map(|why| Cause::invalid(field, &key.into(), why))
        .collect();
    let complaints = label_value_violations(value.as_str().unwrap_or(""));
    let of_value = complaints.iter();
    causes.extend(of_value.map(|why| Cause::invalid(field, value, why)));
    causes
}

fn finalizer_violations(object: &Value) -> Vec<Cause> {
    let field = "metadata.finalizers";
    let found = finalizers(object);
    let mut causes = Vec::new();
    for finalizer in &found {
        let complaints = key_violations(finalizer);
        causes.extend(
            complaints
                .iter()
                .map(|why| Cause::invalid(field, &(*finalizer).into(), why)),
        );
    }
    if ["orphan", "foregroundDeletion"]
        .iter()
        .all(|finalizer| found.contains(finalizer))
    {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid(
            field,
            &object["metadata"]["finalizers"],
            why,
        ));
    }
    causes
}

fn owner_violations(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let owners = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let mut n_controllers = 0;
    for owner in owners.into_iter().flatten() {
        for (key, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner
                .get(key)
                .and_then(Value::as_str)
                .is_none_or(str::is_empty)
            {
                let field = format!("metadata.ownerReferences.{key}");
                causes.push(Cause::invalid(&field, &"".into(), why));
            }
        }
        n_controllers += usize::from(owner.get("controller") == Some(&Value::Bool(true)));
    }
    if n_controllers > 1 {
        let why = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid("metadata.ownerReferences", &"".into(), why));
    }
    causes
}
