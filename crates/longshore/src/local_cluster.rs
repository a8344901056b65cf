//! The embedded cluster of one process: API server, built-in controllers and a process node.

use std::{
    ffi::OsString,
    io,
    net::{Ipv4Addr, SocketAddrV4},
    num::NonZeroU64,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::{
    api::core::v1::{Namespace, PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use longshore_api::podops::POD_TRANSITION_RULE_CRD;
use longshore_cluster::{
    Authorization, Cluster, Listening, LogError, LogOptions, LogStream, PodIdentity, PodLogs,
    PodNetwork, ServeConfig, Serving, controllers,
};
use longshore_kit::{CountRequests, Metrics, Namespaces, Tasks};
use longshore_node::{
    ImageMap, MissingClaims, Node, NodeConfig, PodsLifetime, UnmappedImages, shim, take_successes,
};
use longshore_object_store::Storage;
use longshore_podops::PodMeasures;
use longshore_tasks::{ActionMeasures, Settings};
use longshore_webhook::{ClientAuthority, Measures};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::{
    data_dir,
    error::CliError,
    open_files,
    pod_streams::NodeStreams,
    progress::phases::Phases,
    service::{
        actions,
        flink::{self, FlinkSettings},
        listen, local_actions,
        podops::{self, PodOpsSettings},
    },
    storage_file::storage,
};

/// The namespace of DAGs: `default` is the user's.
const NAMESPACE: &str = "longshore";
/// The namespace of DAGs in the data directories of earlier versions.
const FORMER_NAMESPACE: &str = "default";

/// Pods that the node takes at least, however few may run at the same time.
const MIN_PODS: u32 = 110;

/// How long pods may take to stop: longer than any grace period. A user who does not want to wait ends the process.
const STOP_LIMIT: Duration = Duration::from_secs(3_600);

/// How often the process checks whether the cluster still takes writes; the cluster does not report this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What happens to the cluster when its process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// The cluster was in memory; its pods are stopped.
    OfProcess,
    /// The cluster is in `<data-dir>/cluster`; its pods run on, and the next process takes them over.
    OfDataDir,
}

impl Lifetime {
    fn of_pods(self) -> PodsLifetime {
        match self {
            Lifetime::OfProcess => PodsLifetime::DieWithNode,
            Lifetime::OfDataDir => PodsLifetime::OutliveNode,
        }
    }

    /// The lifetime for a data directory. Pods of an earlier service may still run where that service has left its
    /// cluster; the next process must know these pods, or their tasks would run twice.
    pub(crate) fn of(data_dir: &Path) -> Self {
        if objects(data_dir).exists() {
            Self::OfDataDir
        } else {
            Self::OfProcess
        }
    }
}

/// How a cluster is kept, and for whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    /// What happens to it when its process ends.
    pub(crate) lifetime: Lifetime,
    /// Who may do what. The parts of this process may do everything in either case: their requests are those of the
    /// administrator.
    pub(crate) authorization: Authorization,
}

/// The directory of the objects.
fn objects(data_dir: &Path) -> PathBuf {
    data_dir.join("cluster")
}

/// The embedded cluster of one process. Its node keeps its pods in the data directory.
pub(crate) struct LocalCluster {
    cluster: Cluster,
    /// Its API, until that is served.
    listening: Option<Listening>,
    data_dir: PathBuf,
    metrics: Metrics,
    claims: PathBuf,
    namespace: &'static str,
    storage: Arc<Storage>,
    podops: PodOpsSettings,
    tasks: Tasks,
}

/// How a cluster is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterPlan<'a> {
    pub(crate) data_dir: &'a Path,
    /// Pods at the same time.
    pub(crate) parallelism: u32,
    pub(crate) keeping: Keeping,
    /// What happens with pods whose image is not in the image map.
    pub(crate) unmapped_images: UnmappedImages,
    /// How many processes a pod may have.
    pub(crate) pod_pids_limit: Option<NonZeroU64>,
    /// Whether each pod has a network of its own.
    pub(crate) pod_network: bool,
}

