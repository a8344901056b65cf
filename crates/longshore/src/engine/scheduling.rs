//! Database and scheduler of one process: the common part of `run`, `standalone` and `controller`, on any cluster.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use kube::Client;
use longshore_dags::{
    DagMeasures, Dags, DagsConfig, LeftRuns, StartError, launch::decide::Disposal,
    logs::LogDirectory, pods::build::PodConfig, scheduler::Limits,
};
use longshore_kit::{Gate, Metrics, SystemClock, Tasks};
use longshore_store::{RunStore, Store};

use super::{
    database::Database,
    watched_store::WatchedStore,
    workers::{Workers, WorkersPlan},
};
use crate::{cmd::run::duration, error::CliError, progress::phases::Phases};

/// How long the controllers get to finish their rounds.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// How many pods of failed tasks are kept, and for how long.
// Hidden: the help has to fit the first screen.
#[derive(Args, Clone, Debug)]
pub(crate) struct FailedPodsArgs {
    /// Keep the newest N pods of failed tasks; with 0, each goes once its log is stored
    #[arg(long, hide = true, value_name = "N", default_value_t = Disposal::default().keep_failed)]
    keep_failed_pods: usize,
    /// Delete pods of failed tasks after this time, as 90s or 1d
    #[arg(long, hide = true, value_name = "DURATION", default_value = "1d", value_parser = duration)]
    keep_failed_pods_for: Duration,
}

impl FailedPodsArgs {
    /// What becomes of pods that have ended.
    pub(crate) fn disposal(&self) -> Disposal {
        Disposal {
            keep_failed: self.keep_failed_pods,
            keep_failed_for: self.keep_failed_pods_for,
            ..Disposal::default()
        }
    }
}

/// The configuration of a scheduler.
#[derive(Clone, Debug)]
pub(crate) struct SchedulingPlan {
    /// Where logs are kept.
    pub(crate) data_dir: PathBuf,
    /// The namespace of its pods.
    pub(crate) namespace: String,
    /// Pods at the same time.
    pub(crate) parallelism: u32,
    /// What becomes of pods that have ended.
    pub(crate) disposal: Disposal,
    /// What its writes pass; those to the cluster pass the gate of its client.
    pub(crate) gate: Gate,
    /// The registry of its metrics.
    pub(crate) metrics: Metrics,
    /// What commits and logs are measured by.
    pub(crate) measures: DagMeasures,
    /// What becomes of the runs that an earlier process has left.
    pub(crate) left_runs: LeftRuns,
    /// What the workers of DAGs from Python need; `None` where there are none.
    pub(crate) workers: Option<WorkersPlan>,
}

/// A scheduler over its database, running. Dropping it is like a crash: nothing is lost.
pub(crate) struct Scheduling {
    pub(crate) store: Arc<WatchedStore>,
    pub(crate) logs: LogDirectory,
    pub(crate) dags: Arc<Dags>,
    pub(crate) namespace: String,
    pub(crate) metrics: Metrics,
    /// What is to answer workers, until it is served.
    workers: Option<Workers>,
    data_dir: PathBuf,
}

impl Scheduling {
    /// Starts the scheduler, which goes on with the unfinished runs that its plan names.
    pub(crate) async fn start(
        client: Client,
        store: Store,
        plan: SchedulingPlan,
        phases: &Phases,
    ) -> Result<Self, CliError> {
        let gate = plan.gate.clone();
        let workers = match &plan.workers {
            Some(_) => Some(Workers::read(&store).await?),
            None => None,
        };
        let store = Arc::new(WatchedStore::new(store, plan.gate));
        let logs = LogDirectory::new(plan.data_dir.join("logs"));
        phases.wait_for("the scheduler to take up its runs");
        let mut config = DagsConfig {
            gate,
            disposal: plan.disposal,
            measures: plan.measures,
            left_runs: plan.left_runs,
            ..config(
                plan.parallelism,
                &plan.namespace,
                store.scheduler_id(),
                plan.metrics.clone(),
            )
        };
        if let (Some(workers), Some(plan)) = (&workers, &plan.workers) {
            config = workers.configure(config, plan)?;
        }
        let dags = Dags::start(
            client,
            store.clone(),
            Arc::new(logs.clone()),
            Arc::new(SystemClock),
            config,
        );
        let dags = dags.await.map_err(cannot_start)?;
        Ok(Self {
            store,
            logs,
            dags: Arc::new(dags),
            namespace: plan.namespace,
            metrics: plan.metrics,
            workers,
            data_dir: plan.data_dir,
        })
    }

    /// What answers workers, for the path `/execution` of a server; its tasks end with `tasks`. To be called once: later
    /// there is nothing more.
    pub(crate) fn serve_workers(&mut self, tasks: &Tasks) -> Option<axum::Router> {
        let (dags, metrics) = (self.dags.clone(), self.metrics.clone());
        let workers = self.workers.take()?;
        Some(workers.serve(dags, &self.store, &metrics, tasks))
    }

    /// Waits until the scheduler cannot go on, and returns why.
    pub(crate) async fn broken(&self) -> String {
        self.dags.stopping().await;
        "a part of the scheduler broke".to_owned()
    }

    /// Waits until a write has failed for good: then a database in the data directory takes no more writes until it is
    /// opened again. With a database server this never resolves: the server may take a refused write later.
    pub(crate) async fn lost_database(&self, database: &Database) -> CliError {
        self.store.broken().await;
        match (database, self.store.failure()) {
            (Database::InDataDir, Some(why)) => CliError::in_writing(&self.data_dir, why),
            _ => std::future::pending().await,
        }
    }

    /// Ends the scheduler; the database is still open, to look at what was reached.
    pub(crate) async fn stop(&self) {
        if !self.dags.shutdown(STOP_LIMIT).await {
            tracing::warn!("the scheduler did not finish its rounds in time");
        }
    }
}

fn cannot_start(error: StartError) -> CliError {
    match error {
        StartError::OtherCluster {
            run,
            expected,
            found,
        } => CliError::OtherCluster {
            run_id: run.run_id,
            expected,
            found,
        },
        error @ (StartError::Store(_) | StartError::Rows(_) | StartError::Api(_)) => {
            CliError::engine("the scheduler", error)
        }
    }
}

/// The limit on pods at the same time: the given one, or the default of the scheduler.
pub(crate) fn parallelism(told: Option<std::num::NonZeroU32>) -> u32 {
    told.map_or(Limits::default().parallelism, std::num::NonZeroU32::get)
}

pub(crate) fn config(
    parallelism: u32,
    namespace: &str,
    scheduler_id: &str,
    metrics: Metrics,
) -> DagsConfig {
    DagsConfig {
        limits: Limits {
            parallelism,
            ..Limits::default()
        },
        pods: PodConfig {
            namespace: namespace.to_owned(),
            scheduler_id: scheduler_id.to_owned(),
            ..PodConfig::default()
        },
        disposal: Disposal::default(),
        concurrency: 32,
        metrics,
        measures: DagMeasures::default(),
        gate: Gate::always_open(),
        left_runs: LeftRuns::GoOn,
        workers: None,
    }
}
