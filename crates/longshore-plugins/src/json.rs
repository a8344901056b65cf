//! Small changes of JSON objects whose shape is a user's.

use serde_json::{Map, Value, json};

/// An object, as Kubernetes has them.
pub(crate) type Object = Map<String, Value>;

/// The object in a field, made where there is none.
pub(crate) fn object<'a>(parent: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    let slot = parent.entry(field).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut()
}

/// The list in a field, made where there is none.
pub(crate) fn list<'a>(parent: &'a mut Object, field: &str) -> Option<&'a mut Vec<Value>> {
    let slot = parent.entry(field).or_insert(Value::Null);
    if !slot.is_array() {
        *slot = json!([]);
    }
    slot.as_array_mut()
}

/// Adds an item to the list in a field.
pub(crate) fn push(parent: &mut Object, field: &str, item: Value) {
    if let Some(list) = list(parent, field) {
        list.push(item);
    }
}

/// A text that is empty where it is absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}
