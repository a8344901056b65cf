//! Requests of these tests, as JSON.

use http::Request;
use kube::Client;
use serde_json::Value;

/// What kind of patch it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Merge,
    Strategic,
}

pub(super) async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    client
        .request(Request::get(path).body(Vec::new()).unwrap())
        .await
}

pub(super) async fn create(client: &Client, path: &str, object: &Value) -> kube::Result<Value> {
    send(client, Request::post(path), "application/json", object).await
}

pub(super) async fn patch(
    client: &Client,
    path: &str,
    kind: Asked,
    patch: &Value,
) -> kube::Result<Value> {
    let kind = match kind {
        Asked::Merge => "application/merge-patch+json",
        Asked::Strategic => "application/strategic-merge-patch+json",
    };
    send(client, Request::patch(path), kind, patch).await
}

/// With these options.
pub(super) async fn delete(client: &Client, path: &str, options: Value) -> kube::Result<Value> {
    send(client, Request::delete(path), "application/json", &options).await
}

async fn send(
    client: &Client,
    request: http::request::Builder,
    kind: &str,
    body: &Value,
) -> kube::Result<Value> {
    let request = request.header("content-type", kind);
    let request = request.body(body.to_string().into_bytes());
    client.request(request.unwrap()).await
}