impl LocalCluster {
    /// Starts the cluster. With `api`, its pods run as service accounts, and [`Self::serve`] serves its API at that
    /// address.
    pub(crate) async fn start(
        plan: &ClusterPlan<'_>,
        api: Option<ServeConfig>,
        metrics: &Metrics,
        phases: &Phases,
    ) -> Result<Self, CliError> {
        let ClusterPlan {
            data_dir, keeping, ..
        } = *plan;
        let lifetime = keeping.lifetime;
        phases.wait_for("the cluster to read its objects");
        let is_new = lifetime == Lifetime::OfProcess || !objects(data_dir).exists();
        let identity = match &api {
            Some(_) => PodIdentity::ServiceAccounts,
            // Without an API server there is nobody to show a token to.
            None => PodIdentity::None,
        };
        let cluster = open(data_dir, keeping, identity).await?;
        let listening = api.map(|config| cluster.listen(config)).transpose();
        let listening = listening.map_err(CliError::in_serving)?;
        let storage = storage(data_dir)?;
        phases.wait_for("the node to take over its pods");
        let root = data_dir.join("node");
        if is_new {
            put_back_successes(&cluster, &root).await?;
        }
        let config = node_config(plan, &root, listening.as_ref())?;
        let node = Node::new(client(&cluster, "node", metrics), config).await;
        let node = node.map_err(|source| CliError::engine("the process node", source))?;
        tracing::info!(profile = %node.profile(), ?lifetime, "process node");
        cluster.set_pod_logs(Arc::new(NodeLogs(node.clone())));
        cluster.set_pod_streams(Arc::new(NodeStreams(node.clone())));
        cluster.set_pod_network(Arc::new(NodeNetwork(node.clone())));

        let tasks = Tasks::new();
        let built_in = client(&cluster, "controllers", metrics);
        let shutdown = tasks.shutdown();
        tasks.spawn("cluster.controllers", controllers::run(built_in, shutdown));
        if let Some(listening) = &listening {
            let accounts = controllers::run_service_accounts(
                client(&cluster, "controllers", metrics),
                Some(listening.certificate_authority().to_owned()),
                tasks.shutdown(),
            );
            tasks.spawn("cluster.accounts", accounts);
        }
        let shutdown = tasks.shutdown();
        let node = Box::pin(async move { node.run(shutdown).await });
        tasks.spawn("cluster.node", node);
        // Before any scheduler looks: a DAG may have tasks that become TaskActions.
        actions::install(client(&cluster, "tasks", metrics)).await?;
        let namespace = namespace_of_dags(client(&cluster, "dags", metrics)).await;
        let namespace = namespace.map_err(|why| CliError::engine("the namespace of DAGs", why))?;
        Ok(Self {
            cluster,
            listening,
            data_dir: data_dir.to_owned(),
            metrics: metrics.clone(),
            claims: root.join("volumes"),
            namespace,
            storage,
            podops: PodOpsSettings::of_this_machine(),
            tasks,
        })
    }

    /// Serves its API to other processes, once; it was started with an address.
    pub(crate) fn serve(&mut self) -> Result<Serving, CliError> {
        let listening = self.listening.take().ok_or_else(|| {
            let why = std::io::Error::other("the cluster has no address, or is served already");
            CliError::engine("the Kubernetes API", why)
        })?;
        let serving = listening.serve().map_err(CliError::in_serving)?;
        let address = serving.address();
        let boundaries = &self.podops.boundaries;
        boundaries.set_api_server(&address.ip().to_string(), address.port());
        Ok(serving)
    }

    /// Waits until the cluster cannot go on, and returns why.
    pub(crate) async fn broken(&self) -> String {
        let broken = self.tasks.shutdown();
        let mut looks = tokio::time::interval(LOOK_AGAIN);
        loop {
            tokio::select! {
                () = broken.cancelled() => return "a part of the cluster broke".to_owned(),
                _ = looks.tick() => {
                    if let Some(why) = self.cluster.stopped() {
                        return format!("the cluster takes no more writes: {why}");
                    }
                }
            }
        }
    }

