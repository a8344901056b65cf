//! A Kubernetes cluster of the user's: its address, and clients of its API server.

use std::path::{Path, PathBuf};

use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use longshore_client::client_builder;
use longshore_kit::{Contact, CountRequests, Gate, GateWrites, LimitWrites, Metrics, NoteAnswers};
use longshore_outbound::Permit;
use tower::layer::layer_fn;

use crate::error::{CliError, KubernetesError};

/// Writes of one role under way at the same time: more make no API server faster.
const WRITES: usize = 32;

/// Which cluster.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig file [default: as kubectl; in a pod, its own cluster]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace to work in [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

/// Which kubeconfig.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KubeconfigFile<'a> {
    /// The one in this file.
    At(&'a Path),
    /// Kubectl's: that of `KUBECONFIG`, else the user's.
    OfKubectl,
}

impl KubeconfigFile<'_> {
    /// The configuration of a client for the cluster of a context, or of the current context.
    pub(crate) async fn read(self, context: Option<&str>) -> Result<Config, KubeconfigError> {
        choose_tls();
        let file = match self {
            Self::At(path) => Kubeconfig::read_from(path)?,
            Self::OfKubectl => Kubeconfig::read()?,
        };
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        Config::from_custom_kubeconfig(file, &options).await
    }
}

/// The context of kubectl's kubeconfig that kubectl uses.
pub(crate) fn current_context() -> Option<String> {
    Kubeconfig::read().ok()?.current_context
}

/// The permission of a role to send, for as long as it may write.
pub(crate) fn permit(gate: &Gate) -> Permit {
    let gate = gate.clone();
    Permit::new(move || gate.is_open())
}

/// The libraries bring several implementations; without a choice there is none.
fn choose_tls() {
    // An error says that the process has chosen one already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// A cluster.
#[derive(Clone, Debug)]
pub(crate) struct RealCluster {
    config: Config,
    /// Whether this process is in a pod of it.
    is_own: bool,
    contact: Contact,
}

impl RealCluster {
    /// Finds the address and the credentials of the cluster. Sends no request yet.
    pub(crate) async fn find(args: &ClusterArgs) -> Result<Self, CliError> {
        choose_tls();
        let is_named = args.kubeconfig.is_some() || args.context.is_some();
        let own = (!is_named).then(Config::incluster).and_then(Result::ok);
        let is_own = own.is_some();
        let mut config = if let Some(config) = own {
            config
        } else {
            let file = args.kubeconfig.as_deref();
            let file = file.map_or(KubeconfigFile::OfKubectl, KubeconfigFile::At);
            let found = file.read(args.context.as_deref()).await;
            found.map_err(KubernetesError::unknown)?
        };
        if let Some(namespace) = &args.namespace {
            config.default_namespace.clone_from(namespace);
        }
        Ok(Self {
            config,
            is_own,
            contact: Contact::default(),
        })
    }

    /// The namespace of pods and leases.
    pub(crate) fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// Whether this process is in a pod of it, where names of Services lead to their pods.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// The address of its API server.
    pub(crate) fn url(&self) -> String {
        self.config.cluster_url.to_string()
    }

    /// The host and the port of its API server.
    pub(crate) fn api_server(&self) -> Option<(String, u16)> {
        let url = &self.config.cluster_url;
        let is_http = url.scheme_str() == Some("http");
        let port = url.port_u16().unwrap_or(if is_http { 80 } else { 443 });
        Some((url.host()?.to_owned(), port))
    }

    /// Whether the API server answers the clients of this process.
    pub(crate) fn contact(&self) -> &Contact {
        &self.contact
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
        let builder = client_builder(&self.config, permit(gate));
        let builder = builder.map_err(KubernetesError::unknown)?;
        let noted = layer_fn(|service| NoteAnswers::new(service, self.contact.clone()));
        let counted = layer_fn(|service| CountRequests::new(service, name, metrics.clone()));
        let limited = layer_fn(|service| LimitWrites::new(service, WRITES));
        // The gate comes first: a request that it refuses counts neither as a request nor against the limit.
        let gated = layer_fn(|service| GateWrites::new(service, gate.clone()));
        let sent = builder.with_layer(&noted).with_layer(&limited);
        let client = sent.with_layer(&counted).with_layer(&gated);
        Ok(client.build())
    }

    /// Requests the version of the API server, and logs it. Fails when the API server does not respond.
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
