//! What only shows from the inside: the seam to the store, and that watches leave nothing behind.

use std::{path::Path, sync::Arc, time::Duration};

use ::http::Request;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{
    ApiService, Authorization, Durability, PodIdentity, Server, ServiceRange, Settings, hub::lock,
    store::tests::Log,
};

fn open(log: &Log) -> Arc<Server> {
    let settings = Settings {
        clock: Arc::new(|| Timestamp::UNIX_EPOCH),
        watch_window: 100,
        bookmark_interval: Duration::from_secs(60),
        seed: Some(1),
        durability: Durability::Strict,
        pod_identity: PodIdentity::None,
        authorization: Authorization::AlwaysAllow,
        service_range: ServiceRange::default(),
    };
    Server::open(Box::new(log.clone()), Path::new("log"), settings).unwrap()
}

async fn send(server: &Arc<Server>, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() {
        Bytes::new()
    } else {
        body.to_string().into()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(Full::new(body))
        .unwrap();
    let response = ApiService::new(Arc::clone(server))
        .oneshot(request)
        .await
        .unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"a": "b"}}, "data": {"k": "v"}})
}

#[tokio::test]
async fn a_restart_keeps_objects_and_revisions() {
    let log = Log::default();
    let before = open(&log);
    for name in ["a", "b", "c"] {
        send(&before, "POST", MAPS, map(name)).await;
    }
    send(&before, "DELETE", &format!("{MAPS}/b"), Value::Null).await;
    let (_, list) = send(&before, "GET", MAPS, Value::Null).await;
    drop(before);

    let after = open(&log);
    let (_, restored) = send(&after, "GET", MAPS, Value::Null).await;
    assert_eq!(restored, list);
    let (_, selected) = send(
        &after,
        "GET",
        &format!("{MAPS}?labelSelector=a%3Db"),
        Value::Null,
    )
    .await;
    assert_eq!(selected["items"].as_array().unwrap().len(), 2);
    let (code, made) = send(&after, "POST", MAPS, map("b")).await;
    let number = |it: &Value| {
        it["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert_eq!((code, number(&made)), (201, number(&list) + 1));
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/example.com/v1/namespaces/default/gadgets";

fn gadgets() -> Value {
    json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "deprecated": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "size": {"type": "integer", "default": 3},
                }}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".size"}],
            }],
        },
    })
}

#[tokio::test]
async fn a_restart_keeps_definitions_and_their_objects() {
    let log = Log::default();
    let before = open(&log);
    send(&before, "POST", DEFINITIONS, gadgets()).await;
    let object = json!({"metadata": {"name": "a"}});
    assert_eq!(send(&before, "POST", GADGETS, object).await.0, 201);
    let (_, list) = send(&before, "GET", GADGETS, Value::Null).await;
    let (_, definitions) = send(&before, "GET", DEFINITIONS, Value::Null).await;
    drop(before);

    let after = open(&log);
    let served = after.registry.find("example.com", "v1", "gadgets").unwrap();
    let columns = served.resource.columns().unwrap();
    assert_eq!(columns[0].name, "Size");
    assert_eq!(columns[0].value_in(&list["items"][0]), 3);
    assert_eq!(
        served
            .resource
            .custom
            .as_ref()
            .unwrap()
            .deprecation
            .as_deref(),
        Some("example.com/v1 Gadget is deprecated")
    );
    assert_eq!(send(&after, "GET", GADGETS, Value::Null).await.1, list);
    let (_, again) = send(&after, "GET", DEFINITIONS, Value::Null).await;
    assert_eq!(again, definitions);
}

/// A server that dies between a write and what follows from it.
#[tokio::test]
async fn a_restart_finishes_what_was_begun() {
    let log = Log::default();
    let before = open(&log);
    send(&before, "POST", DEFINITIONS, gadgets()).await;
    let object = json!({"metadata": {"name": "a"}});
    send(&before, "POST", GADGETS, object).await;
    drop(before);
    let last_of = |key: &str| {
        let records = lock(&log.records);
        records
            .iter()
            .rposition(|record| record.key == key)
            .unwrap()
    };
    // The status was never written.
    let status = last_of("gadgets.example.com");
    lock(&log.records).remove(status);
    let between = open(&log);
    assert_eq!(send(&between, "GET", GADGETS, Value::Null).await.0, 200);
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let n_before = lock(&log.records).len();
    send(&between, "DELETE", &path, Value::Null).await;
    drop(between);
    // Only the mark was written, and none of the deletions after it.
    lock(&log.records).truncate(n_before + 1);
    let after = open(&log);
    assert_eq!(send(&after, "GET", &path, Value::Null).await.0, 404);
    let kept = last_of("default/a");
    assert!(lock(&log.records)[kept].json.is_none());
}

#[tokio::test]
async fn a_write_that_cannot_be_stored_does_not_happen() {
    let log = Log::default();
    let server = open(&log);
    let (_, before) = send(&server, "GET", MAPS, Value::Null).await;
    let (code, status) = send(&server, "POST", MAPS, map("refused")).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
    assert!(
        status["message"].as_str().unwrap().contains("disk full"),
        "{status}"
    );
    assert_eq!(send(&server, "GET", MAPS, Value::Null).await.1, before);
    // A medium that failed once is not trusted again.
    let (code, status) = send(&server, "POST", MAPS, map("innocent")).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
    assert!(server.stopped().unwrap().contains("disk full"));
    assert_eq!(send(&server, "GET", MAPS, Value::Null).await.1, before);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watch_leaves_nothing_behind() {
    let server = open(&Log::default());
    let maps = server
        .registry
        .find("", "v1", "configmaps")
        .unwrap()
        .collection;
    let request = Request::get(format!("{MAPS}?watch=true"))
        .body(Full::new(Bytes::new()))
        .unwrap();
    let mut response = ApiService::new(Arc::clone(&server))
        .oneshot(request)
        .await
        .unwrap();
    let nothing = tokio::time::timeout(Duration::from_secs(1), response.body_mut().frame()).await;
    assert!(nothing.is_err());
    assert_eq!(maps.n_watchers(), 1);
    drop(response);
    assert_eq!(maps.n_watchers(), 0);
}
