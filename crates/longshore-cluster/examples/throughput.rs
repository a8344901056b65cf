//! How many small objects a second the cluster takes, in process: `cargo run --release -p
//! longshore-cluster --example throughput`. Numbers are for comparing two versions on one machine,
//! not for promises.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement for developers"
)]
#![expect(clippy::disallowed_methods, reason = "measures real time")]

use std::time::Instant;

use bytes::Bytes;
use futures::future::try_join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use longshore_cluster::{Cluster, Durability};
use serde_json::json;
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const N_CLIENTS: usize = 8;
const N_OBJECTS: usize = 40_000;

fn object(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "labels": {"app": "x"}}, "data": {"value": "v".repeat(200)}})
}

async fn create_raw(cluster: Cluster, client: usize) {
    for index in 0..N_OBJECTS / N_CLIENTS {
        let body = object(&format!("o-{client}-{index}")).to_string();
        let request = Request::post(MAPS)
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let response = cluster.service().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 201);
    }
}

async fn create_typed(api: Api<ConfigMap>, client: usize) {
    for index in 0..N_OBJECTS / N_CLIENTS {
        let object = serde_json::from_value(object(&format!("o-{client}-{index}"))).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

/// Reads a watch until it has seen every object.
async fn watch(cluster: Cluster) {
    let request = Request::get(format!("{MAPS}?watch=true"))
        .body(Full::new(Bytes::new()))
        .unwrap();
    let mut body = cluster
        .service()
        .oneshot(request)
        .await
        .unwrap()
        .into_body();
    for _ in 0..N_OBJECTS {
        body.frame().await.unwrap().unwrap();
    }
}

async fn measure(what: &str, n_watchers: usize, is_typed: bool) {
    let cluster = Cluster::builder().watch_window(N_OBJECTS).build();
    let watchers: Vec<_> = (0..n_watchers)
        .map(|_| tokio::spawn(watch(cluster.clone())))
        .collect();
    let started = Instant::now();
    let clients = (0..N_CLIENTS).map(|client| {
        if is_typed {
            tokio::spawn(create_typed(
                Api::default_namespaced(cluster.client()),
                client,
            ))
        } else {
            tokio::spawn(create_raw(cluster.clone(), client))
        }
    });
    try_join_all(clients).await.unwrap();
    let created = started.elapsed();
    try_join_all(watchers).await.unwrap();
    let seen = started.elapsed();
    let per_second = N_OBJECTS as f64 / created.as_secs_f64();
    println!(
        "{what}: {per_second:.0} creates/s; all events delivered after {seen:.2?} (creates {created:.2?})"
    );
    let started = Instant::now();
    let request = Request::get(MAPS).body(Full::new(Bytes::new())).unwrap();
    let body = cluster
        .service()
        .oneshot(request)
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap();
    let n_bytes = body.to_bytes().len();
    println!(
        "    list of {N_OBJECTS} objects: {:.2?}, {n_bytes} bytes",
        started.elapsed()
    );
}

/// Creates in a directory: how many a second are answered, and how many fit into one sync shows in
/// the difference between one client and many.
async fn measure_directory(durability: Durability, n_clients: usize) {
    const SECONDS: f64 = 3.0;
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let builder = Cluster::builder().durability(durability);
        builder.open(directory.path()).unwrap()
    };
    let cluster = open();
    let started = Instant::now();
    let clients = (0..n_clients).map(|client| {
        let service = cluster.service();
        tokio::spawn(async move {
            let mut n_written = 0;
            while started.elapsed().as_secs_f64() < SECONDS {
                let body = object(&format!("o-{client}-{n_written}")).to_string();
                let request = Request::post(MAPS)
                    .body(Full::new(Bytes::from(body)))
                    .unwrap();
                let response = service.clone().oneshot(request).await.unwrap();
                assert_eq!(response.status(), 201);
                n_written += 1;
            }
            n_written
        })
    });
    let n_written: usize = try_join_all(clients).await.unwrap().into_iter().sum();
    let per_second = n_written as f64 / started.elapsed().as_secs_f64();
    cluster.close();
    let started = Instant::now();
    let reopened = open();
    let opening = started.elapsed();
    reopened.close();
    println!(
        "{durability:?}, {n_clients} clients: {per_second:.0} creates/s; open again with {n_written} objects: \
         {opening:.2?}"
    );
}

#[tokio::main]
async fn main() {
    for durability in [Durability::Strict, Durability::Relaxed] {
        for n_clients in [1, 8, 32] {
            measure_directory(durability, n_clients).await;
        }
    }
    measure("raw service, no watcher", 0, false).await;
    measure("raw service, 100 watchers", 100, false).await;
    measure("kube client, no watcher", 0, true).await;
    measure("kube client, 10 watchers", 10, true).await;
}
