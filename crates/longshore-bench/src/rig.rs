//! What is not under test: API server, namespace, node.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config, ResourceExt,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_cluster::{Cluster, ServeConfig, Serving};
use longshore_kit::SystemClock;
use longshore_test::{NodeConfig, ScriptedNode};
use serde_json::json;
use tempfile::TempDir;

/// The rig. Dropping it ends what it started.
pub(crate) struct Rig {
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) namespace: String,
    /// `embedded`, or the version of the real server.
    pub(crate) server: String,
    pub(crate) folder: TempDir,
    _embedded: Option<(Cluster, Serving)>,
    _node: ScriptedNode,
}

impl Rig {
    /// Starts an embedded API server, or takes the one of `kubeconfig`; a fresh namespace of it; a node that plays its
    /// pods, each of which ends as soon as it has begun.
    pub(crate) async fn start(kubeconfig: Option<&Path>) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("longshore-bench-")
            .tempdir()?;
        let (client, kubeconfig, embedded) = match kubeconfig {
            Some(path) => (real(path).await?, path.to_owned(), None),
            None => {
                let cluster = Cluster::in_memory();
                let serving = cluster.serve(ServeConfig {
                    address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                    ..ServeConfig::new(folder.path())
                })?;
                let path = serving.kubeconfig().to_owned();
                // The driver goes over the wire too, as it does with a real server.
                (real(&path).await?, path, Some((cluster, serving)))
            }
        };
        let server = match embedded {
            Some(_) => "embedded".to_owned(),
            None => client.apiserver_version().await?.git_version,
        };
        let namespace = namespace(&client).await?;
        let node = ScriptedNode::start(
            client.clone(),
            Arc::new(SystemClock),
            NodeConfig {
                namespace: Some(namespace.clone()),
                start_delay: Duration::ZERO,
                ..NodeConfig::default()
            },
        );
        Ok(Self {
            client,
            kubeconfig,
            namespace,
            server,
            folder,
            _embedded: embedded,
            _node: node,
        })
    }
}

async fn real(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("the kubeconfig {} cannot be read", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn namespace(client: &Client) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let wanted = serde_json::from_value(json!({"metadata": {"generateName": "bench-"}}))?;
    let made = namespaces.create(&PostParams::default(), &wanted).await;
    Ok(made
        .map_err(|error| anyhow!("no namespace can be made: {error}"))?
        .name_any())
}
