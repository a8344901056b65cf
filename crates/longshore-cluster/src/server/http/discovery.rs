//! Descriptions of the API itself: groups, versions, resources, the server's version and its
//! health.

use std::collections::BTreeMap;

use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::body::{ApiBody, json, text};
use super::route::DiscoveryPath;
use crate::server::error::{ApiError, Result};
use crate::server::registry::{Registry, Resource};

/// Paths outside the API groups.
pub(crate) fn other(method: &Method, path: &str) -> Response<ApiBody> {
    let health = ["healthz", "livez", "readyz"];
    let first = path.split('/').next().unwrap_or("");
    match path {
        _ if method != Method::GET => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        "version" => json(StatusCode::OK, &version()),
        _ if health.contains(&first) => text(StatusCode::OK, "ok"),
        _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": "v1.34.2+longshore", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

/// Answers below `/api` and `/apis`.
pub(crate) fn describe(registry: &Registry, path: &DiscoveryPath) -> Result<Response<ApiBody>> {
    let groups = groups(registry);
    let found = match path {
        DiscoveryPath::CoreVersions => Some(json!({
            "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [],
        })),
        DiscoveryPath::Groups => {
            let named = groups.iter().filter(|(group, _)| !group.is_empty());
            let list: Vec<Value> = named
                .map(|(group, versions)| describe_group(group, versions))
                .collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list}))
        }
        DiscoveryPath::Group(group) => groups.get(group).map(|versions| {
            let mut description = describe_group(group, versions);
            description["kind"] = "APIGroup".into();
            description["apiVersion"] = "v1".into();
            description
        }),
        DiscoveryPath::Resources { group, version } => groups
            .get(group)
            .filter(|versions| versions.contains(version))
            .map(|_| describe_resources(registry, group, version)),
    };
    match found {
        Some(description) => Ok(json(StatusCode::OK, &description)),
        None => Ok(text(StatusCode::NOT_FOUND, "404 page not found\n")),
    }
}

/// The failure for a resource path that names nothing: plain text for an unknown group, a Status
/// below a known one.
pub(crate) fn unknown(registry: &Registry, group: &str, version: &str) -> Response<ApiBody> {
    let is_known = groups(registry)
        .get(group)
        .is_some_and(|versions| versions.iter().any(|v| v == version));
    if is_known {
        super::body::failure(&ApiError::no_such_resource())
    } else {
        text(StatusCode::NOT_FOUND, "404 page not found\n")
    }
}

fn groups(registry: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for served in registry.all() {
        let versions = groups.entry(served.resource.group.clone()).or_default();
        if !versions.contains(&served.resource.version) {
            versions.push(served.resource.version.clone());
        }
    }
    groups
}

fn describe_group(group: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}

fn describe_resources(registry: &Registry, group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for served in registry.all() {
        let resource = &served.resource;
        if resource.group == group && resource.version == version {
            resources.push(describe_resource(resource));
            resources.extend(describe_subresources(resource));
        }
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    })
}

fn describe_resource(resource: &Resource) -> Value {
    let mut description = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.is_namespaced(),
        "kind": resource.kind,
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    });
    if !resource.short_names.is_empty() {
        description["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        description["categories"] = resource.categories.clone().into();
    }
    description
}

fn describe_subresources(resource: &Resource) -> Vec<Value> {
    let part = |name: &str, kind: &str, verbs: &[&str]| {
        json!({
            "name": format!("{}/{name}", resource.plural), "singularName": "",
            "namespaced": resource.is_namespaced(), "kind": kind, "verbs": verbs,
        })
    };
    let mut parts = Vec::new();
    if resource.has_status() {
        parts.push(part("status", &resource.kind, &["get", "patch", "update"]));
    }
    if resource.has_scale {
        let mut scale = part("scale", "Scale", &["get", "patch", "update"]);
        scale["group"] = "autoscaling".into();
        scale["version"] = "v1".into();
        parts.push(scale);
    }
    if resource.kind == "Pod" && resource.group.is_empty() {
        parts.push(part("binding", "Binding", &["create"]));
        parts.push(part("eviction", "Eviction", &["create"]));
        parts.push(part(
            "ephemeralcontainers",
            "Pod",
            &["get", "patch", "update"],
        ));
        parts.push(part("log", "Pod", &["get"]));
    }
    if resource.kind == "Namespace" && resource.group.is_empty() {
        parts.push(part("finalize", "Namespace", &["update"]));
    }
    parts
}
