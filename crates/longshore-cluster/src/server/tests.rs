//! What only shows from the inside: the seam to the store, and that watches leave nothing behind.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::http::Request;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::store::tests::Log;
use super::{ApiService, Durability, Server, Settings};

fn open(log: &Log) -> Arc<Server> {
    let settings = Settings {
        clock: Arc::new(|| Timestamp::UNIX_EPOCH),
        watch_window: 100,
        bookmark_interval: Duration::from_secs(60),
        seed: Some(1),
        durability: Durability::Strict,
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
