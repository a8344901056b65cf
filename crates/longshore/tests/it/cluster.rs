//! A Kubernetes cluster of a test: a real one where `LONGSHORE_TEST_KUBECONFIG` names it, else the embedded one behind
//! its socket. A namespace of its own, and a node that plays scripts instead of containers.

use std::{fs, io, net::Ipv4Addr, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client, Config, ResourceExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_api::flyte::LABEL_ATTEMPT;
use longshore_cluster::{Cluster, LogError, LogOptions, LogStream, PodLogs, ServeConfig, Serving};
use longshore_kit::SystemClock;
use longshore_node::{ContainerLogs, LogListener, LogServer};
use longshore_test::{NodeConfig, ScriptedNode, real::serve_logs};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::longshore;

/// The kubeconfig of a real cluster, where there is one.
pub(crate) fn real() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
    std::env::var_os("LONGSHORE_TEST_KUBECONFIG").map(PathBuf::from)
}

/// The cluster.
pub(crate) struct TestCluster {
    pub(crate) namespace: String,
    /// May do everything.
    pub(crate) admin: Client,
    pub(crate) node: ScriptedNode,
    admin_kubeconfig: PathBuf,
    pub(crate) folder: TempDir,
    embedded: Option<(Cluster, Serving)>,
    _logs: Option<LogServer>,
}

/// What the node of a cluster does beside playing scripts.
struct Node {
    /// What the code of each pod does at its end.
    at_the_end: fn(&Pod, i32),
    /// The logs of the pods; without them, a log cannot be read.
    logs: Option<Arc<dyn ContainerLogs>>,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            at_the_end: |_, _| {},
            logs: None,
        }
    }
}

/// The logs of the embedded cluster.
struct EmbeddedLogs(Arc<dyn ContainerLogs>);

#[async_trait]
impl PodLogs for EmbeddedLogs {
    async fn logs(&self, pod: &Value, options: LogOptions) -> Result<LogStream, LogError> {
        let text = |name: &str| pod["metadata"][name].as_str().unwrap_or_default();
        let container = options.container.unwrap_or_default();
        let of_all = longshore_node::LogOptions::default();
        let log = self
            .0
            .logs(text("namespace"), text("name"), &container, &of_all);
        let log = log.await;
        let log = log.map_err(|error| LogError::Unavailable(error.to_string()))?;
        Ok(log.map_err(io::Error::other).boxed())
    }
}

impl TestCluster {
    /// A namespace of the real one, where there is one.
    pub(crate) async fn start() -> Self {
        Self::on(real(), Node::default()).await
    }

    /// The same, where the code of each pod does this at its end.
    pub(crate) async fn playing(at_the_end: fn(&Pod, i32)) -> Self {
        let node = Node {
            at_the_end,
            ..Node::default()
        };
        Self::on(real(), node).await
    }

    /// The same, where the pods have these logs.
    pub(crate) async fn playing_with_logs(
        at_the_end: fn(&Pod, i32),
        logs: Arc<dyn ContainerLogs>,
    ) -> Self {
        let logs = Some(logs);
        Self::on(real(), Node { at_the_end, logs }).await
    }

    /// The embedded one, whatever else there is.
    pub(crate) async fn embedded() -> Self {
        Self::on(None, Node::default()).await
    }

    /// The same, where the code of each pod does this at its end.
    pub(crate) async fn embedded_playing(at_the_end: fn(&Pod, i32)) -> Self {
        let node = Node {
            at_the_end,
            ..Node::default()
        };
        Self::on(None, node).await
    }

    async fn on(real: Option<PathBuf>, node: Node) -> Self {
        let folder = TempDir::new().unwrap();
        let (admin_kubeconfig, embedded) = match real {
            Some(path) => (path, None),
            None => {
                let cluster = Cluster::in_memory();
                let config = ServeConfig {
                    address: ([127, 0, 0, 1], 0).into(),
                    ..ServeConfig::new(folder.path())
                };
                let serving = cluster.serve(config).unwrap();
                (serving.kubeconfig().to_owned(), Some((cluster, serving)))
            }
        };
        let config = config(&admin_kubeconfig).await;
        let readers = config.root_cert.clone().unwrap_or_default();
        let admin = Client::try_from(config).unwrap();
        let id = uuid::Uuid::new_v4().simple().to_string();
        let namespace = format!("test-{}", &id[..8]);
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        create(&admin, "/api/v1/namespaces", &object).await;
        let mut node_config = NodeConfig {
            namespace: Some(namespace.clone()),
            start_delay: Duration::from_millis(20),
            attempt,
            at_the_end: node.at_the_end,
            ..NodeConfig::default()
        };
        let mut log_server = None;
        match (node.logs, &embedded) {
            (None, _) => {}
            (Some(logs), Some((cluster, _))) => cluster.set_pod_logs(Arc::new(EmbeddedLogs(logs))),
            (Some(logs), None) => {
                node_config.name.clone_from(&namespace);
                let address = (Ipv4Addr::LOCALHOST, 0).into();
                let listener = LogListener::bind(address, &readers).unwrap();
                let served = serve_logs(admin.clone(), &namespace, listener, logs).await;
                log_server = Some(served.unwrap());
            }
        }
        let node = ScriptedNode::start(admin.clone(), Arc::new(SystemClock), node_config);
        Self {
            namespace,
            admin,
            node,
            admin_kubeconfig,
            folder,
            embedded,
            _logs: log_server,
        }
    }

