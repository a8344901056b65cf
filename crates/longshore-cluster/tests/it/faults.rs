//! The controllers reach their end although requests fail and watches break.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::{Client, client::Body};
use longshore_cluster::{ApiBody, ApiService, Cluster, controllers};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};

use crate::{
    harness::{Api, PODS, config_map, eventually, gone, pod},
    jobs::{JOBS, count, holds, job, play_node, pods},
};

/// Fails a third of the requests: before they are served, or after, so that the answer is lost. A
/// fixed seed without a period selects them, so that no client's retries fall in step with it.
#[derive(Clone)]
struct Flaky {
    inner: ApiService,
    n_requests: Arc<AtomicU64>,
}

impl Service<Request<Body>> for Flaky {
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<ApiBody>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let n = self.n_requests.fetch_add(1, Ordering::Relaxed);
        let inner = self.inner.clone();
        Box::pin(async move {
            match scatter(n) % 6 {
                0 => Ok(unavailable()),
                1 => inner.oneshot(request).await.map(|_| unavailable()),
                _ => inner.oneshot(request).await,
            }
        })
    }
}

fn scatter(n: u64) -> u64 {
    let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 31)
}

fn unavailable() -> Response<ApiBody> {
    let body = Full::new(bytes::Bytes::from("broken")).map_err(|never| match never {});
    Response::builder()
        .status(503)
        .body(body.boxed_unsync())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn controllers_reach_their_end_in_spite_of_faults() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    let flaky = Flaky {
        inner: cluster.service(),
        n_requests: Arc::default(),
    };
    let shutdown = CancellationToken::new();
    tokio::spawn(controllers::run(
        Client::new(flaky, "default"),
        shutdown.clone(),
    ));
    let _guard = shutdown.drop_guard();

    let namespace = "/api/v1/namespaces/x";
    let maps = format!("{namespace}/configmaps");
    api.make("/api/v1/namespaces", json!({"metadata": {"name": "x"}}))
        .await;
    let owner = api.make(&maps, config_map("owner", "1")).await;
    for index in 0..20 {
        let mut child = config_map(&format!("child-{index}"), "1");
        child["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        }]);
        api.make(&maps, child).await;
    }
    api.make(
        "/api/v1/nodes",
        json!({"metadata": {"name": "n1"}, "status": {
        "conditions": [{"type": "Ready", "status": "True"}]}}),
    )
    .await;
    api.make(PODS, pod("a")).await;
    api.delete(&format!("{maps}/owner"), Value::Null).await;
    // Meanwhile every watch breaks.
    for _ in 0..5 {
        cluster.expire_watches();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let is_empty = |_, list: &Value| list["items"].as_array().is_some_and(Vec::is_empty);
    eventually(&api, &maps, is_empty).await;
    eventually(&api, &format!("{PODS}/a"), |_, pod| {
        pod["spec"]["nodeName"] == "n1"
    })
    .await;
    api.make(&maps, config_map("left", "1")).await;
    api.delete(namespace, Value::Null).await;
    gone(&api, namespace).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_counts_each_pod_once_in_spite_of_faults() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    let flaky = Flaky {
        inner: cluster.service(),
        n_requests: Arc::default(),
    };
    let shutdown = CancellationToken::new();
    tokio::spawn(controllers::run(
        Client::new(flaky, "default"),
        shutdown.clone(),
    ));
    let _guard = shutdown.drop_guard();
    let _node = play_node(&api).await;
    let spec = json!({"completions": 12, "parallelism": 4, "backoffLimit": 1000});
    api.make(JOBS, job("mixed", spec)).await;
    let done = holds(&api, "Complete").await;
    let pods = pods(&api).await;
    let status = &done["status"];
    let found = (&status["succeeded"], &status["failed"]);
    let n_failed = count(&pods, "Failed");
    let expected = (&json!(count(&pods, "Succeeded")), &json!(n_failed));
    assert!(n_failed > 0, "{pods:#?}");
    assert_eq!(found, expected, "{status:#}");
    assert_eq!(status["succeeded"], 12);
    // The last finalizers may still be on their way.
    let is_free = |_, list: &Value| {
        let mut pods = list["items"].as_array().into_iter().flatten();
        pods.all(|it| it["metadata"].get("finalizers").is_none())
    };
    eventually(&api, PODS, is_free).await;
}
