//! A Kubernetes cluster that is not ours: where it is, and clients of it.

use std::path::PathBuf;

use clap::Args;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_kit::{CountRequests, Gate, GateWrites, Metrics};
use tower::layer::layer_fn;

use crate::error::{CliError, KubernetesError};

/// Which cluster.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig file [default: as kubectl; in a pod, its own cluster]
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace to work in [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

/// A cluster.
#[derive(Clone, Debug)]
pub(crate) struct RealCluster {
    config: Config,
}

impl RealCluster {
    /// Finds out where it is. Asks nobody yet.
    pub(crate) async fn find(args: &ClusterArgs) -> Result<Self, CliError> {
        // Libraries below us bring several; without a choice there is none.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let is_named = args.kubeconfig.is_some() || args.context.is_some();
        let mut config = if !is_named && let Ok(config) = Config::incluster() {
            config
        } else {
            let options = KubeConfigOptions {
                context: args.context.clone(),
                ..KubeConfigOptions::default()
            };
            let found = match &args.kubeconfig {
                Some(path) => {
                    let file = Kubeconfig::read_from(path);
                    let file = file.map_err(KubernetesError::unknown)?;
                    Config::from_custom_kubeconfig(file, &options).await
                }
                None => Config::from_kubeconfig(&options).await,
            };
            found.map_err(KubernetesError::unknown)?
        };
        if let Some(namespace) = &args.namespace {
            config.default_namespace.clone_from(namespace);
        }
        Ok(Self { config })
    }

    /// Where pods and leases are.
    pub(crate) fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// The address of its API server.
    pub(crate) fn url(&self) -> String {
        self.config.cluster_url.to_string()
    }

    /// A client, whose requests are counted under this name.
    pub(crate) fn client(&self, name: &'static str, metrics: &Metrics) -> Result<Client, CliError> {
        self.gated_client(name, metrics, &Gate::always_open())
    }

    /// A client whose writes pass `gate`.
    pub(crate) fn gated_client(
        &self,
        name: &'static str,
        metrics: &Metrics,
        gate: &Gate,
    ) -> Result<Client, CliError> {
        let builder = ClientBuilder::try_from(self.config.clone());
        let builder = builder.map_err(KubernetesError::unknown)?;
        let counted = layer_fn(|service| CountRequests::new(service, name, metrics.clone()));
        // The gate is asked first: what it refuses is no request.
        let gated = layer_fn(|service| GateWrites::new(service, gate.clone()));
        let client = builder.with_layer(&counted).with_layer(&gated);
        Ok(client.build())
    }

    /// Asks it who it is.
    pub(crate) async fn answers(&self, metrics: &Metrics) -> Result<(), CliError> {
        let version = self.client("start", metrics)?.apiserver_version().await;
        match version {
            Ok(version) => {
                tracing::info!(
                    version = version.git_version,
                    url = self.url(),
                    "Kubernetes"
                );
                Ok(())
            }
            Err(source) => Err(KubernetesError::of_server(self.url(), source).into()),
        }
    }
}
