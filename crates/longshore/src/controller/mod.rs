//! `longshore controller`: the controllers on a Kubernetes cluster, each role in one replica at a time.
//!
//! [`roles`] says which roles there are, [`leadership`] lets each of them act only while this replica holds its lease,
//! [`permissions`] finds out before the start which rights RBAC does not grant, and [`rbac`] makes the roles of RBAC.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use longshore_console::{Checks, Hosts, objects::Check, operations, serve::serve};
use longshore_dags::launch::decide::Disposal;
use longshore_kit::{Metrics, Tasks, metrics};
use longshore_podops::PodMeasures;
use longshore_tasks::{ActionMeasures, Settings};
use longshore_webhook::{ClientAuthority, Measures, Readiness};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    control::vital_signs,
    engine::{airflow::AirflowPlan, database::Database},
    error::CliError,
    kubernetes::RealCluster,
    output,
    service::{counts::Counts, flink::FlinkSettings, listen, podops::PodOpsSettings},
    signals::Interrupts,
};

mod candidate;
pub(crate) mod config_file;
mod dags;
mod flink;
mod leadership;
pub(crate) mod mark;
pub(crate) mod namespaces;
mod neighbours;
pub(crate) mod permissions;
pub(crate) mod podops;
pub(crate) mod podops_args;
mod policies;
pub(crate) mod rbac;
mod ready;
pub(crate) mod roles;
pub(crate) mod secret_flags;
mod served;
mod tasks;
pub(crate) mod webhook;

pub(crate) use leadership::{Election, Standing};
use namespaces::Others;
use roles::Role;

/// How long probes under way have to end.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// The configuration of a controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerConfig {
    /// The roles of the controller.
    pub(crate) roles: Vec<&'static Role>,
    /// The namespaces beside the controller's own whose TaskActions it runs.
    pub(crate) others: Others,
    /// Whether there may be other replicas.
    pub(crate) election: Election,
    /// Where logs are kept, and runs where no database is named. Not locked: a replica that waits uses nothing of it.
    pub(crate) data_dir: PathBuf,
    /// Where runs are kept.
    pub(crate) database: Database,
    /// Pods of dags at the same time.
    pub(crate) parallelism: Option<NonZeroU32>,
    /// What becomes of pods of dags that have ended.
    pub(crate) disposal: Disposal,
    /// How Python DAG files are parsed; `None`: not at all.
    pub(crate) airflow: Option<AirflowPlan>,
    /// The folder of the DAG files; `None` for a folder in the data directory.
    pub(crate) dags_folder: Option<PathBuf>,
    /// Where the HTTP API is, in the replica that has the role `dags`.
    pub(crate) address: SocketAddr,
    /// What the peer's configuration says about tasks.
    pub(crate) settings: Settings,
    /// The settings of the role `flink`.
    pub(crate) flink: FlinkSettings,
    /// The settings of the role `podops`.
    pub(crate) podops: PodOpsSettings,
    /// Where the role `webhook` listens; `None`: at the port that `settings` name, on every address.
    pub(crate) webhook_address: Option<SocketAddr>,
    /// Which client certificates webhooks take; `None`: they take tokens.
    pub(crate) client_authority: Option<ClientAuthority>,
    /// The address of health and metrics.
    pub(crate) metrics_address: SocketAddr,
    /// A second address of health and metrics.
    pub(crate) health_address: Option<SocketAddr>,
}

/// What every role of a process gets.
pub(crate) struct Context {
    pub(crate) config: ControllerConfig,
    pub(crate) cluster: RealCluster,
    pub(crate) metrics: Metrics,
    /// The metrics beside those of the kit.
    pub(crate) counts: Counts,
    /// The metrics of the webhooks.
    pub(crate) webhooks: Measures,
    /// Whether the process serves its webhooks, and API servers know them.
    pub(crate) readiness: Readiness,
    /// The metrics of pods.
    pub(crate) pods: PodMeasures,
    /// What each role of this replica does at the moment.
    pub(crate) standing: Standing,
}

