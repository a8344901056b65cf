//! Which schemas are taken: those that are structural, so that every part of an object is known to
//! be a field, a map or a list before any value is looked at.

use serde_json::{Map, Value};

use super::{keywords::check_keywords, validate::shown};
use crate::server::{error::Cause, meta};

/// The place of a node in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Root,
    Item,
    Field,
}

/// What is wrong with the schema of a version, in a fixed order.
pub(super) fn violations(version: &Value, path: &str) -> Vec<Cause> {
    let field = format!("{path}.schema.openAPIV3Schema");
    let Some(schema) = version
        .pointer("/schema/openAPIV3Schema")
        .and_then(Value::as_object)
    else {
        return vec![Cause::required(&field, "schemas are required")];
    };
    let mut causes = Vec::new();
    check_keywords(schema, &field, &mut causes);
    check_structure(schema, Level::Root, &field, &mut causes);
    causes.sort_by(|one, other| (&one.field, &one.message).cmp(&(&other.field, &other.message)));
    causes
}

pub(super) fn flag(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn text<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or("")
}

/// The schemas below a node, with their paths.
pub(super) fn below<'a>(
    schema: &'a Map<String, Value>,
    path: &str,
) -> Vec<(&'a Map<String, Value>, String, Level)> {
    let mut found = Vec::new();
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = schema.get(key).and_then(Value::as_object) {
            let level = if key == "items" {
                Level::Item
            } else {
                Level::Field
            };
            found.push((inner, format!("{path}.{key}"), level));
        }
    }
    for (name, inner) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if let Some(inner) = inner.as_object() {
            found.push((inner, format!("{path}.properties[{name}]"), Level::Field));
        }
    }
    found.extend(
        alternatives(schema, path)
            .into_iter()
            .map(|(inner, path)| (inner, path, Level::Field)),
    );
    found
}

/// The schemas of `allOf`, `anyOf` and `oneOf`.
fn alternatives<'a>(
    schema: &'a Map<String, Value>,
    path: &str,
) -> Vec<(&'a Map<String, Value>, String)> {
    let mut found = Vec::new();
    for key in ["allOf", "anyOf", "oneOf"] {
        let list = schema.get(key).and_then(Value::as_array);
        for (index, inner) in list.into_iter().flatten().enumerate() {
            if let Some(inner) = inner.as_object() {
                found.push((inner, format!("{path}.{key}[{index}]")));
            }
        }
    }
    found
}

/// Every node says what it is.
fn check_type(schema: &Map<String, Value>, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let at = |key: &str| format!("{path}.{key}");
    let kind = text(schema, "type");
    let is_embedded = flag(schema, "x-kubernetes-embedded-resource");
    let is_free = flag(schema, "x-kubernetes-int-or-string")
        || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if kind == "array" && !schema.contains_key("items") {
        causes.push(Cause::required(&at("items"), "must be specified"));
    }
    if level == Level::Root && schema.contains_key("additionalProperties") {
        causes.push(Cause::forbidden(
            &at("additionalProperties"),
            "must not be used at the root",
        ));
    }
    if is_embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if kind.is_empty() {
            Cause::required(&at("type"), why)
        } else {
            Cause::invalid(&at("type"), &kind.into(), why)
        });
    } else if kind.is_empty() && !is_free {
        let what = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(Cause::required(&at("type"), what));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        causes.push(Cause::invalid(
            &at("type"),
            &kind.into(),
            "must be object at the root",
        ));
    }
}

/// Rules about the structure: what is a field, a map or a list.
fn check_structure(schema: &Map<String, Value>, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let at = |key: &str| format!("{path}.{key}");
    let is_embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserves = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let is_int_or_string = flag(schema, "x-kubernetes-int-or-string");
    check_type(schema, level, path, causes);
    if is_int_or_string {
        let conflicting = [
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
        ];
        for key in conflicting.into_iter().filter(|key| flag(schema, key)) {
            let why = "must be false if x-kubernetes-int-or-string is true";
            causes.push(Cause::invalid(&at(key), &true.into(), why));
        }
    }
    if is_embedded && !preserves && !schema.contains_key("properties") {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(&at("properties"), why));
    }
    if level == Level::Root || is_embedded {
        check_type_fields(schema, level, path, causes);
    }
    let is_usual = is_int_or_string && is_usual_int_or_string(schema);
    for (inner, inner_path) in alternatives(schema, path) {
        // The one exception: how int-or-string is spelled for clients that do not know it.
        let is_spelling = is_usual && inner_path.contains(".anyOf[");
        if !is_spelling && !spells_int_or_string(inner) {
            check_nested(inner, &inner_path, causes);
        }
    }
    if let Some(not) = schema.get("not").and_then(Value::as_object) {
        check_nested(not, &at("not"), causes);
    }
    check_completeness(schema, schema, path, path, causes);
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(key).and_then(Value::as_object) {
            let level = if key == "items" {
                Level::Item
            } else {
                Level::Field
            };
            check_structure(inner, level, &at(key), causes);
        }
    }
    for (name, inner) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if let Some(inner) = inner.as_object() {
            check_structure(
                inner,
                Level::Field,
                &format!("{path}.properties[{name}]"),
                causes,
            );
        }
    }
}

