//! The objects of a service, by the paths of its API, as its administrator.

use std::{path::Path, time::Duration};

use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use crate::cluster::config;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(100);

pub(super) struct Objects(Client);

impl Objects {
    pub(super) async fn of(kubeconfig: &Path) -> Self {
        Self(Client::try_from(config(kubeconfig).await).unwrap())
    }

    pub(super) async fn get(&self, path: &str) -> Option<Value> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        match self.0.request(request).await {
            Ok(found) => Some(found),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    pub(super) async fn create(&self, path: &str, object: &Value) {
        let request = http::Request::post(path).header("content-type", "application/json");
        self.send(path, request, object).await;
    }

    /// With a merge patch.
    pub(super) async fn patch(&self, path: &str, patch: &Value) {
        let request = http::Request::patch(path);
        let request = request.header("content-type", "application/merge-patch+json");
        self.send(path, request, patch).await;
    }

    pub(super) async fn delete(&self, path: &str) {
        let request = http::Request::delete(path).body(Vec::new()).unwrap();
        let answer: Result<Value, kube::Error> = self.0.request(request).await;
        assert!(answer.is_ok(), "{path}: {answer:?}");
    }

    async fn send(&self, path: &str, request: http::request::Builder, body: &Value) {
        let request = request.body(body.to_string().into_bytes()).unwrap();
        let answer: Result<Value, kube::Error> = self.0.request(request).await;
        assert!(answer.is_ok(), "{path}: {answer:?}");
    }

    /// What the container of a pod has printed.
    pub(super) async fn log(&self, pod: &str) -> String {
        let request = http::Request::get(format!("{pod}/log")).body(Vec::new());
        self.0.request_text(request.unwrap()).await.unwrap()
    }

    /// Waits until the object is there, and this holds.
    pub(super) async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.get(path).await;
            if let Some(found) = &found
                && holds(found)
            {
                return found.clone();
            }
            assert!(Instant::now() < deadline, "not in time: {path}: {found:?}");
            tokio::time::sleep(STEP).await;
        }
    }

    pub(super) async fn until_gone(&self, path: &str) {
        let deadline = Instant::now() + PATIENCE;
        while let Some(found) = self.get(path).await {
            assert!(Instant::now() < deadline, "not in time: {path}: {found}");
            tokio::time::sleep(STEP).await;
        }
    }
}
