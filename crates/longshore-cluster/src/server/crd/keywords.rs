//! Rules about single keywords of a schema, wherever in it they stand.

use regex::Regex;
use serde_json::{Map, Value};

use super::{
    schema::{Schema, Type, texts},
    structural::{below, flag, text},
};
use crate::server::{error::Cause, meta};

/// Rules about single keywords, for every schema wherever it stands.
pub(super) fn check_keywords(schema: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let at = |key: &str| format!("{path}.{key}");
    for key in [
        "$ref",
        "definitions",
        "dependencies",
        "id",
        "patternProperties",
        "additionalItems",
        "$schema",
    ] {
        if schema.get(key).is_some_and(|value| !value.is_null()) {
            causes.push(Cause::forbidden(
                &at(key),
                &format!("{key} is not supported"),
            ));
        }
    }
    let kind = text(schema, "type");
    if !kind.is_empty() && Type::named(kind).is_none() {
        let known = ["array", "boolean", "integer", "number", "object", "string"];
        causes.push(Cause::unsupported(&at("type"), kind, &known));
    }
    if flag(schema, "uniqueItems") {
        let why =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(&at("uniqueItems"), why));
    }
    let has_properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|properties| !properties.is_empty());
    match schema.get("additionalProperties") {
        Some(Value::Bool(false)) => {
            let why = "additionalProperties cannot be set to false";
            causes.push(Cause::forbidden(&at("additionalProperties"), why));
        }
        Some(Value::Object(_)) if has_properties => {
            let why = "additionalProperties and properties are mutual exclusive";
            causes.push(Cause::forbidden(&at("additionalProperties"), why));
        }
        Some(_) | None => {}
    }
    if schema.get("items").is_some_and(Value::is_array) {
        let why = "items must be a schema object and not an array";
        causes.push(Cause::forbidden(&at("items"), why));
    }
    let pattern = text(schema, "pattern");
    // Building one costs more than all other checks of a node together.
    if !pattern.is_empty()
        && let Err(error) = Regex::new(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {error}");
        causes.push(Cause::invalid(&at("pattern"), &pattern.into(), &why));
    }
    check_lists(schema, path, causes);
    check_default(schema, path, causes);
    for (inner, path, _) in below(schema, path) {
        check_keywords(inner, &path, causes);
    }
}

fn check_lists(schema: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let list_type = text(schema, "x-kubernetes-list-type");
    let type_field = format!("{path}.x-kubernetes-list-type");
    let keys_field = format!("{path}.x-kubernetes-list-map-keys");
    let keys = texts(schema.get("x-kubernetes-list-map-keys"));
    if !list_type.is_empty() && !matches!(list_type, "atomic" | "set" | "map") {
        causes.push(Cause::unsupported(
            &type_field,
            list_type,
            &["atomic", "set", "map"],
        ));
    }
    if !list_type.is_empty() && text(schema, "type") != "array" {
        let field = format!("{path}.type");
        let why = "must be array if x-kubernetes-list-type is specified";
        causes.push(Cause::invalid(&field, &text(schema, "type").into(), why));
    }
    if list_type != "map" && !keys.is_empty() {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(Cause::invalid(&type_field, &list_type.into(), why));
    }
    if list_type != "map" {
        return;
    }
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        causes.push(Cause::required(&keys_field, why));
    }
    let items = schema.get("items").unwrap_or(&Value::Null);
    if meta::text(items, "/type") != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        let found = meta::text(items, "/type");
        causes.push(Cause::invalid(
            &format!("{path}.items.type"),
            &found.into(),
            why,
        ));
    }
    let required = texts(items.get("required"));
    for (index, key) in keys.iter().enumerate() {
        let property = items.get("properties").and_then(|it| it.get(key));
        let Some(property) = property else {
            let why = "entries must all be names of item properties";
            let field = format!("{keys_field}[{index}]");
            causes.push(Cause::invalid(&field, &key.as_str().into(), why));
            continue;
        };
        if !required.contains(key) && property.get("default").is_none() {
            let field = format!("{path}.items.properties[{key}].default");
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(Cause::required(&field, why));
        }
    }
}

/// A default must be what the schema wants.
fn check_default(schema: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let Some(default) = schema.get("default") else {
        return;
    };
    let compiled = Schema::compile(&Value::Object(schema.clone()));
    let field = format!("{path}.default");
    let mut completed = serde_json::json!({"default": default});
    let holder = Schema::compile(&serde_json::json!({"properties": {"default": schema}}));
    let unknown = holder.prune(&mut completed);
    if !unknown.is_empty() {
        let why = format!("must not have unknown fields: {}", unknown.join(", "));
        causes.push(Cause::invalid(&field, default, &why));
    }
    holder.set_defaults(&mut completed);
    for cause in compiled.violations(&completed["default"], None) {
        let inner = match cause.field.as_str() {
            "<nil>" => field.clone(),
            inner => format!("{field}.{inner}"),
        };
        causes.push(Cause {
            field: inner,
            ..cause
        });
    }
}
