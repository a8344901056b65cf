//! Everything that `longshore standalone` keeps running: what `run` has too, and the two APIs in front of it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::{NonZeroU32, NonZeroU64},
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use longshore_cluster::{Authorization, ServeConfig, Serving};
use longshore_console::{Hosts, operations, serve::serve};
use longshore_dags::{LeftRuns, launch::decide::Disposal};
use longshore_kit::{Gate, Metrics, metrics};
use longshore_node::UnmappedImages;
use tokio::net::TcpListener;

use crate::{
    engine::{
        airflow::{self, AirflowPlan},
        database::{Database, Rights},
        scheduling::{Scheduling, SchedulingPlan, parallelism},
        workers::WorkersPlan,
    },
    error::CliError,
    local_cluster::{ClusterPlan, Keeping, Lifetime, LocalCluster},
    progress::phases::Phases,
};

pub(crate) mod actions;
pub(crate) mod counts;
pub(crate) mod flink;
pub(crate) mod front;
pub(crate) mod local_actions;
pub(crate) mod podops;
pub(crate) mod webhooks;

use counts::Counts;
use front::{Front, dags_folder, tell_clients};

/// How long requests under way have to end when the service stops.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// The configuration of the service.
#[derive(Clone, Debug)]
pub(crate) struct ServiceConfig {
    /// The data directory, locked by the caller.
    pub(crate) data_dir: PathBuf,
    /// Where runs are kept.
    pub(crate) database: Database,
    /// What happens to the cluster when the process ends.
    pub(crate) lifetime: Lifetime,
    /// Who may do what through the Kubernetes API.
    pub(crate) authorization: Authorization,
    /// Pods at the same time.
    pub(crate) parallelism: Option<NonZeroU32>,
    /// Whether all pods have a network of their own.
    pub(crate) pod_network: bool,
    /// What becomes of pods of DAGs that have ended.
    pub(crate) disposal: Disposal,
    /// How Python DAG files are parsed; `None`: not at all.
    pub(crate) airflow: Option<AirflowPlan>,
    /// What happens with pods whose image is not in the image map.
    pub(crate) unmapped_images: UnmappedImages,
    /// How many processes a pod may have.
    pub(crate) pod_pids_limit: Option<NonZeroU64>,
    /// The folder of the DAG files; `None` for a folder in the data directory.
    pub(crate) dags_folder: Option<PathBuf>,
    /// Port of the HTTP API; 0 takes a free one.
    pub(crate) port: u16,
    /// Port of the Kubernetes API; 0 takes a free one.
    pub(crate) kube_port: u16,
    /// Port of health and metrics; 0 takes a free one.
    pub(crate) metrics_port: u16,
}

impl ServiceConfig {
    fn cluster(&self, parallelism: u32) -> ClusterPlan<'_> {
        ClusterPlan {
            data_dir: &self.data_dir,
            parallelism,
            keeping: Keeping {
                lifetime: self.lifetime,
                authorization: self.authorization,
            },
            unmapped_images: self.unmapped_images,
            pod_pids_limit: self.pod_pids_limit,
            pod_network: self.pod_network,
        }
    }
}

/// The service, running.
pub(crate) struct Service {
    database: Database,
    // Dropped in this order: as it is stopped.
    front: Front,
    scheduling: Scheduling,
    cluster: LocalCluster,
    dags_folder: PathBuf,
    kubernetes: Serving,
    address: SocketAddr,
    metrics: SocketAddr,
}

