//! What is not under test: API server, namespace, node.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config, ResourceExt,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_client::{Permit, client_builder};
use longshore_cluster::{
    Cluster, LogError, LogOptions, LogStream as PodLogStream, PodLogs, ServeConfig, Serving,
};
use longshore_kit::{CountRequests, Metrics, SystemClock};
use longshore_node::{ContainerLogs, log_server::LogStream};
use longshore_test::{NodeConfig, RealNamespace, RealServer, ScriptedNode, flyte::outputs};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::layer::layer_fn;

/// The rig. Dropping it ends what it started.
pub(crate) struct Rig {
    pub(crate) client: Client,
    /// The requests of all clients of this process, the node's included.
    pub(crate) requests: Metrics,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) namespace: String,
    /// `embedded`, or the version of the real server.
    pub(crate) server: String,
    pub(crate) folder: TempDir,
    _embedded: Option<(Cluster, Serving)>,
    /// What goes with the rig, on a server that stays.
    fresh: Option<RealNamespace>,
    _node: ScriptedNode,
}

impl Rig {
    /// Starts an embedded API server, or takes the one of `kubeconfig`; a fresh namespace of it, or `namespace`; a node
    /// that plays its pods, each of which ends as soon as it has begun.
    pub(crate) async fn start(kubeconfig: Option<&Path>, namespace: Option<&str>) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("longshore-bench-")
            .tempdir()?;
        match kubeconfig {
            Some(path) => Self::real(folder, path, namespace).await,
            None => Self::embedded(folder).await,
        }
    }

    async fn embedded(folder: TempDir) -> Result<Self> {
        let cluster = Cluster::in_memory();
        cluster.set_pod_logs(Arc::new(OneLine));
        let serving = cluster.serve(ServeConfig {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            ..ServeConfig::new(folder.path())
        })?;
        let kubeconfig = serving.kubeconfig().to_owned();
        // The driver goes over the wire too, as it does with a real server.
        let requests = Metrics::new();
        let client = client(&kubeconfig, &requests).await?;
        let namespace = create_namespace(&client).await?;
        let node = NodeConfig {
            namespace: Some(namespace.clone()),
            ..NodeConfig::default()
        };
        Ok(Self {
            _node: start_node(&client, node),
            client,
            requests,
            kubeconfig,
            namespace,
            server: "embedded".to_owned(),
            folder,
            _embedded: Some((cluster, serving)),
            fresh: None,
        })
    }

    async fn real(folder: TempDir, kubeconfig: &Path, namespace: Option<&str>) -> Result<Self> {
        let requests = Metrics::new();
        let client = client(kubeconfig, &requests).await?;
        let server = RealServer::of(kubeconfig);
        let fresh = RealNamespace::create(&server, "bench").await;
        let mut fresh = fresh.map_err(|error| anyhow!("no namespace can be made: {error}"))?;
        // Named after the fresh namespace, wherever its pods are.
        let node = fresh.add_node(Arc::new(OneLine)).await;
        let node = node.map_err(|error| anyhow!("no node can be made: {error}"))?;
        let namespace = namespace.unwrap_or(fresh.place().namespace()).to_owned();
        let node = NodeConfig {
            namespace: Some(namespace.clone()),
            ..node
        };
        Ok(Self {
            _node: start_node(&client, node),
            server: client.apiserver_version().await?.git_version,
            client,
            requests,
            kubeconfig: kubeconfig.to_owned(),
            namespace,
            folder,
            _embedded: None,
            fresh: Some(fresh),
        })
    }

    /// Removes what it made on a server that stays.
    pub(crate) async fn stop(self) -> Result<()> {
        match self.fresh {
            Some(fresh) => fresh.remove().await.map_err(|error| anyhow!(error)),
            None => Ok(()),
        }
    }
}

fn start_node(client: &Client, config: NodeConfig) -> ScriptedNode {
    let config = NodeConfig {
        start_delay: Duration::ZERO,
        at_the_end: outputs::leave,
        ..config
    };
    ScriptedNode::start(client.clone(), Arc::new(SystemClock), config)
}

/// Its requests are counted. It is as good as that of the programs under test: over HTTP/1.1 the floor would be lower.
async fn client(kubeconfig: &Path, requests: &Metrics) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("the kubeconfig {} cannot be read", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let counted = layer_fn(|service| CountRequests::new(service, "bench", requests.clone()));
    let builder = client_builder(&config, Permit::always())?;
    Ok(builder.with_layer(&counted).build())
}

async fn create_namespace(client: &Client) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let wanted = serde_json::from_value(json!({"metadata": {"generateName": "bench-"}}))?;
    let made = namespaces.create(&PostParams::default(), &wanted).await;
    Ok(made
        .map_err(|error| anyhow!("no namespace can be made: {error}"))?
        .name_any())
}

/// The log of every pod.
struct OneLine;

const LINE: &str = "a line\n";

/// The source of logs for the embedded API server.
#[async_trait]
impl PodLogs for OneLine {
    async fn logs(&self, _pod: &Value, _options: LogOptions) -> Result<PodLogStream, LogError> {
        Ok(Box::pin(futures::stream::once(async { Ok(LINE.into()) })))
    }
}

/// The source of logs for a real API server.
#[async_trait]
impl ContainerLogs for OneLine {
    async fn logs(
        &self,
        _namespace: &str,
        _pod: &str,
        _container: &str,
        _options: &longshore_node::LogOptions,
    ) -> Result<LogStream, longshore_node::LogError> {
        Ok(futures::stream::once(async { Ok(LINE.into()) }).boxed())
    }
}
