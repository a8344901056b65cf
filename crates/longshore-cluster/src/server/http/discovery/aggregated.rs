//! All groups with all their resources in one document, which saves clients a request per group.

use serde_json::{Value, json};

use super::{categories, describe_subresources, groups};
use crate::server::{
    registry::{Registry, Resource},
    reviews,
};

/// The type of the document, in the words that clients compare.
pub(super) const CONTENT_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The core group (`/api`), or all others (`/apis`).
pub(super) fn describe(registry: &Registry, is_core: bool) -> Value {
    let groups = groups(registry);
    let items: Vec<Value> = groups
        .iter()
        .filter(|(group, _)| group.is_empty() == is_core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| describe_version(registry, group, version))
                .collect();
            let mut metadata = json!({"creationTimestamp": null});
            if !group.is_empty() {
                metadata["name"] = group.as_str().into();
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn describe_version(registry: &Registry, group: &str, version: &str) -> Value {
    let mut resources: Vec<Value> = registry
        .all()
        .iter()
        .map(|served| &served.resource)
        .filter(|resource| resource.group == group && resource.version == version)
        .map(|resource| describe_resource(resource))
        .collect();
    let reviews = reviews::ALL
        .iter()
        .filter(|review| review.group == group && version == "v1");
    resources.extend(reviews.map(|review| {
        json!({
            "resource": review.plural,
            "responseKind": {"group": group, "version": version, "kind": review.kind},
            "scope": scope(review.is_namespaced),
            "singularResource": review.kind.to_lowercase(),
            "verbs": ["create"],
        })
    }));
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn scope(is_namespaced: bool) -> &'static str {
    if is_namespaced {
        "Namespaced"
    } else {
        "Cluster"
    }
}

fn describe_resource(resource: &Resource) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut description = json!({
        "resource": resource.plural,
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": scope(resource.is_namespaced()),
        "singularResource": resource.singular,
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    });
    if !resource.short_names.is_empty() {
        description["shortNames"] = resource.short_names.clone().into();
    }
    let categories = categories(resource);
    if !categories.is_empty() {
        description["categories"] = categories.into();
    }
    let parts: Vec<Value> = describe_subresources(resource)
        .iter()
        .map(|part| {
            let text = |key: &str, other: &str| part[key].as_str().unwrap_or(other).to_owned();
            let name = text("name", "");
            let response_kind = kind(
                &text("group", &resource.group),
                &text("version", &resource.version),
                &text("kind", ""),
            );
            json!({
                "subresource": name.rsplit('/').next(),
                "responseKind": response_kind,
                "verbs": part["verbs"],
            })
        })
        .collect();
    if !parts.is_empty() {
        description["subresources"] = parts.into();
    }
    description
}
