//! Everything that `longshore standalone` keeps running: the parts that `run` has too, and the two APIs in front of
//! them.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use longshore_cluster::{ServeConfig, Serving};
use longshore_console::{
    Access, Control, Feed, Token, client::ClientFile, operations, router, serve::serve,
};
use longshore_kit::{SystemClock, Tasks, metrics};
use tokio::net::TcpListener;

use crate::{
    control::{Logs, ServiceControl, publish_changes},
    engine::{
        NAMESPACE,
        parts::{Parts, Plan},
    },
    error::CliError,
    progress::phases::Phases,
};

mod actions;
mod counts;

/// How long requests under way have to end when the service stops.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// What the service is to be.
#[derive(Clone, Debug)]
pub(crate) struct ServiceConfig {
    /// Its parts.
    pub(crate) plan: Plan,
    /// Its DAG files; `None` for a folder in the data directory.
    pub(crate) dags_folder: Option<PathBuf>,
    /// Port of the HTTP API; 0 takes a free one.
    pub(crate) port: u16,
    /// Port of the Kubernetes API; 0 takes a free one.
    pub(crate) kube_port: u16,
    /// Port of health and metrics; 0 takes a free one.
    pub(crate) metrics_port: u16,
}

/// The service, running.
pub(crate) struct Service {
    parts: Parts,
    dags_folder: PathBuf,
    kubernetes: Serving,
    address: SocketAddr,
    metrics: SocketAddr,
    /// The HTTP API, the feed and the folder.
    tasks: Tasks,
}

impl Service {
    /// Starts everything, and returns when it serves.
    ///
    /// *Flow*: ports first, because a taken one is the likeliest trouble; then the parts, which go on with whatever is
    /// unfinished; the two APIs last, so that nobody is answered by half a service.
    pub(crate) async fn start(config: &ServiceConfig, phases: &Phases) -> Result<Self, CliError> {
        let data_dir = &config.plan.data_dir;
        let (listener, address) = listen("the HTTP API", config.port).await?;
        let (metrics_listener, metrics) = listen("health and metrics", config.metrics_port).await?;
        let parts = Parts::start(&config.plan, phases).await?;
        let tasks = Tasks::new();

        let dags_folder = dags_folder(config)?;
        phases.wait_for("the DAG folder to be read");
        let followed = parts.dags.follow(&dags_folder);
        followed.map_err(|source| CliError::DagsFolder {
            path: dags_folder.clone(),
            source,
        })?;
        parts.dags.first_look().await;

        phases.wait_for("the executor of TaskActions to be set up");
        actions::start(parts.cluster.client("tasks"), &parts.metrics, &tasks).await?;

        phases.wait_for("the APIs to be served");
        let kubernetes = parts.cluster.serve(ServeConfig {
            address: loopback(config.kube_port),
            ..ServeConfig::new(data_dir)
        })?;
        let file = ClientFile::renew(data_dir, format!("http://{address}"))?;
        let feed = Feed::default();
        let changes = publish_changes(parts.dags.changes(), feed.clone());
        let stopping = tasks.shutdown();
        tasks.spawn("console.feed", async move {
            stopping.run_until_cancelled(changes).await;
        });
        let control: Arc<dyn Control> = Arc::new(ServiceControl {
            dags: parts.dags.clone(),
            store: parts.store.clone(),
            logs: Logs {
                directory: parts.logs.clone(),
                pods: Api::namespaced(parts.cluster.client("console"), NAMESPACE),
            },
            feed,
            clock: Arc::new(SystemClock),
        });
        let access = |token| Access {
            token,
            hosts: Vec::new(),
        };
        let api = router(control.clone(), access(file.token), tasks.shutdown());
        tasks.spawn("console", serve(listener, api, tasks.shutdown()));
        // Nothing behind it asks for a token.
        let nobody = access(Token::generate());
        let scrape = counts::scrape(&parts, &tasks);
        let content_type = metrics::CONTENT_TYPE;
        let health = operations(control, nobody, scrape, content_type, tasks.shutdown());
        tasks.spawn("metrics", serve(metrics_listener, health, tasks.shutdown()));
        Ok(Self {
            parts,
            dags_folder,
            kubernetes,
            address,
            metrics,
            tasks,
        })
    }

    /// The address of the HTTP API.
    pub(crate) fn server(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address of health and metrics.
    pub(crate) fn metrics(&self) -> String {
        format!("http://{}", self.metrics)
    }

    /// The address of the Kubernetes API.
    pub(crate) fn kubernetes(&self) -> String {
        format!("https://{}", self.kubernetes.address())
    }

    /// A kubeconfig for it.
    pub(crate) fn kubeconfig(&self) -> &Path {
        self.kubernetes.kubeconfig()
    }

    /// Where DAG files are looked for.
    pub(crate) fn dags_folder(&self) -> &Path {
        &self.dags_folder
    }

    /// The ids of its DAGs.
    pub(crate) fn dags(&self) -> Vec<String> {
        let dags = self.parts.dags.dags().into_iter();
        let of_folder = dags.filter(|known| known.file.is_some());
        of_folder.filter_map(|known| known.dag_id).collect()
    }

    /// Waits until a part cannot go on, and says why.
    pub(crate) async fn broken(&self) -> CliError {
        let stopping = self.tasks.shutdown();
        let why = tokio::select! {
            () = stopping.cancelled() => "a part of the APIs broke".to_owned(),
            why = self.parts.broken() => why,
        };
        CliError::ServiceBroken { why }
    }

    /// Stops: takes no more requests, lets those under way end, finishes rounds, closes what is durable. Answers how
    /// many pods run on where the cluster outlives us.
    pub(crate) async fn stop(self) -> usize {
        if !self.tasks.stop(DRAIN_LIMIT).await {
            tracing::warn!("some requests did not end in time");
        }
        self.kubernetes.stop(DRAIN_LIMIT).await;
        let n_running = n_running(self.parts.cluster.client("console")).await;
        let store = self.parts.store.clone();
        self.parts.stop().await;
        store.close().await;
        n_running
    }
}

/// The folder of DAG files. The default one is made where it is missing; one that was named has to be there.
fn dags_folder(config: &ServiceConfig) -> Result<PathBuf, CliError> {
    if let Some(folder) = &config.dags_folder {
        return Ok(folder.clone());
    }
    let folder = config.plan.data_dir.join("dags");
    match std::fs::create_dir_all(&folder) {
        Ok(()) => Ok(folder),
        Err(source) => Err(CliError::in_data_dir(folder, source)),
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

async fn listen(what: &'static str, port: u16) -> Result<(TcpListener, SocketAddr), CliError> {
    let address = loopback(port);
    let taken = |source| CliError::PortTaken {
        what,
        address,
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(taken)?;
    let address = listener.local_addr().map_err(taken)?;
    Ok((listener, address))
}

/// Pods on the node that have not ended.
async fn n_running(client: kube::Client) -> usize {
    let pods = Api::<Pod>::all(client).list(&ListParams::default()).await;
    let is_running = |pod: &&Pod| {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let is_bound = pod
            .spec
            .as_ref()
            .is_some_and(|spec| spec.node_name.is_some());
        is_bound && !matches!(phase, Some("Succeeded" | "Failed"))
    };
    pods.map_or(0, |pods| pods.items.iter().filter(is_running).count())
}
