//! The controllers, running: their watches and three loops.

use std::{fmt, sync::Arc};

use kube::{Client, Resource as _};
use longshore_api::flink::{
    COMPONENT_JOB_MANAGER, KIND_DEPLOYMENT, KIND_SESSION_JOB, LABEL_COMPONENT, LABEL_TYPE,
    TYPE_NATIVE,
};
use longshore_core::Resource;
use longshore_flink_core::conf::layers::OperatorConfig;
use longshore_kit::{
    Applier, Clock, Gate, Kind, Metrics, Namespaces, Router, Runner, Update, Wiring,
};
use longshore_outbound::{Boundaries, OutboundError, Permit};
use tokio_util::sync::CancellationToken;

use crate::{
    caches::Caches,
    controller::{FlinkKind, KindController, Reads},
    deployment::Deployments,
    kinds::{DEPLOYMENT, FLINK_DEPLOYMENT, FLINK_SESSION_JOB, FLINK_STATE_SNAPSHOT, FlinkKey},
    rest::{self, HttpTransport, ProxiedTransport, Transport},
    session_job::SessionJobs,
    snapshot::Snapshots,
};

/// Rounds of a controller that run at once, by default.
const CONCURRENCY: usize = 64;

/// What the operator works on.
#[derive(Clone, Debug)]
pub struct FlinkOptions {
    /// The namespaces that the operator works in.
    pub namespaces: Namespaces,
    /// The configuration of the operator, which resources inherit.
    pub operator: Arc<OperatorConfig>,
    /// The addresses that JobManagers and jars may have.
    pub boundaries: Arc<Boundaries>,
    /// Rounds of a controller that run at once.
    pub concurrency: usize,
    /// Where rounds and questions are counted.
    pub metrics: Metrics,
}

impl Default for FlinkOptions {
    fn default() -> Self {
        Self {
            namespaces: Namespaces::All,
            operator: Arc::default(),
            boundaries: Arc::default(),
            concurrency: CONCURRENCY,
            metrics: Metrics::default(),
        }
    }
}

/// The Flink operator.
pub struct FlinkOperator {
    options: FlinkOptions,
    clock: Arc<dyn Clock>,
    /// What carries requests to JobManagers, where that is not our own client.
    transport: Option<Arc<dyn Transport>>,
    /// The API server that leads to JobManagers, where the names of Services do not.
    api_server: Option<Client>,
    gate: Gate,
}

impl fmt::Debug for FlinkOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlinkOperator")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A key of one of the controllers.
#[derive(Clone, Debug)]
enum Due {
    Deployment(FlinkKey),
    SessionJob(FlinkKey),
    Snapshot(FlinkKey),
}

impl Due {
    fn deployment(&self) -> Option<&FlinkKey> {
        if let Self::Deployment(key) = self {
            Some(key)
        } else {
            None
        }
    }

    fn session_job(&self) -> Option<&FlinkKey> {
        if let Self::SessionJob(key) = self {
            Some(key)
        } else {
            None
        }
    }

    fn snapshot(&self) -> Option<&FlinkKey> {
        if let Self::Snapshot(key) = self {
            Some(key)
        } else {
            None
        }
    }

    /// The key of the resource whose job a snapshot is of.
    fn of_job(namespace: &str, (kind, name): &(String, String)) -> Option<Self> {
        let key = FlinkKey::new(namespace, name);
        match kind.as_str() {
            KIND_DEPLOYMENT => Some(Self::Deployment(key)),
            KIND_SESSION_JOB => Some(Self::SessionJob(key)),
            _ => None,
        }
    }
}

impl FlinkOperator {
    /// An operator with these options.
    pub fn new(options: FlinkOptions, clock: Arc<dyn Clock>) -> Self {
        Self {
            options,
            clock,
            transport: None,
            api_server: None,
            gate: Gate::always_open(),
        }
    }

