//! Database, cluster and scheduler of one process: what `run` and `standalone` both stand on.

use std::{num::NonZeroU32, path::PathBuf, sync::Arc, time::Duration};

use longshore_dags::{Dags, logs::LogDirectory, scheduler::Limits};
use longshore_kit::{Metrics, SystemClock};
use longshore_store::RunStore;

use super::{config, counted_logs::CountedLogs, database::Database, watched_store::WatchedStore};
use crate::{
    error::CliError,
    local_cluster::{Lifetime, LocalCluster},
    progress::phases::Phases,
};

/// How long the controllers get to finish their rounds.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// What the parts are made of.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The data directory, locked by the caller.
    pub(crate) data_dir: PathBuf,
    /// Where runs are kept.
    pub(crate) database: Database,
    /// What becomes of the cluster when the process ends.
    pub(crate) lifetime: Lifetime,
    /// Pods at the same time.
    pub(crate) parallelism: Option<NonZeroU32>,
}

/// The parts, running. Dropping them is like a crash: nothing is lost.
pub(crate) struct Parts {
    pub(crate) store: Arc<WatchedStore>,
    pub(crate) logs: LogDirectory,
    pub(crate) cluster: LocalCluster,
    pub(crate) dags: Arc<Dags>,
    pub(crate) metrics: Metrics,
}

impl Parts {
    /// Starts them, and goes on with whatever is unfinished.
    pub(crate) async fn start(plan: &Plan, phases: &Phases) -> Result<Self, CliError> {
        let data_dir = &plan.data_dir;
        let store = plan.database.open(data_dir, phases).await?;
        let metrics = Metrics::new();
        let store = Arc::new(WatchedStore::new(store, &metrics));
        let parallelism = plan
            .parallelism
            .map_or(Limits::default().parallelism, NonZeroU32::get);
        let cluster =
            LocalCluster::start(data_dir, parallelism, plan.lifetime, &metrics, phases).await?;
        let logs = LogDirectory::new(data_dir.join("logs"));
        phases.wait_for("the scheduler to take up its runs");
        let dags = Dags::start(
            cluster.client("dags"),
            store.clone(),
            Arc::new(CountedLogs::new(logs.clone(), &metrics)),
            Arc::new(SystemClock),
            config(parallelism, store.scheduler_id(), metrics.clone()),
        );
        let dags = dags
            .await
            .map_err(|source| CliError::engine("the scheduler", source))?;
        Ok(Self {
            store,
            logs,
            cluster,
            dags: Arc::new(dags),
            metrics,
        })
    }

    /// Waits until a part cannot go on, and says why.
    pub(crate) async fn broken(&self) -> String {
        tokio::select! {
            () = self.dags.stopping() => "a part of the scheduler broke".to_owned(),
            why = self.cluster.broken() => why,
        }
    }

    /// Ends scheduler and cluster, in this order; the database is still open, to look at what was reached. Returns the
    /// directory of the volume claims.
    pub(crate) async fn stop(self) -> PathBuf {
        if !self.dags.shutdown(STOP_LIMIT).await {
            tracing::warn!("the scheduler did not finish its rounds in time");
        }
        self.cluster.stop().await
    }
}
