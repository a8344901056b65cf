//! How long a large definition takes, and its objects: `cargo run --release -p longshore-cluster
//! --example definitions`. Numbers are for comparing two versions on one machine.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement for developers"
)]
#![expect(clippy::disallowed_methods, reason = "measures real time")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use longshore_cluster::Cluster;
use serde_json::Value;
use tower::ServiceExt;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEPLOYMENTS: &str = "/apis/flink.apache.org/v1beta1/namespaces/default/flinkdeployments";
const N_OBJECTS: u32 = 500;

fn file(name: &str) -> Value {
    let path = format!("{}/testdata/crds/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

async fn send(cluster: &Cluster, method: &str, path: &str, body: &Value) -> (u16, Duration) {
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
    let start = Instant::now();
    let response = cluster.service().oneshot(request).await.unwrap();
    (response.status().as_u16(), start.elapsed())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let cluster = Cluster::in_memory();
    let definition = file("flinkdeployments.flink.apache.org-v1.yml");
    let (code, applied) = send(&cluster, "POST", DEFINITIONS, &definition).await;
    assert_eq!(code, 201);
    let (code, listed) = send(&cluster, "GET", DEPLOYMENTS, &Value::Null).await;
    assert_eq!(code, 200);
    println!("definition: {applied:?}, first list after it: {listed:?}");
    let mut deployment = file("flink-basic.yaml");
    let mut total = Duration::ZERO;
    for index in 0..N_OBJECTS {
        deployment["metadata"]["name"] = format!("d-{index}").into();
        let (code, took) = send(&cluster, "POST", DEPLOYMENTS, &deployment).await;
        assert_eq!(code, 201);
        total += took;
    }
    println!("FlinkDeployment created: {:?} each", total / N_OBJECTS);
    let (_, listed) = send(&cluster, "GET", DEPLOYMENTS, &Value::Null).await;
    println!("list of {N_OBJECTS}: {listed:?}");
}
