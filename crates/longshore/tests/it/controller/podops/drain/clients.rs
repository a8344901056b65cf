//! The clients that drain a node: some do what `kubectl drain` does, and one is kubectl itself.

use std::{
    path::PathBuf,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use kube::Client;
use longshore_api::podops::EVICTION_POLICY;
use serde_json::{Value, json};

use super::super::http;

/// Where an answer does not say when to come again.
const RETRY: Duration = Duration::from_secs(5);
/// After an answer that says nothing about the pod: no webhook answered the API server.
const FAILED_RETRY: Duration = Duration::from_millis(500);
/// Between looks whether a pod is gone.
const LOOK: Duration = Duration::from_millis(300);

/// The number of requests, by their answers.
#[derive(Debug, Default)]
pub(super) struct Counts {
    asked: AtomicU64,
    granted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    kubectl_runs: AtomicU64,
}

impl Counts {
    pub(super) fn to_value(&self) -> Value {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        json!({
            "asked": read(&self.asked), "granted": read(&self.granted), "refused_with_429": read(&self.refused),
            "failed_while_nobody_answered": read(&self.failed), "runs_of_kubectl_drain": read(&self.kubectl_runs),
        })
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// How a client says which pod is to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// By name, as kubectl does: the next pod of that name is evicted as well, when another client was faster.
    Name,
    /// This incarnation and no other.
    Uid,
}

/// Evicts all pods of a node, until there are none.
#[derive(Clone)]
pub(super) struct Drainer {
    pub(super) by: By,
    pub(super) client: Client,
    pub(super) namespace: String,
    /// `None`: when the answer says.
    pub(super) retry: Option<Duration>,
    pub(super) counts: Arc<Counts>,
}

impl Drainer {
    pub(super) async fn drain(&self, node: &str) {
        loop {
            let pods = self.pods_on(node).await;
            if pods.is_empty() {
                return;
            }
            join_all(pods.iter().map(|pod| self.evict(pod))).await;
        }
    }

    /// The pods of this node.
    pub(super) async fn pods_on(&self, node: &str) -> Vec<Value> {
        let list = http::get(&self.client, &self.path("")).await.unwrap();
        let pods = list["items"].as_array().unwrap().iter();
        pods.filter(|pod| pod["spec"]["nodeName"] == node)
            .cloned()
            .collect()
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/pods{rest}", self.namespace)
    }

    /// Asks until it is granted or there is no such pod, and waits until the pod is gone.
    async fn evict(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let mut eviction = eviction(&self.namespace, name);
        if self.by == By::Uid {
            let uid = &pod["metadata"]["uid"];
            eviction["deleteOptions"] = json!({"preconditions": {"uid": uid}});
        }
        let path = self.path(&format!("/{name}/eviction"));
        loop {
            add(&self.counts.asked);
            let wait = match http::create(&self.client, &path, &eviction).await {
                Ok(_) => {
                    add(&self.counts.granted);
                    break;
                }
                Err(kube::Error::Api(status)) if status.code == 404 => break,
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    if self.is_gone(pod, name).await {
                        break;
                    }
                    LOOK
                }
                Err(kube::Error::Api(status)) if status.code == 429 => {
                    add(&self.counts.refused);
                    let told = status
                        .details
                        .map_or(0, |details| details.retry_after_seconds);
                    let told = Duration::from_secs(u64::from(told));
                    self.retry
                        .unwrap_or(if told.is_zero() { RETRY } else { told })
                }
                // A user who drains by hand begins again.
                Err(kube::Error::Api(status)) if is_unanswered(status.code, &status.message) => {
                    add(&self.counts.failed);
                    FAILED_RETRY
                }
                Err(error) => panic!("{path}: {error}"),
            };
            tokio::time::sleep(wait).await;
        }
        self.until_gone(pod, name).await;
    }

    async fn until_gone(&self, pod: &Value, name: &str) {
        while !self.is_gone(pod, name).await {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Another pod of that name is not this one.
    async fn is_gone(&self, pod: &Value, name: &str) -> bool {
        match http::get(&self.client, &self.path(&format!("/{name}"))).await {
            Ok(found) => found["metadata"]["uid"] != pod["metadata"]["uid"],
            Err(kube::Error::Api(status)) => status.code == 404,
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// Whether no controller has answered the API server: its policy refuses such evictions, or it says that it cannot know.
fn is_unanswered(code: u16, message: &str) -> bool {
    code >= 500 || (code == 403 && message.contains(EVICTION_POLICY))
}

/// What asks for the eviction of a pod.
pub(super) fn eviction(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    })
}

/// The real one.
#[derive(Clone, Debug)]
pub(super) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// The one that `LONGSHORE_TEST_KUBECTL` names.
    pub(super) fn given(kubeconfig: PathBuf) -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
        let program = std::env::var_os("LONGSHORE_TEST_KUBECTL")?;
        Some(Self {
            program: program.into(),
            kubeconfig,
        })
    }

    /// `kubectl drain` with these further arguments.
    pub(super) async fn drain(&self, node: &str, more: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(["drain", node, "--force", "--ignore-daemonsets"]);
        command.args(more);
        let run = tokio::task::spawn_blocking(move || command.output());
        run.await.unwrap().unwrap()
    }

    /// Runs [`drain`](Self::drain) until it succeeds: kubectl gives up when no webhook answers the API server.
    pub(super) async fn drain_until_done(&self, node: &str, limit: Duration, counts: &Counts) {
        let timeout = format!("--timeout={}s", limit.as_secs());
        loop {
            add(&counts.kubectl_runs);
            let run = self.drain(node, &[&timeout]).await;
            if run.status.success() {
                return;
            }
            let text = String::from_utf8_lossy(&run.stderr);
            let is_for_us =
                text.contains("failed calling webhook") || text.contains(EVICTION_POLICY);
            assert!(is_for_us, "kubectl drain {node}: {text}");
            tokio::time::sleep(FAILED_RETRY).await;
        }
    }
}