fn is_usual_int_or_string(schema: &Map<String, Value>) -> bool {
    schema.get("anyOf") == Some(&serde_json::json!([{"type": "integer"}, {"type": "string"}]))
}

/// The first of `allOf` may do so as well.
fn spells_int_or_string(schema: &Map<String, Value>) -> bool {
    schema.len() == 1 && is_usual_int_or_string(schema)
}

/// `apiVersion`, `kind` and `metadata` are what they are in every object.
fn check_type_fields(
    schema: &Map<String, Value>,
    level: Level,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let property = |name: &str| schema.get("properties").and_then(|it| it.get(name));
    for name in ["kind", "apiVersion"] {
        if let Some(property) = property(name)
            && meta::text(property, "/type") != "string"
        {
            let field = format!("{path}.properties[{name}].type");
            let found = meta::text(property, "/type");
            causes.push(Cause::invalid(&field, &found.into(), "must be string"));
        }
    }
    let Some(metadata) = property("metadata") else {
        return;
    };
    let field = format!("{path}.properties[metadata]");
    if meta::text(metadata, "/type") != "object" {
        let found = meta::text(metadata, "/type");
        causes.push(Cause::invalid(
            &format!("{field}.type"),
            &found.into(),
            "must be object",
        ));
    }
    let is_plain = |name: &str| name == "name" || name == "generateName";
    let members = metadata.get("properties").and_then(Value::as_object);
    let has_more = members
        .into_iter()
        .flatten()
        .any(|(name, _)| !is_plain(name))
        || metadata.as_object().into_iter().flatten().any(|(key, _)| {
            !matches!(
                key.as_str(),
                "type" | "properties" | "description" | "default"
            )
        });
    if level == Level::Root && has_more {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(&field, why));
    }
}

/// Schemas under `allOf`, `anyOf`, `oneOf` and `not` may only judge values.
fn check_nested(schema: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let keywords = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("externalDocs", "must be undefined to be structural"),
        (
            "x-kubernetes-preserve-unknown-fields",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-embedded-resource",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-int-or-string",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-list-map-keys",
            "must be empty to be structural",
        ),
        (
            "x-kubernetes-list-type",
            "must be undefined to be structural",
        ),
        (
            "x-kubernetes-map-type",
            "must be undefined to be structural",
        ),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (key, why) in keywords {
        let is_set = schema.get(key).is_some_and(|value| !is_empty(value));
        if is_set {
            causes.push(Cause::forbidden(&format!("{path}.{key}"), why));
        }
    }
    if schema
        .get("properties")
        .is_some_and(|it| it.get("metadata").is_some())
    {
        let field = format!("{path}.properties[metadata]");
        causes.push(Cause::forbidden(
            &field,
            "must not be specified in a nested context",
        ));
    }
    for (inner, path, _) in below(schema, path) {
        check_nested(inner, &path, causes);
    }
}

fn is_empty(value: &Value) -> bool {
    matches!(shown(value).as_str(), "null" | "false" | "\"\"" | "[]")
}

/// Every field that a nested schema judges must be there in the structure itself.
fn check_completeness(
    structure: &Map<String, Value>,
    schema: &Map<String, Value>,
    path: &str,
    nested_path: &str,
    causes: &mut Vec<Cause>,
) {
    let mut nested = alternatives(schema, nested_path);
    let not = schema.get("not").and_then(Value::as_object);
    nested.extend(not.map(|inner| (inner, format!("{nested_path}.not"))));
    for (inner, nested_path) in nested {
        require_fields(structure, inner, path, &nested_path, causes);
        check_completeness(structure, inner, path, &nested_path, causes);
    }
}

fn require_fields(
    structure: &Map<String, Value>,
    nested: &Map<String, Value>,
    path: &str,
    nested_path: &str,
    causes: &mut Vec<Cause>,
) {
    let missing = |field: &str, nested: &str| {
        Cause::required(field, &format!("because it is defined in {nested}"))
    };
    for (name, inner) in nested
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let field = format!("{path}.properties[{name}]");
        let nested_field = format!("{nested_path}.properties[{name}]");
        let own = structure
            .get("properties")
            .and_then(|it| it.get(name))
            .and_then(Value::as_object);
        match (own, inner.as_object()) {
            (Some(own), Some(inner)) => {
                require_fields(own, inner, &field, &nested_field, causes);
                check_completeness(own, inner, &field, &nested_field, causes);
            }
            (None, _) => causes.push(missing(&field, &nested_field)),
            (Some(_), None) => {}
        }
    }
    if let Some(inner) = nested.get("items").and_then(Value::as_object) {
        let field = format!("{path}.items");
        let nested_field = format!("{nested_path}.items");
        match structure.get("items").and_then(Value::as_object) {
            Some(own) => require_fields(own, inner, &field, &nested_field, causes),
            None => causes.push(missing(&field, &nested_field)),
        }
    }
}
