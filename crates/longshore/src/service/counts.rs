//! Metrics of the service beside those of the kit: states of tasks, and the process itself.

use std::{
    fs,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::AtomicU64},
};

use longshore_console::Scrape;
use longshore_dags::{Change, DagMeasures, Dags};
use longshore_kit::{Clock, Metrics, SystemClock, Tasks, metrics::Registrar};
use longshore_store::TaskState;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Unit,
};
use tokio::sync::broadcast::error::RecvError;

use crate::progress::lines::task_word;

/// The states that a task of an unfinished run can be in: each is shown, those without tasks as 0.
const STATES: [Option<TaskState>; 14] = [
    None,
    Some(TaskState::Scheduled),
    Some(TaskState::Queued),
    Some(TaskState::Running),
    Some(TaskState::Restarting),
    Some(TaskState::UpForRetry),
    Some(TaskState::UpForReschedule),
    Some(TaskState::Deferred),
    Some(TaskState::AwaitingInput),
    Some(TaskState::Success),
    Some(TaskState::Failed),
    Some(TaskState::UpstreamFailed),
    Some(TaskState::Skipped),
    Some(TaskState::Removed),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabels {
    from: &'static str,
    to: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// What is counted. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    tasks: Family<StateLabels, Gauge>,
    changes: Family<ChangeLabels, Counter>,
    heartbeat: Gauge<f64, AtomicU64>,
    resident: Gauge,
    measures: DagMeasures,
    /// The scheduler that runs now, if one does.
    dags: Arc<Mutex<Weak<Dags>>>,
}

impl Counts {
    /// Nothing counted yet. Once per process.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counts = Self::default();
        metrics.register(|registrar| counts.register(registrar));
        counts
    }

    /// Counts what this scheduler does from now on, as one of `tasks`.
    pub(crate) fn follow(&self, dags: &Arc<Dags>, tasks: &Tasks) {
        let mut followed = self.dags.lock().unwrap_or_else(PoisonError::into_inner);
        *followed = Arc::downgrade(dags);
        tasks.spawn("metrics.changes", count_changes(dags, self, tasks));
    }

    /// All metrics of the process, computed at each scrape.
    pub(crate) fn scrape(&self, metrics: Metrics) -> Scrape {
        let counts = self.clone();
        Arc::new(move || {
            counts.look(&metrics);
            metrics.text()
        })
    }

    /// What the scheduler's commits and logs are measured by.
    pub(crate) fn measures(&self) -> DagMeasures {
        self.measures.clone()
    }

    fn register(&self, registrar: &mut Registrar) {
        self.measures.register(registrar);
        registrar.register(
            "longshore_task_instances",
            "Task instances of unfinished runs, by state",
            &["state"],
            self.tasks.clone(),
        );
        registrar.register(
            "longshore_task_state_changes",
            "State changes of task instances",
            &["from", "to"],
            self.changes.clone(),
        );
        registrar.register(
            "longshore_scheduler_heartbeat_timestamp_seconds",
            "When the loop of the scheduler last turned, in seconds since 1970",
            &[],
            self.heartbeat.clone(),
        );
        registrar.register_with_unit(
            "process_resident_memory",
            "Resident memory of the process",
            Unit::Bytes,
            &[],
            self.resident.clone(),
        );
        let build: Family<BuildLabels, Gauge> = Family::default();
        let version = env!("CARGO_PKG_VERSION");
        build.get_or_create(&BuildLabels { version }).set(1);
        registrar.register(
            "longshore_build_info",
            "The version that runs",
            &["version"],
            build,
        );
    }

    /// What is read rather than counted.
    fn look(&self, metrics: &Metrics) {
        let dags = self.dags.lock().unwrap_or_else(PoisonError::into_inner);
        let census = dags.upgrade().map(|dags| dags.census());
        let census = census.unwrap_or_default();
        for state in STATES {
            let n = census.get(&state).copied().unwrap_or(0);
            let labels = StateLabels {
                state: task_word(state),
            };
            let gauge = self.tasks.get_or_create(&labels);
            gauge.set(i64::try_from(n).unwrap_or(i64::MAX));
        }
        if let Some(since) = metrics.since_beats().get("dags.scheduler") {
            let at = SystemClock.now().as_duration().as_secs_f64() - since.as_secs_f64();
            self.heartbeat.set(at);
        }
        if let Some(bytes) = resident_bytes() {
            self.resident.set(bytes);
        }
    }
}

/// Counts state changes until shutdown.
fn count_changes(
    dags: &Dags,
    counts: &Counts,
    tasks: &Tasks,
) -> impl Future<Output = ()> + Send + use<> {
    let mut changes = dags.changes();
    let changed = counts.changes.clone();
    let shutdown = tasks.shutdown();
    let count = async move {
        loop {
            match changes.recv().await {
                Ok(change) => {
                    if let Change::Task { from, to, .. } = change.change {
                        let (from, to) = (task_word(from), task_word(to));
                        changed.get_or_create(&ChangeLabels { from, to }).inc();
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    };
    async move {
        shutdown.run_until_cancelled(count).await;
    }
}

/// The resident memory of this process.
fn resident_bytes() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: i64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
