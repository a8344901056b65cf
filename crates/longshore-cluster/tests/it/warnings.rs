//! What a client should know about a request that is answered all the same, and which version of a
//! group it should use.

use bytes::Bytes;
use http::Method;
use longshore_cluster::Cluster;
use serde_json::{Value, json};

use crate::{
    definitions::{DEFINITIONS, GADGETS, gadget, gadgets},
    harness::{Api, PODS, pod},
};

const OLD_GADGETS: &str = "/apis/example.com/v2/namespaces/default/gadgets";

/// Gadgets whose version 2 is deprecated.
async fn with_old_gadgets() -> Api {
    let api = Api::new(&Cluster::in_memory());
    let mut definition = gadgets();
    definition["spec"]["versions"][1]["deprecated"] = true.into();
    api.make(DEFINITIONS, definition).await;
    api
}

/// Code and warnings of an answer.
async fn warned(
    api: &Api,
    method: Method,
    path: &str,
    content_type: &str,
    body: Value,
) -> (u16, Vec<String>) {
    let body = Bytes::from(body.to_string());
    let response = api.send(method, path, content_type, body).await;
    let warnings = response.headers().get_all("warning").iter();
    let texts = warnings.map(|it| it.to_str().unwrap().to_owned()).collect();
    (response.status().as_u16(), texts)
}

#[tokio::test]
async fn odd_fields_of_custom_objects_are_warned_about_or_refused() {
    let api = with_old_gadgets().await;
    let mut odd = gadget("a");
    odd["spec"]["sice"] = 1.into();
    let warning = vec!["299 - \"unknown field \\\"spec.sice\\\"\"".to_owned()];
    let json = "application/json";
    for (option, expected) in [
        ("Strict", (400, vec![])),
        ("Warn", (201, warning.clone())),
        ("Ignore", (409, vec![])),
    ] {
        let path = format!("{GADGETS}?fieldValidation={option}");
        let found = warned(&api, Method::POST, &path, json, odd.clone()).await;
        assert_eq!(found, expected, "{option}");
    }
    let patch = json!({"spec": {"sice": 2, "size": 2}});
    let merge = "application/merge-patch+json";
    for (option, expected) in [
        ("Strict", (422, vec![])),
        ("Warn", (200, warning)),
        ("Ignore", (200, vec![])),
    ] {
        let path = format!("{GADGETS}/a?fieldValidation={option}");
        let found = warned(&api, Method::PATCH, &path, merge, patch.clone()).await;
        assert_eq!(found, expected, "{option}");
    }
}

#[tokio::test]
async fn every_answer_of_a_deprecated_version_says_so() {
    let api = with_old_gadgets().await;
    api.make(GADGETS, gadget("a")).await;
    let deprecated = vec!["299 - \"example.com/v2 Gadget is deprecated\"".to_owned()];
    for (method, path) in [
        (Method::GET, OLD_GADGETS.to_owned()),
        (Method::GET, format!("{OLD_GADGETS}/a")),
        (Method::GET, format!("{OLD_GADGETS}?watch=true")),
        (Method::DELETE, format!("{OLD_GADGETS}/a")),
    ] {
        let found = warned(&api, method.clone(), &path, "application/json", json!({})).await;
        assert_eq!(found, (200, deprecated.clone()), "{method} {path}");
    }
    let found = warned(&api, Method::GET, GADGETS, "", Value::Null).await;
    assert_eq!(found, (200, vec![]));
}

#[tokio::test]
async fn the_newest_stable_version_is_preferred() {
    let api = with_old_gadgets().await;
    for (path, expected) in [
        ("/apis/example.com", "v2"),
        ("/apis/autoscaling", "v2"),
        ("/apis/apps", "v1"),
    ] {
        let (_, group) = api.get(path).await;
        assert_eq!(group["preferredVersion"]["version"], expected, "{path}");
    }
}