impl Service {
    /// Starts everything, and returns when it serves.
    ///
    /// *Flow*: ports first, because a port in use is the likeliest failure; then the parts, which continue unfinished
    /// work; the two APIs last, so that no client gets a response of a half-started service.
    pub(crate) async fn start(config: &ServiceConfig, phases: &Phases) -> Result<Self, CliError> {
        let data_dir = &config.data_dir;
        let (at, setting) = (loopback(config.port), "--port; 0 takes any free one");
        let (listener, address) = listen("the HTTP API", at, setting).await?;
        let setting = "--metrics-port; 0 takes any free one";
        let at = loopback(config.metrics_port);
        let (metrics_listener, metrics_address) = listen("health and metrics", at, setting).await?;
        let store = config.database.open(data_dir, Rights::First, phases);
        let store = store.await?;
        let (metrics, parallelism) = (Metrics::new(), parallelism(config.parallelism));
        let counts = Counts::new(&metrics);
        let api = ServeConfig {
            address: loopback(config.kube_port),
            ..ServeConfig::new(data_dir)
        };
        let plan = config.cluster(parallelism);
        let cluster = LocalCluster::start(&plan, Some(api), &metrics, phases);
        let mut cluster = cluster.await?;
        let dags_folder = dags_folder(config.dags_folder.as_ref(), data_dir)?;
        let plan = SchedulingPlan {
            data_dir: data_dir.clone(),
            namespace: cluster.namespace().to_owned(),
            parallelism,
            disposal: config.disposal,
            gate: Gate::always_open(),
            metrics: metrics.clone(),
            measures: counts.measures(),
            left_runs: LeftRuns::GoOn,
            workers: Some(WorkersPlan {
                server: Some(format!("http://{address}/execution/")),
                dags_folder: Some(dags_folder.clone()),
            }),
        };
        let mut scheduling = Scheduling::start(cluster.client("dags"), store, plan, phases).await?;
        airflow::follow(config.airflow.as_ref(), &scheduling, &dags_folder)?;
        let client = cluster.client("console");
        let front = Front::start(&scheduling, client, &dags_folder, phases).await?;

        phases.wait_for("the executor of TaskActions to be set up");
        cluster.run_actions()?;
        phases.wait_for("PodOpsLifecycle to be set up");
        cluster.run_podops().await?;
        phases.wait_for("the Flink operator to be set up");
        cluster.run_flink().await?;

        phases.wait_for("the APIs to be served");
        let kubernetes = cluster.serve()?;
        let hosts = Hosts::Known(Vec::new());
        let token = tell_clients(data_dir, &format!("http://{address}"))?;
        front.serve(&mut scheduling, listener, token, hosts.clone());
        counts.follow(&scheduling.dags, front.tasks());
        let (checks, scrape) = (front.checks(), counts.scrape(metrics));
        let stopping = front.tasks().shutdown();
        let health = operations(checks, hosts, scrape, metrics::CONTENT_TYPE, stopping);
        let served = serve(metrics_listener, health, front.tasks().shutdown());
        front.tasks().spawn("metrics", served);
        Ok(Self {
            database: config.database.clone(),
            front,
            scheduling,
            cluster,
            dags_folder,
            kubernetes,
            address,
            metrics: metrics_address,
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

    /// The namespace of the pods of DAGs.
    pub(crate) fn namespace(&self) -> &'static str {
        self.cluster.namespace()
    }

    /// A kubeconfig for the Kubernetes API.
    pub(crate) fn kubeconfig(&self) -> &Path {
        self.kubernetes.kubeconfig()
    }

    /// The folder of the DAG files.
    pub(crate) fn dags_folder(&self) -> &Path {
        &self.dags_folder
    }

    /// The ids of its DAGs.
    pub(crate) fn dags(&self) -> Vec<String> {
        let dags = self.scheduling.dags.dags().into_iter();
        let of_folder = dags.filter(|known| known.file.is_some());
        of_folder.filter_map(|known| known.dag_id).collect()
    }

    /// Waits until a part cannot go on, and returns why.
    pub(crate) async fn broken(&self) -> CliError {
        let why = tokio::select! {
            error = self.scheduling.lost_database(&self.database) => return error,
            why = self.front.broken() => why,
            why = self.scheduling.broken() => why,
            why = self.cluster.broken() => why,
        };
        CliError::ServiceBroken { why }
    }

    /// Stops: takes no more requests, lets those under way end, finishes rounds, closes what is
    /// durable. Returns how many pods run on where the cluster outlives this process.
    pub(crate) async fn stop(self) -> usize {
        self.front.stop().await;
        self.kubernetes.stop(DRAIN_LIMIT).await;
        let n_running = n_running(self.cluster.client("console")).await;
        self.scheduling.stop().await;
        self.cluster.stop().await;
        self.scheduling.store.close().await;
        n_running
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Listens there. `setting` names another address or port in the command that runs.
pub(crate) async fn listen(
    what: &'static str,
    address: SocketAddr,
    setting: &'static str,
) -> Result<(TcpListener, SocketAddr), CliError> {
    let taken = |source| CliError::PortTaken {
        what,
        address,
        setting,
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
