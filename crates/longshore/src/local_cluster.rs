//! The embedded cluster of one process: API server, built-in controllers and a process node.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _};
use longshore_cluster::{Cluster, LogError, LogOptions, LogStream, PodLogs, controllers};
use longshore_node::{ImageMap, Node, NodeConfig};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::CliError;

/// Pods that the node takes at least, however few may run at the same time.
const MIN_PODS: u32 = 110;

/// The embedded cluster of one process. It lives in memory; its node keeps its pods in the data directory, and stops
/// them when it ends.
pub(crate) struct LocalCluster {
    cluster: Cluster,
    claims: PathBuf,
    stop: CancellationToken,
    tasks: [JoinHandle<()>; 2],
}

impl LocalCluster {
    /// Starts it for up to `parallelism` pods at the same time.
    pub(crate) async fn start(data_dir: &Path, parallelism: u32) -> Result<Self, CliError> {
        let cluster = Cluster::in_memory();
        let root = data_dir.join("node");
        let mut config = NodeConfig::new("local", &root, shim_command()?);
        config.images = images(&data_dir.join("images.yaml"))?;
        // Ended pods count until they are deleted.
        config.max_pods = parallelism.saturating_mul(2).max(MIN_PODS);
        let node = Node::new(cluster.client(), config).await;
        let node = node.map_err(|source| CliError::engine("the process node", source))?;
        tracing::info!(profile = %node.profile(), "process node");
        cluster.set_pod_logs(std::sync::Arc::new(NodeLogs(node.clone())));

        let stop = CancellationToken::new();
        let built_in = tokio::spawn(controllers::run(cluster.client(), stop.clone()));
        let token = stop.clone();
        let node = tokio::spawn(async move { Box::pin(node.run(token)).await });
        Ok(Self {
            cluster,
            claims: root.join("volumes"),
            stop,
            tasks: [built_in, node],
        })
    }

    /// A client of its API server.
    pub(crate) fn client(&self) -> kube::Client {
        self.cluster.client()
    }

    /// Stops the pods within their grace, then the rest. Returns the directory of the volume claims.
    pub(crate) async fn stop(self) -> PathBuf {
        self.stop.cancel();
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a part of the embedded cluster broke");
            }
        }
        self.claims
    }
}

/// Our own binary, as the shim above each pod.
fn shim_command() -> Result<Vec<OsString>, CliError> {
    let program = std::env::current_exe();
    let program = program.map_err(|source| CliError::engine("the path of this program", source))?;
    Ok(vec![program.into_os_string(), "shim".into()])
}

/// The image map of the data directory, where there is one.
fn images(path: &Path) -> Result<ImageMap, CliError> {
    if !path.exists() {
        return Ok(ImageMap::default());
    }
    ImageMap::load(path).map_err(|source| CliError::engine("the process node", source))
}

/// Lets the API server ask the node for logs.
struct NodeLogs(Node);

#[async_trait]
impl PodLogs for NodeLogs {
    async fn logs(&self, pod: &Value, options: LogOptions) -> Result<LogStream, LogError> {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let asked = longshore_node::LogOptions {
            follow: options.follow,
            previous: options.previous,
            tail_lines: options.tail_lines.and_then(|n| n.try_into().ok()),
            since: options.since_time,
            since_seconds: options.since_seconds,
            timestamps: options.timestamps,
            limit_bytes: options.limit_bytes.and_then(|n| n.try_into().ok()),
        };
        let container = options.container.as_deref();
        let log = self
            .0
            .logs(text("namespace"), text("name"), container, &asked)
            .await;
        match log {
            Ok(log) => Ok(log.map_err(std::io::Error::other).boxed()),
            Err(error) => Err(refusal(&error)),
        }
    }
}

fn refusal(error: &longshore_node::LogError) -> LogError {
    use longshore_node::LogError as Node;
    let text = error.to_string();
    match error {
        Node::NoPod { .. } => LogError::NotFound(text),
        Node::NoContainer { .. } | Node::Waiting { .. } | Node::NoPrevious { .. } => {
            LogError::BadRequest(text)
        }
        Node::Read { .. } => LogError::Unavailable(text),
    }
}
