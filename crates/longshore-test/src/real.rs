//! A real API server, and a namespace of it for each test.

use std::{future::Future, net::Ipv4Addr, path::PathBuf, sync::Arc};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Namespace, Node, PersistentVolumeClaim, Pod},
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_node::{ContainerLogs, LogListener, LogServer};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};
use tower::BoxError;

use crate::{NodeConfig, place::Place};

/// Names the kubeconfig of the real API server. Never `KUBECONFIG`: a test must not touch a developer's cluster.
const KUBECONFIG_VARIABLE: &str = "LONGSHORE_TEST_KUBECONFIG";

/// The real API server of this test run.
#[derive(Clone, Debug)]
pub struct RealServer {
    kubeconfig: PathBuf,
}

impl RealServer {
    /// The one that `LONGSHORE_TEST_KUBECONFIG` names, as under `cargo xtask real-cluster`. Without one, says that the
    /// test is skipped.
    #[expect(
        clippy::disallowed_methods,
        clippy::print_stdout,
        reason = "the lane tells its tests where the server is, and a test that it skips must be seen"
    )]
    pub fn given() -> Option<Self> {
        let kubeconfig = std::env::var_os(KUBECONFIG_VARIABLE).filter(|path| !path.is_empty());
        if kubeconfig.is_none() {
            println!("skipped: {KUBECONFIG_VARIABLE} names no real server");
        }
        Some(Self {
            kubeconfig: kubeconfig?.into(),
        })
    }

    /// The one of this kubeconfig.
    pub fn of(kubeconfig: impl Into<PathBuf>) -> Self {
        Self {
            kubeconfig: kubeconfig.into(),
        }
    }

    /// How to speak to it.
    ///
    /// # Errors
    /// The kubeconfig cannot be used.
    pub async fn config(&self) -> Result<Config, BoxError> {
        // Another one may be linked as well. An error says that one is installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        config_from(Kubeconfig::read_from(&self.kubeconfig)?).await
    }
}

/// How to speak to the server of this kubeconfig, with the defaults that our programs have.
pub(crate) async fn config_from(kubeconfig: Kubeconfig) -> Result<Config, BoxError> {
    let options = KubeConfigOptions::default();
    Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
}

/// A namespace for one test, and the node of the same name, where there is one.
#[derive(Debug)]
pub struct RealNamespace {
    place: Place,
    readers: Vec<Vec<u8>>,
    logs: Option<LogServer>,
}

impl RealNamespace {
    /// Makes the namespace; its name begins with this one.
    ///
    /// # Errors
    /// The server does not take it.
    pub async fn create(server: &RealServer, name: &str) -> Result<Self, BoxError> {
        let config = server.config().await?;
        let readers = config.root_cert.clone().unwrap_or_default();
        let client = Client::try_from(config)?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let wanted = json!({"metadata": {"generateName": format!("{name}-")}});
        let wanted = serde_json::from_value(wanted)?;
        let made = namespaces.create(&PostParams::default(), &wanted).await?;
        let name = made.name_any();
        Ok(Self {
            place: Place::behind(client, name),
            readers,
            logs: None,
        })
    }

    /// A port for the logs of a node, which only the API server may read.
    ///
    /// # Errors
    /// There is none.
    pub fn log_listener(&self) -> Result<LogListener, BoxError> {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        Ok(LogListener::bind(address, &self.readers)?)
    }

    /// Makes a node that no scheduler chooses, of which only the logs are more than an object. A scripted node can be
    /// it.
    ///
    /// # Errors
    /// The server does not take it.
    pub async fn add_node(&mut self, logs: Arc<dyn ContainerLogs>) -> Result<NodeConfig, BoxError> {
        let name = self.place.namespace().to_owned();
        let listener = self.log_listener()?;
        self.logs = Some(serve_logs(self.place.client(), &name, listener, logs).await?);
        Ok(NodeConfig {
            name: name.clone(),
            namespace: Some(name),
            ..NodeConfig::default()
        })
    }

    /// The namespace as a place for scenarios.
    pub fn place(&self) -> Place {
        self.place.clone()
    }

    /// Removes the namespace and the node. It deletes the objects in the namespace first: an API
    /// server without controllers would keep them.
    ///
    /// # Errors
    /// The server does not take a deletion.
    pub async fn remove(self) -> Result<(), BoxError> {
        self.remove_all::<Pod>().await?;
        self.remove_all::<ConfigMap>().await?;
        self.remove_all::<PersistentVolumeClaim>().await?;
        let name = self.place.namespace();
        let namespaces: Api<Namespace> = Api::all(self.place.client());
        namespaces.delete(name, &DeleteParams::default()).await?;
        let nodes: Api<Node> = Api::all(self.place.client());
        match nodes.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    async fn remove_all<K>(&self) -> Result<(), BoxError>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.place.client(), self.place.namespace());
        let at_once = DeleteParams::default().grace_period(0);
        api.delete_collection(&at_once, &ListParams::default())
            .await?;
        Ok(())
    }
}

/// Makes a node that no scheduler chooses, of which only the logs are more than an object. A scripted node can be it.
///
/// # Errors
/// The server does not take it.
pub async fn serve_logs(
    client: Client,
    name: &str,
    listener: LogListener,
    logs: Arc<dyn ContainerLogs>,
) -> Result<LogServer, BoxError> {
    let nodes: Api<Node> = Api::all(client);
    let node = json!({"metadata": {"name": name}, "spec": {"unschedulable": true}});
    let node = serde_json::from_value(node)?;
    nodes.create(&PostParams::default(), &node).await?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": Ipv4Addr::LOCALHOST}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": listener.port()}},
    }});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(listener.serve(logs)?)
}

/// Plays scenarios, each in a namespace of its own, at the same time: they mostly wait. Prints each that passed, and how
/// many did (which the lane counts).
///
/// # Panics
/// Where one did not, with what each of those says.
#[expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "it is a test, and the lane reads it"
)]
pub async fn play_all<F>(scenarios: impl IntoIterator<Item = (String, F)>)
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let began_at = Instant::now();
    let mut plays = JoinSet::new();
    for (name, play) in scenarios {
        plays.spawn(async move {
            let ended = play.await;
            (name, ended, began_at.elapsed().as_secs())
        });
    }
    let mut failures = Vec::new();
    let mut n_passed = 0;
    for (name, ended, seconds) in plays.join_all().await {
        match ended {
            Ok(()) => {
                n_passed += 1;
                println!("real server: {name}: {seconds} s");
            }
            Err(why) => failures.push(format!("{name} ({seconds} s): {why}")),
        }
    }
    println!("real server: {n_passed} scenarios");
    if !failures.is_empty() {
        panic!("{}", failures.join("\n\n"));
    }
}
