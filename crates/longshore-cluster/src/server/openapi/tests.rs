//! What clients look for in the documents.

use super::*;
use serde_json::json;

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
        Ok(Vec::new())
    };
    for _ in 0..3 {
        documents.get("v2", &resources, "t", make).unwrap();
    }
    assert_eq!(made.get(), 1);
    documents.get("v2", &resources[1..], "t", make).unwrap();
    assert_eq!(made.get(), 2);
}

#[test]
fn types_in_protobuf_are_the_same_types() {
    let document = json!({
        "swagger": "2.0",
        "definitions": {"a.B": {
            "type": "object",
            "description": "It is.",
            "required": ["c"],
            "properties": {"c": {"type": "array", "items": {"$ref": "#/definitions/a.B"}}},
        }},
    });
    // By hand, after the field numbers of the gnostic models.
    let field = |number: u8, value: &[u8]| {
        let head = vec![number << 3 | 2, value.len() as u8];
        [head, value.to_vec()].concat()
    };
    let long = |number: u8, value: &[u8]| {
        let head = vec![(number & 0x0f) << 3 | 0x82, number >> 4, value.len() as u8];
        [head, value.to_vec()].concat()
    };
    let of_type = |name: &[u8]| long(22, &field(1, name));
    let items = long(23, &field(1, &field(1, b"#/definitions/a.B")));
    let c = [of_type(b"array"), items].concat();
    let properties = field(1, &[field(1, b"c"), field(2, &c)].concat());
    let schema = [
        field(4, b"It is."),
        long(19, b"c"),
        of_type(b"object"),
        long(25, &properties),
    ];
    let named = field(1, &[field(1, b"a.B"), field(2, &schema.concat())].concat());
    let expected = [
        field(1, b"2.0"),
        field(2, &[]),
        field(8, &[]),
        field(9, &named),
    ];
    assert_eq!(binary::encode(&document), expected.concat());
}