    /// The namespace of the pods of DAGs, and of what these share.
    pub(crate) fn namespace(&self) -> &'static str {
        self.namespace
    }

    /// A client of its API server, whose requests are counted under this name.
    pub(crate) fn client(&self, name: &'static str) -> kube::Client {
        client(&self.cluster, name, &self.metrics)
    }

    /// Runs the executor of TaskActions in it, until it stops.
    pub(crate) fn run_actions(&self) -> Result<(), CliError> {
        let mut settings = Settings::default();
        settings.tasks.measures = ActionMeasures::new(&self.metrics);
        let storage = Arc::clone(&self.storage);
        let executor = local_actions::executor(settings, &self.data_dir, &self.metrics, storage)?;
        let running = executor.run(self.client("tasks"), self.tasks.shutdown());
        self.tasks.spawn("tasks", running);
        Ok(())
    }

    /// Runs PodOpsLifecycle in it, until it stops: its webhooks listen on loopback, where the API server calls them.
    pub(crate) async fn run_podops(&self) -> Result<(), CliError> {
        let settings = &self.podops;
        // The port is any free one: no setting names another.
        let setting = "a new start, which takes any free one";
        let (listener, address) = listen(podops::PART, settings.address, setting).await?;
        let definition = POD_TRANSITION_RULE_CRD;
        let client = self.client("podops");
        actions::install_definition(client.clone(), podops::PART, definition).await?;
        let measures = Measures::new(&self.metrics);
        let authority = self.cluster.webhook_client_authority();
        let authority = authority.map_err(|source| CliError::engine(podops::PART, source))?;
        let authority = Some(ClientAuthority::Pem(authority));
        let pods = PodMeasures::new(&self.metrics);
        let shutdown = self.tasks.shutdown();
        let webhooks = settings.webhooks(
            client.clone(),
            "kube-system",
            address,
            authority,
            (&measures, &pods),
            shutdown.clone(),
        );
        self.tasks.spawn("podops.webhooks", async move {
            if let Err(error) = webhooks.serve(listener, shutdown, |_| {}).await {
                tracing::error!(%error, "the webhooks of pods ended");
            }
        });
        let controllers = settings.controllers(&self.metrics, &pods);
        let running = controllers.run(client, self.tasks.shutdown());
        self.tasks.spawn("podops", running);
        Ok(())
    }

    /// Runs the Flink operator in it, until it stops. It reaches JobManagers as everybody outside of a cluster does: through
    /// the API server.
    pub(crate) async fn run_flink(&self) -> Result<(), CliError> {
        let file = self.data_dir.join("flink.yaml");
        let settings = FlinkSettings::of_this_machine(&file, &self.podops.boundaries)?;
        let client = self.client("flink");
        for definition in flink::DEFINITIONS {
            actions::install_definition(client.clone(), flink::PART, definition).await?;
        }
        for (target, object) in flink::account("default") {
            actions::create_once(client.clone(), flink::PART, &target, &object).await?;
        }
        let operator = settings
            .controllers(Namespaces::All, &self.metrics)
            .through_api_server(self.client("flink.rest"));
        let shutdown = self.tasks.shutdown();
        self.tasks.spawn("flink", async move {
            if let Err(error) = operator.run(client, shutdown).await {
                tracing::error!(%error, "the Flink operator ended");
            }
        });
        Ok(())
    }

    /// Stops its pods within their grace, or lets them run on, as its lifetime says; then the rest. Returns the
    /// directory of the volume claims.
    pub(crate) async fn stop(self) -> PathBuf {
        if !self.tasks.stop(STOP_LIMIT).await {
            tracing::error!("the pods did not stop in time");
        }
        let cluster = self.cluster;
        // The close may wait for the disk.
        let closed = tokio::task::spawn_blocking(move || cluster.close()).await;
        if let Err(error) = closed {
            tracing::error!(%error, "the embedded cluster did not close");
        }
        self.claims
    }
}

fn node_config(
    plan: &ClusterPlan<'_>,
    root: &Path,
    listening: Option<&Listening>,
) -> Result<NodeConfig, CliError> {
    let mut config = NodeConfig::new("local", root, shim_command()?);
    config.images = images(&plan.data_dir.join("images.yaml"))?;
    config.unmapped_images = plan.unmapped_images;
    config.pod_pids_limit = plan.pod_pids_limit;
    config.hidden = data_dir::hidden_from_pods(plan.data_dir)?;
    // Ended pods count until they are deleted.
    config.max_pods = plan.parallelism.saturating_mul(2).max(MIN_PODS);
    config.pod_network = plan.pod_network;
    config.lifetime = plan.keeping.lifetime.of_pods();
    config.api_server = listening.map(Listening::address);
    if listening.is_none() {
        // Without an API server, users cannot make the claims that their pods name.
        config.missing_claims = MissingClaims::Make;
    }
    Ok(config)
}

/// The namespace of the DAGs of this cluster, which is created where it is missing.
///
/// Where an earlier version has left pods or workspaces in `default`, DAGs stay there: nobody else takes them over.
async fn namespace_of_dags(client: kube::Client) -> kube::Result<&'static str> {
    let namespaces = Api::<Namespace>::all(client.clone());
    if namespaces.get_opt(NAMESPACE).await?.is_some() {
        return Ok(NAMESPACE);
    }
    let one = ListParams::default().limit(1);
    let pods = Api::<Pod>::namespaced(client.clone(), FORMER_NAMESPACE);
    let claims = Api::<PersistentVolumeClaim>::namespaced(client, FORMER_NAMESPACE);
    let is_empty = pods.list_metadata(&one).await?.items.is_empty()
        && claims.list_metadata(&one).await?.items.is_empty();
    if !is_empty {
        return Ok(FORMER_NAMESPACE);
    }
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    Ok(NAMESPACE)
}