    /// Makes another namespace, whose pods have a node of their own.
    pub(crate) async fn beside(&self, suffix: &str) -> Beside {
        let namespace = format!("{}-{suffix}", self.namespace);
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        create(&self.admin, "/api/v1/namespaces", &object).await;
        let config = NodeConfig {
            namespace: Some(namespace.clone()),
            start_delay: Duration::from_millis(20),
            attempt,
            ..NodeConfig::default()
        };
        Beside {
            namespace,
            _node: ScriptedNode::start(self.admin.clone(), Arc::new(SystemClock), config),
        }
    }

    pub(crate) fn is_real(&self) -> bool {
        self.embedded.is_none()
    }

    /// The kubeconfig of an administrator, who may do everything.
    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.admin_kubeconfig.clone()
    }

    /// The file of the authority that signs the client certificate of the API server for webhooks: `cargo xtask
    /// real-cluster` and the embedded one have it beside the kubeconfig.
    pub(crate) fn webhook_client_authority(&self) -> PathBuf {
        let name = match self.is_real() {
            true => "ca.crt",
            false => "webhook-client-ca.crt",
        };
        self.admin_kubeconfig.with_file_name(name)
    }

    /// Applies what `longshore controller rbac` prints for this role; the kubeconfig of its service account.
    pub(crate) async fn account(&self, role: &str) -> PathBuf {
        self.grant(&["--enable", role]).await;
        self.token().await
    }

    /// Applies what `longshore controller rbac` prints with these arguments; the objects.
    pub(crate) async fn grant(&self, arguments: &[&str]) -> Vec<Value> {
        let mut command = longshore();
        command.args(["controller", "rbac", "-o", "json", "-n", &self.namespace]);
        let output = command.args(arguments).output().unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        let objects = list["items"].as_array().unwrap().clone();
        for object in &objects {
            apply(&self.admin, object).await;
        }
        objects
    }

    /// The kubeconfig of the service account.
    pub(crate) async fn token(&self) -> PathBuf {
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/longshore/token",
            self.namespace
        );
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": 3600},
        });
        let answer = create(&self.admin, &path, &request).await;
        let admin = fs::read_to_string(&self.admin_kubeconfig).unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&admin).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": answer["status"]["token"]});
        let file = self.folder.path().join("account.kubeconfig");
        fs::write(&file, kubeconfig.to_string()).unwrap();
        file
    }
}

/// Another namespace of a test.
pub(crate) struct Beside {
    pub(crate) namespace: String,
    _node: ScriptedNode,
}

/// Which attempt a pod is, of a task of a DAG or of a TaskAction.
fn attempt(pod: &Pod) -> usize {
    let labels = pod.labels();
    let label = labels
        .get("try_number")
        .or_else(|| labels.get(LABEL_ATTEMPT));
    label.and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// How a cluster is reached by its kubeconfig.
pub(crate) async fn config(kubeconfig: &std::path::Path) -> Config {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .unwrap()
}

async fn create(admin: &Client, path: &str, object: &Value) -> Value {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes());
    admin.request(request.unwrap()).await.unwrap()
}

/// As `kubectl apply --server-side` does it.
async fn apply(admin: &Client, object: &Value) {
    let path = format!(
        "{}/{}?fieldManager=test&force=true",
        path(object),
        object["metadata"]["name"].as_str().unwrap()
    );
    let request = http::Request::patch(path)
        .header("content-type", "application/apply-patch+yaml")
        .body(object.to_string().into_bytes());
    let _: Value = admin.request(request.unwrap()).await.unwrap();
}

/// Where the objects of a manifest are.
fn path(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version == "v1" { "/api" } else { "/apis" };
    let kind = object["kind"].as_str().unwrap().to_ascii_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{version}/{plural}"),
    }
}
