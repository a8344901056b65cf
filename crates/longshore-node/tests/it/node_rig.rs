//! A cluster with one process node on it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use longshore_cluster::{Cluster, PodIdentity, controllers};
use longshore_node::{LogOptions, Node, NodeConfig, PodsLifetime, Profile};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than any test takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One run of a node: until it is stopped, or its handle is dropped.
pub(crate) struct RunningNode {
    pub(crate) node: Node,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningNode {
    /// An orderly end.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.expect("the node ends");
    }

    /// As far as a test can kill a node without killing itself: nothing of it runs on.
    pub(crate) async fn kill(self) {
        self.task.abort();
        drop(self.task.await);
    }
}

pub(crate) struct Rig {
    pub(crate) client: Client,
    cluster: Cluster,
    dir: tempfile::TempDir,
    controllers: JoinHandle<()>,
    writes: Arc<Mutex<Vec<String>>>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::of(Cluster::in_memory())
    }

    /// A rig whose pods run as service accounts.
    pub(crate) fn with_accounts() -> Self {
        let builder = Cluster::builder().pod_identity(PodIdentity::ServiceAccounts);
        let rig = Self::of(builder.build());
        let root_ca = Some("PEM".to_owned());
        tokio::spawn(controllers::run_service_accounts(
            rig.client.clone(),
            root_ca,
            CancellationToken::new(),
        ));
        rig
    }

    fn of(cluster: Cluster) -> Self {
        let client = cluster.client();
        let controllers = tokio::spawn(controllers::run(client.clone(), CancellationToken::new()));
        let dir = tempfile::tempdir().expect("a directory");
        Self {
            client,
            cluster,
            dir,
            controllers,
            writes: Arc::default(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn config(&self, lifetime: PodsLifetime) -> NodeConfig {
        let shim = vec![env!("CARGO_BIN_EXE_longshore-shim").into()];
        NodeConfig {
            lifetime,
            ..NodeConfig::new("node-0", self.path().join("node"), shim)
        }
    }

    pub(crate) async fn start(&self) -> RunningNode {
        self.start_with(self.config(PodsLifetime::DieWithNode))
            .await
    }

    /// Starts a node whose writes are counted.
    pub(crate) async fn start_with(&self, config: NodeConfig) -> RunningNode {
        let writes = self.writes.clone();
        let counted = tower::util::MapRequest::new(
            self.cluster.service(),
            move |request: http::Request<kube::client::Body>| {
                let line = format!("{} {}", request.method(), request.uri().path());
                if request.method() != http::Method::GET && line.contains("/pods/") {
                    writes.lock().expect("no panic").push(line);
                }
                request
            },
        );
        let node = Node::new(Client::new(counted, "default"), config)
            .await
            .expect("a node");
        let shutdown = CancellationToken::new();
        let (running, token) = (node.clone(), shutdown.clone());
        let task = tokio::spawn(async move { running.run(token).await });
        RunningNode {
            node,
            shutdown,
            task,
        }
    }

    /// The node's writes to pods so far.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.writes.lock().expect("no panic").clone()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).expect("an object");
        let api = Api::<K>::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &object)
            .await
            .expect("created");
    }

    pub(crate) async fn run(&self, name: &str, spec: Value) {
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.create::<Pod>(pod).await;
    }

    /// The pod once it is as wanted.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let selector = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut last = Value::Null;
        let found = async {
            let mut pods = Box::pin(
                watcher(self.pods(), selector)
                    .default_backoff()
                    .applied_objects(),
            );
            while let Some(pod) = pods.next().await {
                let Ok(pod) = pod else { continue };
                last = serde_json::to_value(pod).expect("JSON");
                if holds(&last["status"]) {
                    return;
                }
            }
        };
        if tokio::time::timeout(PATIENCE, found).await.is_err() {
            panic!("pod {name}: {what} never came true: {:#}", last["status"]);
        }
        last["status"].clone()
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) -> Value {
        self.until(name, phase, |status| status["phase"] == phase)
            .await
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.pods()
            .delete(name, &DeleteParams::default())
            .await
            .expect("deleted");
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let gone = async {
            let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
            let mut events = Box::pin(watcher(self.pods(), config));
            while let Some(event) = events.next().await {
                let is_listed = matches!(&event, Ok(watcher::Event::InitDone));
                if matches!(event, Ok(watcher::Event::Delete(_))) {
                    return;
                }
                if is_listed
                    && self
                        .pods()
                        .get_opt(name)
                        .await
                        .expect("an answer")
                        .is_none()
                {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, gone)
            .await
            .expect("the pod goes");
    }

    pub(crate) async fn uid(&self, name: &str) -> String {
        self.pods()
            .get(name)
            .await
            .expect("a pod")
            .uid()
            .expect("a uid")
    }

    pub(crate) async fn pod_dir(&self, name: &str) -> PathBuf {
        self.path().join("node/pods").join(self.uid(name).await)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.controllers.abort();
    }
}

impl RunningNode {
    /// Of the only container of the pod.
    pub(crate) async fn log(&self, pod: &str, options: LogOptions) -> String {
        self.log_of(pod, None, options).await
    }

    pub(crate) async fn log_of(
        &self,
        pod: &str,
        container: Option<&str>,
        options: LogOptions,
    ) -> String {
        let stream = self
            .node
            .logs("default", pod, container, &options)
            .await
            .expect("a log");
        let pieces: Vec<_> = stream.try_collect().await.expect("reads");
        String::from_utf8(pieces.concat()).expect("text")
    }

    /// Waits until the program has printed this. A pod is `Running` before that.
    pub(crate) async fn until_printed(&self, pod: &str, text: &str) {
        let options = LogOptions {
            follow: true,
            ..LogOptions::default()
        };
        let logs = self.node.logs("default", pod, None, &options);
        let mut stream = Box::pin(logs.await.expect("a log"));
        let mut printed = Vec::new();
        let found = async {
            while !String::from_utf8_lossy(&printed).contains(text) {
                let piece = stream.try_next().await.expect("reads");
                printed.extend(piece.expect("more of the log"));
            }
        };
        tokio::time::timeout(PATIENCE, found)
            .await
            .expect("the program prints it");
    }

    pub(crate) fn has_mounts(&self) -> bool {
        if self.node.profile() == Profile::None {
            println!("SKIPPED: this machine allows no mount namespaces");
            return false;
        }
        true
    }
}

/// A pod spec with one container that runs a script once.
pub(crate) fn script(script: &str) -> Value {
    json!({"restartPolicy": "Never", "containers": [
        {"name": "main", "image": "any", "command": ["sh", "-c", script]},
    ]})
}

/// The end of the container at `index`.
pub(crate) fn end(status: &Value, index: usize) -> &Value {
    &status["containerStatuses"][index]["state"]["terminated"]
}

/// Whether a condition has this status.
pub(crate) fn is(status: &Value, condition: &str, wanted: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|c| c["type"] == condition && c["status"] == wanted)
}

/// Waits until nothing of a directory is left.
pub(crate) async fn until_removed(dir: &Path) {
    let removed = async {
        while dir.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, removed)
        .await
        .expect("the directory goes");
}
