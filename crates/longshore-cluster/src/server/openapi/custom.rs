//! The types of custom resources: the schema of the definition, and what every object has.

use serde_json::{Value, json};

use super::V2_REFERENCE;
use crate::server::{meta, registry::Resource};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The definitions of a custom resource's object and list, by name; none for a built-in one.
pub(super) fn definitions(resource: &Resource) -> Vec<(String, Value)> {
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
    vec![
        (
            name,
            complete(schema, resource, &resource.kind, "ObjectMeta"),
        ),
        (
            list_name,
            complete(list, resource, &custom.list_kind, "ListMeta"),
        ),
    ]
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

/// Adds what the type of every object has.
fn complete(mut schema: Value, resource: &Resource, kind: &str, metadata: &str) -> Value {
    let properties = meta::member(&mut schema, "properties");
    let text = |description: &str| json!({"type": "string", "description": description});
    properties.insert(
        "apiVersion".into(),
        text("APIVersion says which version of its API this object is written in."),
    );
    properties.insert("kind".into(), text("Kind says what this object is."));
    properties.insert("metadata".into(), reference(&format!("{META}.{metadata}")));
    schema["type"] = "object".into();
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": resource.group, "kind": kind, "version": resource.version}]);
    schema
}
