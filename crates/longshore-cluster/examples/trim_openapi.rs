//! Makes `openapi/definitions.json.gz` from Kubernetes' own OpenAPI document: the definitions of the
//! API groups that the embedded cluster may serve, without the paths.
//!
//! ```text
//! go mod download -json k8s.io/kubernetes@v1.34.2     # prints "Dir"
//! cargo run -p longshore-cluster --example trim_openapi -- $DIR/api/openapi-spec/swagger.json \
//!     crates/longshore-cluster/openapi/definitions.json.gz
//! ```

use std::{collections::BTreeSet, error::Error, io::Write};

use flate2::{Compression, GzBuilder};
use serde_json::{Map, Value};

/// Group versions that stay.
const GROUP_VERSIONS: &[(&str, &str)] = &[
    ("", "v1"),
    ("admissionregistration.k8s.io", "v1"),
    ("apiextensions.k8s.io", "v1"),
    ("apiregistration.k8s.io", "v1"),
    ("apps", "v1"),
    ("authentication.k8s.io", "v1"),
    ("authorization.k8s.io", "v1"),
    ("autoscaling", "v1"),
    ("autoscaling", "v2"),
    ("batch", "v1"),
    ("certificates.k8s.io", "v1"),
    ("coordination.k8s.io", "v1"),
    ("discovery.k8s.io", "v1"),
    ("events.k8s.io", "v1"),
    ("flowcontrol.apiserver.k8s.io", "v1"),
    ("networking.k8s.io", "v1"),
    ("node.k8s.io", "v1"),
    ("policy", "v1"),
    ("rbac.authorization.k8s.io", "v1"),
    ("scheduling.k8s.io", "v1"),
    ("storage.k8s.io", "v1"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(from), Some(to)) = (arguments.next(), arguments.next()) else {
        return Err("expected two arguments: swagger.json and the file to write".into());
    };
    let mut document: Value = serde_json::from_slice(&std::fs::read(from)?)?;
    let Value::Object(definitions) = document["definitions"].take() else {
        return Err("expected an OpenAPI v2 document with definitions".into());
    };
    let trimmed = trim(definitions);
    let mut file = GzBuilder::new()
        .mtime(0)
        .write(std::fs::File::create(to)?, Compression::best());
    file.write_all(serde_json::to_string(&trimmed)?.as_bytes())?;
    file.finish()?;
    Ok(())
}

/// Keeps the definitions of the group versions above and what they refer to.
fn trim(mut definitions: Map<String, Value>) -> Map<String, Value> {
    for definition in definitions.values_mut() {
        if let Some(kinds) = definition
            .get_mut("x-kubernetes-group-version-kind")
            .and_then(Value::as_array_mut)
        {
            kinds.retain(is_kept);
        }
    }
    let mut kept = BTreeSet::new();
    let mut next: Vec<String> = definitions
        .iter()
        .filter(|(_, definition)| {
            let kinds = definition["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| !kinds.is_empty())
        })
        .map(|(name, _)| name.clone())
        .collect();
    while let Some(name) = next.pop() {
        if let Some(definition) = definitions.get(&name)
            && kept.insert(name)
        {
            references(definition, &mut next);
        }
    }
    definitions.retain(|name, _| kept.contains(name));
    definitions
}

fn is_kept(kind: &Value) -> bool {
    let text = |key: &str| kind[key].as_str().unwrap_or("");
    GROUP_VERSIONS.contains(&(text("group"), text("version")))
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(name) = members.get("$ref").and_then(Value::as_str) {
                found.extend(name.strip_prefix("#/definitions/").map(str::to_owned));
            }
            members
                .values()
                .for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
