//! What clients look for in the documents.

use super::*;
use crate::server::registry::Registry;

fn version_3(name: &str) -> Value {
    let resources = resources(&Registry::built_in(1));
    let of: Vec<&Resource> = resources
        .iter()
        .filter(|resource| document_name(resource) == name)
        .map(Arc::as_ref)
        .collect();
    document::version_3(&of).unwrap()
}

#[test]
fn every_reference_leads_somewhere() {
    for name in document_names(&resources(&Registry::built_in(1))) {
        let document = version_3(&name);
        let text = document.to_string();
        for (at, _) in text.match_indices("\"$ref\":\"") {
            let target = text[at + 8..].split('"').next().unwrap();
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{name}: {target}");
        }
    }
}

#[test]
fn a_patch_takes_field_validation_and_strategic_merges() {
    let document = version_3("apis/apps/v1");
    let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
    let patch = &document["paths"][path]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"]["kind"],
        "Deployment"
    );
    let options = patch["parameters"].as_array().unwrap();
    assert!(
        options
            .iter()
            .any(|option| option["name"] == "fieldValidation")
    );
    let languages = &patch["requestBody"]["content"];
    assert!(
        languages
            .get("application/strategic-merge-patch+json")
            .is_some()
    );
}

#[test]
fn merge_keys_survive() {
    let document = version_3("api/v1");
    let containers = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
        ["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
}

#[test]
fn every_built_in_resource_has_its_type() {
    let definitions = definitions().unwrap();
    for resource in resources(&Registry::built_in(1)) {
        let is_described = definitions.values().any(|definition| {
            document::kinds(definition).iter().any(|kind| {
                kind["group"] == resource.group
                    && kind["version"] == resource.version
                    && kind["kind"] == resource.kind
            })
        });
        assert!(is_described, "{}", resource.qualified());
    }
}

#[test]
fn a_document_is_made_once() {
    let documents = Documents::default();
    let resources = resources(&Registry::built_in(1));
    let made = std::cell::Cell::new(0);
    let make = || {
        made.set(made.get() + 1);
        Ok(Value::Null)
    };
    for _ in 0..3 {
        documents.get("v2", &resources, "t", make).unwrap();
    }
    assert_eq!(made.get(), 1);
    documents.get("v2", &resources[1..], "t", make).unwrap();
    assert_eq!(made.get(), 2);
}