fn client(cluster: &Cluster, name: &'static str, metrics: &Metrics) -> kube::Client {
    let counted = CountRequests::new(cluster.service(), name, metrics.clone());
    kube::Client::new(counted, "default")
}

async fn open(
    data_dir: &Path,
    keeping: Keeping,
    identity: PodIdentity,
) -> Result<Cluster, CliError> {
    let builder = Cluster::builder()
        .pod_identity(identity)
        .authorization(keeping.authorization);
    let directory = match keeping.lifetime {
        Lifetime::OfProcess => return Ok(builder.build()),
        Lifetime::OfDataDir => objects(data_dir),
    };
    let opened = tokio::task::spawn_blocking(move || builder.open(directory)).await;
    let opened = opened.map_err(|source| CliError::engine("the cluster", source))?;
    opened.map_err(CliError::Cluster)
}

/// Puts the pods of an earlier process into a new cluster that have succeeded by themselves: their tasks must not run
/// again, though that process was killed before it heard of the end. What else was left has no process any more.
async fn put_back_successes(cluster: &Cluster, root: &Path) -> Result<(), CliError> {
    let pods: Vec<Pod> = take_successes(root).await;
    let pods = pods.into_iter().filter(is_of_a_dag);
    let pods = pods
        .map(serde_json::to_value)
        .collect::<Result<Vec<_>, _>>();
    let pods = pods.map_err(|source| CliError::engine("the process node", source))?;
    let cluster = cluster.clone();
    let put_back = tokio::task::spawn_blocking(move || cluster.put_back_pods(pods)).await;
    put_back.map_err(|source| CliError::engine("the cluster", source))
}

/// Whether nothing but its DAG owned a pod: the owner of another one is gone with its cluster.
fn is_of_a_dag(pod: &Pod) -> bool {
    let metadata = &pod.metadata;
    metadata.namespace.as_deref() == Some(NAMESPACE)
        && metadata.owner_references.iter().flatten().next().is_none()
}

/// This program itself, as the shim above each pod.
fn shim_command() -> Result<Vec<OsString>, CliError> {
    let program = std::env::current_exe();
    let program = program.map_err(|source| CliError::engine("the path of this program", source))?;
    let mut command = vec![program.into_os_string(), "shim".into()];
    command.extend(open_files::of_pods().map(shim::with_open_files));
    Ok(command)
}

/// The image map of the data directory, where there is one.
fn images(path: &Path) -> Result<ImageMap, CliError> {
    if !path.exists() {
        return Ok(ImageMap::default());
    }
    ImageMap::load(path).map_err(|source| CliError::engine("the process node", source))
}

/// Lets the API server call webhooks in pods that have a network of their own.
struct NodeNetwork(Node);

#[async_trait]
impl PodNetwork for NodeNetwork {
    fn has(&self, address: Ipv4Addr) -> bool {
        self.0.is_in_pod_network(address)
    }

    async fn connect(&self, address: SocketAddrV4) -> io::Result<TcpStream> {
        self.0.connect(address).await
    }
}

/// Lets the API server request logs of the node.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_pods_of_dags_are_put_back() {
        let owner = json!([{"apiVersion": "v1", "kind": "TaskAction", "name": "a", "uid": "u"}]);
        for (namespace, owners, is_put_back) in [
            ("longshore", json!(null), true),
            ("longshore", owner, false),
            ("default", json!(null), false),
        ] {
            let pod = json!({"metadata": {"namespace": namespace, "ownerReferences": owners}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(is_of_a_dag(&pod), is_put_back, "{pod:?}");
        }
    }

    #[tokio::test]
    async fn dags_have_a_namespace_of_their_own_unless_an_earlier_version_left_some_in_default() {
        let new = Cluster::in_memory().client();
        for _ in 0..2 {
            assert_eq!(namespace_of_dags(new.clone()).await.unwrap(), "longshore");
        }
        let old = Cluster::in_memory().client();
        let claim = json!({
            "metadata": {"name": "etl-workspace"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        let claim = serde_json::from_value(claim).unwrap();
        let claims = Api::<PersistentVolumeClaim>::namespaced(old.clone(), "default");
        claims.create(&PostParams::default(), &claim).await.unwrap();
        for _ in 0..2 {
            assert_eq!(namespace_of_dags(old.clone()).await.unwrap(), "default");
        }
    }
}
