//! The two kinds of documents.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    V2_REFERENCE, custom, definitions,
    paths::{self, Version},
};
use crate::server::{error::Result, registry::Resource};

const V3_REFERENCE: &str = "#/components/schemas/";

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.34.2+longshore"})
}

/// Everything in one document of OpenAPI 2.
pub(super) fn version_2(resources: &[&Resource]) -> Result<Value> {
    let definitions = all_definitions(resources, Version::Two)?;
    let paths = paths::describe(resources, &definitions, Version::Two);
    Ok(json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {
            "BearerToken": {"description": "Bearer Token authentication", "in": "header", "name": "authorization",
                "type": "apiKey"},
        },
        "security": [{"BearerToken": []}],
    }))
}

/// The resources of one group version, and the types that they are made of, in OpenAPI 3.
pub(super) fn version_3(resources: &[&Resource]) -> Result<Value> {
    let definitions = all_definitions(resources, Version::Three)?;
    let paths = paths::describe(resources, &definitions, Version::Three);
    let mut schemas = Map::new();
    for name in used(resources, &definitions) {
        if let Some(definition) = definitions.get(&name) {
            let mut schema = definition.clone();
            to_version_3(&mut schema);
            schemas.insert(name, schema);
        }
    }
    Ok(json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "BearerToken": {"type": "apiKey", "description": "Bearer Token authentication",
                    "name": "authorization", "in": "header"},
            },
        },
    }))
}

/// Upstream's types and those of the custom resources among these.
fn all_definitions(resources: &[&Resource], version: Version) -> Result<Map<String, Value>> {
    let mut definitions = definitions()?;
    for resource in resources {
        let own = custom::definitions(resource, version, &definitions);
        definitions.extend(own);
    }
    Ok(definitions)
}

/// Names of the definitions of a group version and of what they refer to.
fn used(resources: &[&Resource], definitions: &Map<String, Value>) -> BTreeSet<String> {
    let is_ours = |kind: &Value| {
        resources
            .iter()
            .any(|resource| kind["group"] == resource.group && kind["version"] == resource.version)
    };
    let mut next: Vec<String> = definitions
        .iter()
        .filter(|(_, definition)| kinds(definition).iter().any(is_ours))
        .map(|(name, _)| name.clone())
        .collect();
    if resources.iter().any(|resource| resource.has_scale) {
        next.push("io.k8s.api.autoscaling.v1.Scale".to_owned());
    }
    let mut used = BTreeSet::new();
    while let Some(name) = next.pop() {
        if let Some(definition) = definitions.get(&name)
            && used.insert(name)
        {
            references(definition, &mut next);
        }
    }
    used
}

/// The kinds that a definition is for.
pub(super) fn kinds(definition: &Value) -> &[Value] {
    definition
        .get("x-kubernetes-group-version-kind")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                found.extend(reference.strip_prefix(V2_REFERENCE).map(str::to_owned));
            }
            members
                .values()
                .for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// References point elsewhere in version 3, and stand alone: what stood beside one becomes its
/// frame.
fn to_version_3(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let target = reference.replacen(V2_REFERENCE, V3_REFERENCE, 1);
                members.remove("$ref");
                let reference = json!({"$ref": target});
                if members.is_empty() {
                    *schema = reference;
                } else {
                    members.insert("allOf".into(), json!([reference]));
                }
                return;
            }
            members.values_mut().for_each(to_version_3);
        }
        Value::Array(items) => items.iter_mut().for_each(to_version_3),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
