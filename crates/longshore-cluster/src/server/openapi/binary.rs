//! The types of version 2 in protobuf: the one form that kubectl requests to validate a manifest of
//! `kind: List`. It has what kubectl needs for that: no paths, no bounds of values.

use serde_json::{Map, Value};

use super::{PRESERVE, V2_REFERENCE};
use crate::server::protobuf::put;

/// The media type that clients ask for.
pub(super) const ASKED_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The media type of the answer.
pub(super) const SENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";

/// Encodes a document of version 2 (`Document` of the gnostic models).
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_text(&mut out, 1, document.get("swagger"));
    let mut info = Vec::new();
    put_text(&mut info, 1, document.pointer("/info/title"));
    put_text(&mut info, 2, document.pointer("/info/version"));
    put(&mut out, 2, &info);
    put(&mut out, 8, &[]);
    put(&mut out, 9, &named_schemas(&document["definitions"]));
    out
}

fn put_text(out: &mut Vec<u8>, number: u32, text: Option<&Value>) {
    if let Some(text) = text.and_then(Value::as_str) {
        put(out, number, text.as_bytes());
    }
}

/// `Definitions` and `Properties` look the same.
fn named_schemas(schemas: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in schemas.as_object().into_iter().flatten() {
        let mut named = Vec::new();
        put(&mut named, 1, name.as_bytes());
        put(&mut named, 2, &schema(value));
        put(&mut out, 1, &named);
    }
    out
}

fn schema(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let reference = value.get("$ref").and_then(Value::as_str);
    if let Some(reference) = reference.filter(|it| it.starts_with(V2_REFERENCE)) {
        put(&mut out, 1, reference.as_bytes());
        return out;
    }
    put_text(&mut out, 4, value.get("description"));
    if value.get(PRESERVE) != Some(&Value::Bool(true)) {
        put_shape(&mut out, value);
    }
    if let Some(kinds) = value.get(GROUP_VERSION_KIND) {
        let mut any = Vec::new();
        // JSON is YAML.
        put(&mut any, 2, kinds.to_string().as_bytes());
        let mut named = Vec::new();
        put(&mut named, 1, GROUP_VERSION_KIND.as_bytes());
        put(&mut named, 2, &any);
        put(&mut out, 31, &named);
    }
    out
}

/// What values may be. Without a type, anything: so clients take a list of whatever.
fn put_shape(out: &mut Vec<u8>, value: &Value) {
    put_text(out, 2, value.get("format"));
    let required = value.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten() {
        put_text(out, 19, Some(name));
    }
    let items = value.get("items").filter(|items| items.is_object());
    let kind = value.get("type").and_then(Value::as_str);
    if let Some(kind) = kind.filter(|kind| *kind != "array" || items.is_some()) {
        let mut types = Vec::new();
        put(&mut types, 1, kind.as_bytes());
        put(out, 22, &types);
    }
    if let Some(items) = items {
        let mut item = Vec::new();
        put(&mut item, 1, &schema(items));
        put(out, 23, &item);
    }
    let is_filled = |it: &&Value| it.as_object().is_some_and(|it: &Map<_, _>| !it.is_empty());
    if let Some(additional) = value.get("additionalProperties").filter(is_filled) {
        let mut item = Vec::new();
        put(&mut item, 1, &schema(additional));
        put(out, 21, &item);
    }
    if let Some(properties) = value.get("properties").filter(is_filled) {
        put(out, 25, &named_schemas(properties));
    }
}
