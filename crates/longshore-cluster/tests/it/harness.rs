//! Raw requests in short form, for what a typed client would hide.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use longshore_cluster::{ApiBody, ApiService, Cluster};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A raw client.
#[derive(Clone)]
pub(crate) struct Api(ApiService);

/// Code and decoded body of an answer.
pub(crate) type Answer = (u16, Value);

impl Api {
    pub(crate) fn new(cluster: &Cluster) -> Api {
        Api(cluster.service())
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> http::Response<ApiBody> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(Full::new(body))
            .unwrap();
        self.0.clone().oneshot(request).await.unwrap()
    }

    async fn answer(&self, method: Method, path: &str, content_type: &str, body: Bytes) -> Answer {
        let response = self.send(method, path, content_type, body).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (
            code,
            serde_json::from_slice(&bytes).unwrap_or(Value::String(text)),
        )
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.answer(Method::GET, path, "", Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.answer(
            Method::POST,
            path,
            "application/json",
            body.to_string().into(),
        )
        .await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.answer(
            Method::PUT,
            path,
            "application/json",
            body.to_string().into(),
        )
        .await
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> Answer {
        let body = if options.is_null() {
            String::new()
        } else {
            options.to_string()
        };
        self.answer(Method::DELETE, path, "application/json", body.into())
            .await
    }

    /// A patch in one of the languages `json`, `merge`, `strategic`.
    pub(crate) async fn patch(&self, language: &str, path: &str, patch: Value) -> Answer {
        let content_type = match language {
            "json" => "application/json-patch+json".to_owned(),
            "strategic" => "application/strategic-merge-patch+json".to_owned(),
            "merge" => "application/merge-patch+json".to_owned(),
            other => other.to_owned(),
        };
        self.answer(Method::PATCH, path, &content_type, patch.to_string().into())
            .await
    }

    /// Creates an object that must be accepted.
    pub(crate) async fn make(&self, path: &str, object: Value) -> Value {
        let (code, created) = self.post(path, object).await;
        assert_eq!(code, 201, "{created}");
        created
    }
}

/// A config map with one value.
pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": value}})
}

/// A pod with one container.
pub(crate) fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "i"}]}})
}

/// The same, bound to a node.
pub(crate) fn bound_pod(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = "n1".into();
    pod
}

/// `metadata.resourceVersion` as a number.
pub(crate) fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// Asks until the answer satisfies the condition; fails when it does not within a minute of
/// (paused) time.
pub(crate) async fn eventually(
    api: &Api,
    path: &str,
    is_reached: impl Fn(u16, &Value) -> bool,
) -> Value {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(600);
    loop {
        let (code, object) = api.get(path).await;
        if is_reached(code, &object) {
            return object;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "not reached: {path}: {code} {object}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Asks until the object is gone.
pub(crate) async fn gone(api: &Api, path: &str) {
    eventually(api, path, |code, _| code == 404).await;
}

/// A cluster whose controllers run until the guard is dropped.
pub(crate) fn controlled() -> (Cluster, Api, tokio_util::sync::DropGuard) {
    let cluster = Cluster::in_memory();
    let shutdown = tokio_util::sync::CancellationToken::new();
    tokio::spawn(longshore_cluster::controllers::run(
        cluster.client(),
        shutdown.clone(),
    ));
    let api = Api::new(&cluster);
    (cluster, api, shutdown.drop_guard())
}

/// The first `n` events of a watch from a revision.
pub(crate) async fn events_after(api: &Api, query: &str, after: u64, n: usize) -> Vec<Value> {
    let mut n_left = n;
    let is_last = |_: &Value| {
        n_left -= 1;
        n_left == 0
    };
    events_until(api, query, after, is_last).await
}

/// The events of a watch from a revision, up to the one that is the last.
pub(crate) async fn events_until(
    api: &Api,
    query: &str,
    after: u64,
    mut is_last: impl FnMut(&Value) -> bool,
) -> Vec<Value> {
    let path = format!("{query}&resourceVersion={after}");
    let response = api.send(Method::GET, &path, "", Bytes::new()).await;
    let mut body = response.into_body();
    let mut events = Vec::new();
    while let Some(frame) = body.frame().await {
        let line = frame.unwrap().into_data().unwrap();
        let event = serde_json::from_slice(&line).unwrap();
        let is_last = is_last(&event);
        events.push(event);
        if is_last {
            break;
        }
    }
    events
}