#[tokio::test]
async fn kinds_that_are_only_stored_say_so_with_every_write() {
    let api = Api::new(&Cluster::in_memory());
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let policy = json!({"metadata": {"name": "a"}, "spec": {"podSelector": {}}});
    let warning = "299 - \"NetworkPolicy objects are only stored: no controller of this cluster acts on them\"";
    let json = "application/json";
    let created = warned(&api, Method::POST, policies, json, policy).await;
    assert_eq!(created, (201, vec![warning.to_owned()]));
    let path = format!("{policies}/a");
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let merge = "application/merge-patch+json";
    let patched = warned(&api, Method::PATCH, &path, merge, patch).await;
    assert_eq!(patched, (200, vec![warning.to_owned()]));
    for (method, path) in [(Method::GET, &path), (Method::DELETE, &path)] {
        let found = warned(&api, method.clone(), path, json, json!({})).await;
        assert_eq!(found, (200, vec![]), "{method} {path}");
    }
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"app": "a"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    });
    let created = warned(&api, Method::POST, deployments, json, deployment).await;
    assert_eq!(created, (201, vec![]));
}

#[tokio::test]
async fn namespaces_that_ask_for_pod_security_are_told_that_nothing_enforces_it() {
    let api = Api::new(&Cluster::in_memory());
    let label = "pod-security.kubernetes.io/enforce";
    let of = |level: &str| {
        vec![format!(
            "299 - \"this cluster does not enforce Pod Security, and pods of this namespace may do more than it says: \
             {label}={level}\""
        )]
    };
    let namespace = json!({"metadata": {"name": "safe", "labels": {label: "baseline"}}});
    let (json, merge) = ("application/json", "application/merge-patch+json");
    let path = "/api/v1/namespaces";
    let created = warned(&api, Method::POST, path, json, namespace).await;
    assert_eq!(created, (201, of("baseline")));
    let path = "/api/v1/namespaces/safe";
    for (level, expected) in [("restricted", of("restricted")), ("privileged", vec![])] {
        let patch = json!({"metadata": {"labels": {label: level}}});
        let patched = warned(&api, Method::PATCH, path, merge, patch).await;
        assert_eq!(patched, (200, expected), "{level}");
    }
}

#[tokio::test]
async fn rules_that_are_not_enforced_say_so_with_every_write() {
    let api = Api::new(&Cluster::in_memory());
    let mut definition = gadgets();
    let size = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
    let size = definition.pointer_mut(size).unwrap();
    size["x-kubernetes-validations"] = json!([{"rule": "self > 1"}]);
    let json = "application/json";
    let unenforced = |rest: &str| {
        vec![format!(
            "299 - \"this cluster does not enforce x-kubernetes-validations: {rest}\""
        )]
    };
    let created = warned(&api, Method::POST, DEFINITIONS, json, definition).await;
    let of_version = unenforced("1 rule in spec.versions[0].schema.openAPIV3Schema");
    assert_eq!(created, (201, of_version));
    let of_object = unenforced("1 rule of its definition");
    let created = warned(&api, Method::POST, GADGETS, json, gadget("a")).await;
    assert_eq!(created, (201, of_object));
    // The other version has no rule.
    let created = warned(&api, Method::POST, OLD_GADGETS, json, {
        let mut other = gadget("b");
        other["apiVersion"] = "example.com/v2".into();
        other
    })
    .await;
    assert_eq!(created, (201, vec![]));
    // Nobody can change a rule by a status.
    let status = json!({"status": {"phase": "x"}});
    let merge = "application/merge-patch+json";
    let path = format!("{GADGETS}/a/status");
    let patched = warned(&api, Method::PATCH, &path, merge, status).await;
    assert_eq!(patched, (200, vec![]));
}

#[tokio::test]
async fn what_kubernetes_has_and_this_server_does_not_is_not_implemented() {
    let api = Api::new(&Cluster::in_memory());
    api.make(PODS, pod("a")).await;
    for (path, code) in [
        ("/apis/networking.k8s.io/v1/servicecidrs", 501),
        ("/apis/storage.k8s.io/v1/csidrivers/n", 501),
        ("/apis/storage.k8s.io/v1/nothings", 404),
        ("/apis/example.org/v1/things", 404),
        ("/api/v1/namespaces/default/pods/a/resize", 501),
        ("/api/v1/namespaces/default/pods/a/nothing", 404),
    ] {
        let (found, status) = api.get(path).await;
        assert_eq!(found, code, "{path}: {status}");
        if code == 501 {
            let message = status["message"].as_str().unwrap();
            assert!(
                message.starts_with("this cluster does not implement "),
                "{message}"
            );
        }
    }
}