    /// The same, where `transport` carries requests to JobManagers.
    #[must_use]
    pub fn asking(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// The same, which reaches JobManagers through the API server of this client (`services/proxy`), where names of Services
    /// mean nothing: outside of the cluster.
    #[must_use]
    pub fn through_api_server(mut self, client: Client) -> Self {
        self.api_server = Some(client);
        self
    }

    /// Acts only while this gate is open.
    #[must_use]
    pub fn gated_by(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Runs until `shutdown`.
    ///
    /// The definitions of FlinkDeployment, FlinkSessionJob and FlinkStateSnapshot may be installed later. While the API
    /// server does not serve a kind, there are no objects of it, and the controllers go on with the others.
    ///
    /// *Cancellation*: after `shutdown` no round starts, and running ones have 30 s to finish. Dropping the future is like
    /// a crash: the next process goes on with what is on record.
    ///
    /// # Errors
    /// There is no client for JobManagers, because this machine trusts no certificate authority.
    pub async fn run(
        self,
        client: Client,
        shutdown: CancellationToken,
    ) -> Result<(), OutboundError> {
        let transport = self.transport()?;
        let caches = Caches::new();
        let wiring = wiring(&client, self.options.namespaces.clone(), &caches);
        let applier = Applier::new(client, "flink", wiring.feeds())
            .with_metrics(self.options.metrics.clone());
        let reads = Reads {
            caches,
            operator: Arc::clone(&self.options.operator),
        };
        let around = (reads, transport, applier);
        let mut router = Router::default();
        let of_deployments = router.keys(Due::deployment);
        let of_session_jobs = router.keys(Due::session_job);
        let of_snapshots = router.keys(Due::snapshot);
        let deployments = self.runner::<Deployments>(&around);
        let session_jobs = self.runner::<SessionJobs>(&around);
        let snapshots = self.runner::<Snapshots>(&around);
        tokio::join!(
            deployments.run(of_deployments, shutdown.clone()),
            session_jobs.run(of_session_jobs, shutdown.clone()),
            snapshots.run(of_snapshots, shutdown.clone()),
            shutdown.run_until_cancelled(router.run(wiring.into_triggers()))
        );
        Ok(())
    }

    fn transport(&self) -> Result<Arc<dyn Transport>, OutboundError> {
        if let Some(transport) = &self.transport {
            return Ok(Arc::clone(transport));
        }
        let gate = self.gate.clone();
        let permit = Permit::new(move || gate.is_open());
        let http = Arc::new(HttpTransport::within(&self.options.boundaries, &permit)?);
        Ok(match &self.api_server {
            Some(client) => Arc::new(ProxiedTransport::new(client.clone(), http)),
            None => http,
        })
    }

    fn runner<K: FlinkKind>(
        &self,
        (reads, transport, applier): &(Reads, Arc<dyn Transport>, Applier),
    ) -> Runner<KindController<K>> {
        let controller = KindController::new(reads.clone(), Arc::clone(transport), applier.clone());
        Runner::new(
            Arc::new(controller),
            applier.clone(),
            Arc::clone(&self.clock),
        )
        .gated_by(self.gate.clone())
        .asking(rest::limits())
        .concurrency(self.options.concurrency)
    }
}

fn wiring(client: &Client, namespaces: Namespaces, caches: &Caches) -> Wiring<Due> {
    let of_job_managers =
        format!("{LABEL_TYPE}={TYPE_NATIVE},{LABEL_COMPONENT}={COMPONENT_JOB_MANAGER}");
    let of_clusters = format!("{LABEL_TYPE}={TYPE_NATIVE}");
    let defined = &caches.definitions;
    let deployments = Kind::new(FLINK_DEPLOYMENT, Arc::clone(&caches.deployments))
        .defined_by(&defined.deployments);
    let session_jobs = Kind::new(FLINK_SESSION_JOB, Arc::clone(&caches.session_jobs))
        .defined_by(&defined.session_jobs);
    let snapshots = Kind::new(FLINK_STATE_SNAPSHOT, Arc::clone(&caches.snapshots))
        .defined_by(&defined.snapshots);
    let job_managers = Kind::new(DEPLOYMENT, Arc::clone(&caches.job_managers));
    let pods = Kind::new(Resource::POD, Arc::clone(&caches.pods));
    let config_maps = Kind::new(Resource::CONFIG_MAP, Arc::clone(&caches.config_maps));
    let of_caches = caches.clone();
    Wiring::new(client, namespaces)
        .keyed(deployments, move |update| {
            let key = key_of(update);
            let jobs = key.iter().flat_map(|key| jobs_on(&of_caches, key));
            let jobs: Vec<Due> = jobs.collect();
            key.map(Due::Deployment).into_iter().chain(jobs)
        })
        .keyed(session_jobs, |update| {
            let object = update.into_object();
            let cluster = object.as_ref().and_then(|object| {
                let namespace = object.meta().namespace.as_deref()?;
                let of = &object.value()?.deployment;
                Some(Due::Deployment(FlinkKey::new(namespace, of)))
            });
            let key = object.map(|object| Due::SessionJob(key(&*object)));
            key.into_iter().chain(cluster)
        })
        .keyed(snapshots, |update| {
            let object = update.into_object();
            let job = object.as_ref().and_then(|object| {
                let namespace = object.meta().namespace.as_deref()?;
                Due::of_job(namespace, &object.value()?.job)
            });
            let key = object.map(|object| Due::Snapshot(key(&*object)));
            key.into_iter().chain(job)
        })
        .watched(job_managers.labels(of_job_managers.clone()), |update| {
            key_of(update).map(Due::Deployment)
        })
        .watched(pods.labels(of_job_managers), |update| {
            let object = update.into_object()?;
            let namespace = object.meta().namespace.as_deref()?;
            let key = FlinkKey::new(namespace, &object.value()?.cluster);
            Some(Due::Deployment(key))
        })
        // Flink renews a lease in them every few seconds. What a decision waits for is that they go.
        .watched(config_maps.labels(of_clusters), |update| {
            let Update::Deleted(object) = update else {
                return None;
            };
            let namespace = object.meta().namespace.as_deref()?;
            let key = FlinkKey::new(namespace, &object.value()?.cluster);
            Some(Due::Deployment(key))
        })
}

/// The session jobs of a session cluster, which wait for it.
fn jobs_on(caches: &Caches, cluster: &FlinkKey) -> Vec<Due> {
    let all = caches.session_jobs.beginning(&cluster.namespace, "");
    let all = all.present().map_or(&[][..], Vec::as_slice);
    let ours = all.iter().filter_map(|it| it.value());
    let ours = ours.filter(|it| it.deployment == cluster.name);
    let keys = ours.map(|it| FlinkKey::new(&cluster.namespace, &it.name));
    keys.map(Due::SessionJob).collect()
}

/// The namespace and the name of the object of an update.
fn key_of<K: kube::Resource>(update: Update<K>) -> Option<FlinkKey> {
    Some(key(&*update.into_object()?))
}

/// The namespace and the name of an object.
fn key(object: &impl kube::Resource) -> FlinkKey {
    let metadata = object.meta();
    FlinkKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
