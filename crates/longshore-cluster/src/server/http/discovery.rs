//! Descriptions of the API itself: groups, versions, resources, the server's version and its
//! health.

mod aggregated;
mod versions;

use std::collections::BTreeMap;

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, VARY},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    accept::wants_aggregated_discovery,
    body::{ApiBody, json, text},
    route::DiscoveryPath,
};
use crate::server::{
    error::{ApiError, Result},
    registry::{Registry, Resource, Strategy},
    reviews,
};

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

/// Serves the paths below `/api` and `/apis`.
pub(crate) fn describe(
    registry: &Registry,
    path: &DiscoveryPath,
    headers: &HeaderMap,
) -> Result<Response<ApiBody>> {
    let is_top = matches!(path, DiscoveryPath::CoreVersions | DiscoveryPath::Groups);
    if is_top && wants_aggregated_discovery(headers) {
        let document = aggregated::describe(registry, *path == DiscoveryPath::CoreVersions);
        let mut response = cacheable(headers, &document);
        if response.status() == StatusCode::OK {
            let content_type = HeaderValue::from_static(aggregated::CONTENT_TYPE);
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, content_type);
        }
        return Ok(response);
    }
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
        Some(description) => {
            let mut response = json(StatusCode::OK, &description);
            if is_top {
                let vary = HeaderValue::from_static("Accept");
                response.headers_mut().insert(VARY, vary);
            }
            Ok(response)
        }
        None => Ok(text(StatusCode::NOT_FOUND, "404 page not found\n")),
    }
}

/// A document that clients keep: they ask again with its tag and get 304 while it is the same.
fn cacheable(headers: &HeaderMap, document: &Value) -> Response<ApiBody> {
    let encoded = document.to_string();
    let digest = Sha256::digest(encoded.as_bytes());
    let tag: String = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    let tag = format!("\"{tag}\"");
    let is_known = headers
        .get(IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|tags| tags.contains(&tag));
    let mut response = if is_known {
        super::body::not_modified()
    } else {
        super::body::json_bytes(StatusCode::OK, encoded.into())
    };
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
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

/// The versions of every group, the preferred one first.
fn groups(registry: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |group: &str, version: &str| {
        let versions = groups.entry(group.to_owned()).or_default();
        if !versions.iter().any(|known| known == version) {
            versions.push(version.to_owned());
        }
    };
    for served in registry.all() {
        add(&served.resource.group, &served.resource.version);
    }
    for review in reviews::ALL {
        add(review.group, "v1");
    }
    for versions in groups.values_mut() {
        versions.sort_by_cached_key(|version| versions::preference(version));
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
    let reviews = reviews::ALL
        .iter()
        .filter(|review| review.group == group && version == "v1");
    resources.extend(reviews.map(|review| {
        json!({
            "name": review.plural, "singularName": review.kind.to_lowercase(),
            "namespaced": review.is_namespaced, "kind": review.kind, "verbs": ["create"],
        })
    }));
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
    let categories = categories(resource);
    if !categories.is_empty() {
        description["categories"] = categories.into();
    }
    if !resource.short_names.is_empty() {
        description["shortNames"] = resource.short_names.clone().into();
    }
    description
}

/// Names for several resources at once: `kubectl get all`.
fn categories(resource: &Resource) -> Vec<String> {
    const IN_ALL: &[&str] = &[
        "pods",
        "replicationcontrollers",
        "services",
        "daemonsets.apps",
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
        "horizontalpodautoscalers.autoscaling",
        "cronjobs.batch",
        "jobs.batch",
    ];
    let mut categories = resource.categories.clone();
    if IN_ALL.contains(&resource.qualified().as_str()) {
        categories.push("all".to_owned());
    }
    categories
}

/// A proxy takes every method.
const PROXY_VERBS: &[&str] = &["create", "delete", "get", "patch", "update"];

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
    if resource.strategy == Strategy::SigningRequest {
        let verbs = &["get", "patch", "update"];
        parts.push(part("approval", &resource.kind, verbs));
    }
    if resource.has_scale {
        let mut scale = part("scale", "Scale", &["get", "patch", "update"]);
        scale["group"] = "autoscaling".into();
        scale["version"] = "v1".into();
        parts.push(scale);
    }
    if resource.kind == "Pod" && resource.group.is_empty() {
        parts.push(part("binding", "Binding", &["create"]));
        let mut eviction = part("eviction", "Eviction", &["create"]);
        eviction["group"] = "policy".into();
        eviction["version"] = "v1".into();
        parts.push(eviction);
        parts.push(part(
            "ephemeralcontainers",
            "Pod",
            &["get", "patch", "update"],
        ));
        parts.push(part("log", "Pod", &["get"]));
        parts.push(part("exec", "PodExecOptions", &["create", "get"]));
        parts.push(part("attach", "PodAttachOptions", &["create", "get"]));
        parts.push(part(
            "portforward",
            "PodPortForwardOptions",
            &["create", "get"],
        ));
        parts.push(part("proxy", "PodProxyOptions", PROXY_VERBS));
    }
    if resource.kind == "Service" && resource.group.is_empty() {
        parts.push(part("proxy", "ServiceProxyOptions", PROXY_VERBS));
    }
    if resource.kind == "ServiceAccount" && resource.group.is_empty() {
        let mut token = part("token", "TokenRequest", &["create"]);
        token["group"] = "authentication.k8s.io".into();
        token["version"] = "v1".into();
        parts.push(token);
    }
    if resource.kind == "Namespace" && resource.group.is_empty() {
        parts.push(part("finalize", "Namespace", &["update"]));
    }
    parts
}