/// Runs the roles until `interrupts`, or until one of them cannot go on. Calls `ready` with the
/// address of health and metrics, once they are served.
pub(crate) async fn run(
    mut config: ControllerConfig,
    cluster: RealCluster,
    mut interrupts: impl Interrupts,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), CliError> {
    let (at, setting) = (config.metrics_address, "--metrics-address");
    let (listener, address) = listen("health and metrics", at, setting).await?;
    let metrics = Metrics::new();
    config.settings.tasks.measures = ActionMeasures::new(&metrics);
    let counts = Counts::new(&metrics);
    let standing = Standing::new(&metrics, &config.roles);
    let readiness = ready::expecting(&config.roles, &metrics);
    let context = Arc::new(Context {
        webhooks: Measures::new(&metrics),
        readiness,
        pods: PodMeasures::new(&metrics),
        config,
        cluster,
        metrics,
        counts,
        standing,
    });
    let probes = Tasks::new();
    let mut listeners = vec![(listener, address)];
    let config = &context.config;
    // The flag before the file, as everywhere.
    if let Some(address) = config.health_address.or(config.settings.health_address) {
        let setting = "--health-probe-bind-address";
        listeners.push(listen("health", address, setting).await?);
    }
    for (listener, address) in listeners {
        let health = operations(
            Arc::new(Probes(context.clone())),
            hosts(address),
            context.counts.scrape(context.metrics.clone()),
            metrics::CONTENT_TYPE,
            probes.shutdown(),
        );
        probes.spawn("metrics", serve(listener, health, probes.shutdown()));
    }
    ask_while_doubted(&context, &probes)?;
    let ended = async {
        context.cluster.answers(&context.metrics).await?;
        permissions::check(&context).await?;
        note_scopes(&context);
        ready(address);
        lead_all(&context, &mut interrupts).await
    };
    let ended = ended.await;
    probes.stop(DRAIN_LIMIT).await;
    ended
}

/// Lets a replica with webhooks notice that the API server answers again.
fn ask_while_doubted(context: &Arc<Context>, tasks: &Tasks) -> Result<(), CliError> {
    if context.readiness.known().is_empty() {
        return Ok(());
    }
    let client = context.cluster.client("contact", &context.metrics)?;
    let (context, stopping) = (context.clone(), tasks.shutdown());
    tasks.spawn("contact", async move {
        let asking = ready::ask_while_doubted(context.cluster.contact(), client);
        stopping.run_until_cancelled(asking).await;
    });
    Ok(())
}

/// Prints in which namespaces the roles work, and in which not.
fn note_scopes(context: &Context) {
    let own = context.cluster.namespace();
    for role in &context.config.roles {
        if let Some(scope) = context.config.others.scope(role, own) {
            output::note(&scope);
        }
    }
}

/// Runs every role under its lease; the first that cannot go on ends the others, in order.
async fn lead_all(
    context: &Arc<Context>,
    interrupts: &mut impl Interrupts,
) -> Result<(), CliError> {
    let shutdown = CancellationToken::new();
    let mut roles = JoinSet::new();
    for &role in &context.config.roles {
        if let Some(everywhere) = role.everywhere {
            roles.spawn(everywhere(context.clone(), shutdown.clone()));
        }
        let (context, shutdown) = (context.clone(), shutdown.clone());
        roles.spawn(async move { leadership::lead(role, &context, shutdown).await });
    }
    let mut result = Ok(());
    loop {
        tokio::select! {
            ended = roles.join_next() => match ended {
                None => return result,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    result = result.and(Err(error));
                    shutdown.cancel();
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "a role panicked");
                    let place = "a role of the controller".to_owned();
                    result = result.and(Err(CliError::Internal { place }));
                    shutdown.cancel();
                }
            },
            () = interrupts.next() => {
                if shutdown.is_cancelled() {
                    crate::signals::exit_at_once();
                }
                shutdown.cancel();
            }
        }
    }
}

/// On a loopback address the service refuses unknown `Host` names, which a browser of this machine could be made to
/// send. Any other address is meant to be reached under other names.
pub(crate) fn hosts(address: SocketAddr) -> Hosts {
    if address.ip().is_loopback() {
        Hosts::Known(Vec::new())
    } else {
        Hosts::Any
    }
}

/// Whether this replica is healthy: one that waits for a lease is, and one whose webhooks cannot be reached is not.
struct Probes(Arc<Context>);

#[async_trait]
impl Checks for Probes {
    fn vital_signs(&self) -> Vec<Check> {
        vital_signs(&self.0.metrics)
    }

    async fn checks(&self) -> Vec<Check> {
        let mut checks = self.0.standing.checks();
        checks.extend(ready::checks(&self.0.readiness, self.0.cluster.contact()));
        checks
    }
}
