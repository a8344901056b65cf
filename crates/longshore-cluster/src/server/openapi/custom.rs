//! The types of custom resources: the schema of the definition, and what every object has.

use serde_json::{Map, Value, json};

use super::{PRESERVE, V2_REFERENCE, paths::Version};
use crate::server::{meta, registry::Resource};

/// A built-in kind and its list: what they say of `apiVersion`, `kind` and `metadata` holds for every kind.
const OBJECT_LIKE: &str = "io.k8s.api.core.v1.ConfigMap";
const LIST_LIKE: &str = "io.k8s.api.core.v1.ConfigMapList";

/// The definitions of a custom resource's object and list, by name; none for a built-in one. `known` has the built-in
/// types.
pub(super) fn definitions(
    resource: &Resource,
    version: Version,
    known: &Map<String, Value>,
) -> Vec<(String, Value)> {
    let Some(custom) = &resource.custom else {
        return Vec::new();
    };
    let schema = serde_json::from_str(&custom.published).unwrap_or_default();
    let (name, list_name) = (
        type_name(resource, &resource.kind),
        type_name(resource, &custom.list_kind),
    );
    let list = json!({
        "description": format!("{} is a list of {}", custom.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {"items": {"type": "array", "items": reference(&name)}},
    });
    let object = match version {
        Version::Two => object_of_version_2(schema, known),
        Version::Three => complete(schema, known, OBJECT_LIKE),
    };
    let list = complete(list, known, LIST_LIKE);
    vec![
        (name, of_kind(object, resource, &resource.kind)),
        (list_name, of_kind(list, resource, &custom.list_kind)),
    ]
}

/// An object whose schema keeps unknown members has no members in OpenAPI 2: kubectl would refuse all others.
fn object_of_version_2(mut schema: Value, known: &Map<String, Value>) -> Value {
    if is_true(&schema, PRESERVE) {
        return json!({"type": "object"});
    }
    simplify(&mut schema);
    complete(schema, known, OBJECT_LIKE)
}

fn is_true(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

/// Leaves out what OpenAPI 2 does not have, or what kubectl misreads in it: junctors, the types of nullable values and
/// the members of values that keep unknown ones. Upstream's rules for the same.
fn simplify(schema: &mut Value) {
    let is_nullable = is_true(schema, "nullable");
    let preserves = is_true(schema, PRESERVE);
    let Value::Object(members) = schema else {
        return;
    };
    for key in ["allOf", "anyOf", "oneOf", "not", "nullable"] {
        members.remove(key);
    }
    if is_nullable || preserves {
        members.remove("items");
        members.remove("properties");
    }
    let is_untyped = match members.get("type").and_then(Value::as_str) {
        Some("array") => !members.contains_key("items"),
        Some("object") => preserves,
        Some(_) | None => false,
    };
    if is_nullable || is_untyped {
        members.remove("type");
    }
    forget_nullable(members);
    let properties = members.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        simplify(property);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = members.get_mut(key) {
            simplify(inner);
        }
    }
}

/// What may be null is not required: null is no value there.
fn forget_nullable(members: &mut Map<String, Value>) {
    if members
        .get("additionalProperties")
        .is_some_and(|it| is_true(it, "nullable"))
    {
        members.remove("required");
    }
    let Some(Value::Object(properties)) = members.get("properties") else {
        return;
    };
    let is_nullable = |name: &Value| {
        let property = name.as_str().and_then(|name| properties.get(name));
        property.is_some_and(|property| is_true(property, "nullable"))
    };
    let Some(Value::Array(required)) = members.get("required") else {
        return;
    };
    let left: Vec<Value> = required
        .iter()
        .filter(|name| !is_nullable(name))
        .cloned()
        .collect();
    if left.is_empty() {
        members.remove("required");
    } else {
        members.insert("required".into(), left.into());
    }
}

/// `com.example.v1.Gadget`.
fn type_name(resource: &Resource, kind: &str) -> String {
    let mut parts: Vec<&str> = resource.group.rsplit('.').collect();
    parts.extend([resource.version.as_str(), kind]);
    parts.join(".")
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("{V2_REFERENCE}{name}")})
}

/// Adds what the type of every object has, as a built-in type has it.
fn complete(mut schema: Value, known: &Map<String, Value>, like: &str) -> Value {
    let properties = meta::member(&mut schema, "properties");
    for name in ["apiVersion", "kind", "metadata"] {
        let property = known.get(like).and_then(|it| it["properties"].get(name));
        properties.extend(property.map(|property| (name.to_owned(), property.clone())));
    }
    schema["type"] = "object".into();
    schema
}

fn of_kind(mut schema: Value, resource: &Resource, kind: &str) -> Value {
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": resource.group, "kind": kind, "version": resource.version}]);
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2_has_what_kubectl_can_read() {
        for (what, schema, expected) in [
            (
                "junctors",
                json!({"type": "string", "anyOf": [{}], "not": {}}),
                json!({"type": "string"}),
            ),
            (
                "a nullable object",
                json!({"type": "object", "nullable": true, "properties": {"a": {}}}),
                json!({}),
            ),
            (
                "unknown members are kept",
                json!({"properties": {"a": {"type": "object", PRESERVE: true, "properties": {"b": {}}}}}),
                json!({"properties": {"a": {PRESERVE: true}}}),
            ),
            (
                "a list of whatever",
                json!({"type": "array", PRESERVE: true, "items": {"type": "string"}}),
                json!({PRESERVE: true}),
            ),
            (
                "a nullable member is not required",
                json!({"required": ["a", "b"], "properties": {"a": {"nullable": true}, "b": {}}}),
                json!({"required": ["b"], "properties": {"a": {}, "b": {}}}),
            ),
            (
                "no nullable member is required",
                json!({"required": ["a"], "properties": {"a": {"nullable": true}}}),
                json!({"properties": {"a": {}}}),
            ),
            (
                "items and other members",
                json!({"items": {"not": {}}, "additionalProperties": {"items": {"oneOf": []}}}),
                json!({"items": {}, "additionalProperties": {"items": {}}}),
            ),
            (
                "any other member",
                json!({"type": "object", "additionalProperties": true}),
                json!({"type": "object", "additionalProperties": true}),
            ),
        ] {
            let mut found = schema;
            simplify(&mut found);
            assert_eq!(found, expected, "{what}");
        }
    }
}
