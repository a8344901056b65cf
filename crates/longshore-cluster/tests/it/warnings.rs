//! What a client should know about a request that is answered all the same, and which version of a
//! group it should use.

use bytes::Bytes;
use http::Method;
use longshore_cluster::Cluster;
use serde_json::{Value, json};

use crate::{
    definitions::{DEFINITIONS, GADGETS, gadget, gadgets},
    harness::Api,
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
