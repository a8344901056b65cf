//! One scheduler, running: the watch, the controllers, and the handle that the outside holds.

pub mod catalog;
pub mod clear;
mod parsing;
pub mod pools;
pub mod workers;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, Stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};
use longshore_core::Resource;
use longshore_kit::{Applier, CacheFeed, Clock, Controller, Gate, Metrics, Runner, Tasks};
use longshore_plugins::TASK_ACTION;
use longshore_store::{Run, RunKey, RunStore, StoreError, TaskInstance, TaskState};
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::{
    actions,
    base::{
        change::StateChange,
        documents::StoredDags,
        position::{Position, Reached},
        shared::Shared,
    },
    catalog::{Catalog, StoredRows},
    launch::{
        controller::Launches,
        decide::Disposal,
        keep_log::{self, LogKeeper},
        table::Stage,
        watch::LaunchWatch,
    },
    logs::LogArchive,
    measures::DagMeasures,
    model::{CanonicalError, Launcher},
    pods::{build::PodConfig, launched::LaunchedPod, worker::WorkerPods},
    runs::{controller::Runs, observe},
    scheduler::{
        board::{Board, LoadError},
        controller::{Scheduler, TheScheduler},
        decide::Limits,
        facts::{Fact, NewRun},
        retry, run_state,
        waits::RunWaits,
    },
};

/// How a scheduler behaves, from the `[core]`, `[scheduler]` and `[kubernetes_executor]` sections.
#[derive(Clone, Debug)]
pub struct DagsConfig {
    /// Bounds of the scheduler.
    pub limits: Limits,
    /// How pods are built.
    pub pods: PodConfig,
    /// How the pods of workers are made; `None` where tasks of DAGs from Python cannot run.
    pub workers: Option<WorkerPods>,
    /// What becomes of pods that have ended.
    pub disposal: Disposal,
    /// Pods created or deleted at the same time; default 32.
    pub concurrency: usize,
    /// Where rounds are counted.
    pub metrics: Metrics,
    /// What commits and logs are measured by.
    pub measures: DagMeasures,
    /// Rounds act only while it is open.
    pub gate: Gate,
    /// What becomes of the runs that an earlier scheduler has left.
    pub left_runs: LeftRuns,
}

/// What becomes of the runs that are unfinished when a scheduler starts.
#[derive(Clone, Debug, Default)]
pub enum LeftRuns {
    /// They go on.
    #[default]
    GoOn,
    /// They wait until somebody resumes them, as if each had been [interrupted](Dags::interrupt).
    Wait {
        /// The run that goes on.
        but: Option<RunKey>,
        /// Whether that run goes on in another cluster, too. Its unfinished tries start again there, and nobody knows
        /// whether their pods in the former cluster still run.
        anywhere: bool,
    },
}

impl LeftRuns {
    /// The runs that are to wait, and do not wait yet.
    fn to_be_interrupted(&self, board: &Board) -> Vec<RunKey> {
        let Self::Wait { but, .. } = self else {
            return Vec::new();
        };
        let runs = board.runs.iter();
        runs.filter(|(_, active)| !run_state::is_interrupted(&active.run))
            .map(|(key, _)| key)
            .filter(|key| Some(*key) != but.as_ref())
            .cloned()
            .collect()
    }

    /// The run that is to go on, but not in another cluster.
    fn bound_to_its_cluster(&self) -> Option<&RunKey> {
        match self {
            Self::Wait { but, anywhere } => but.as_ref().filter(|_| !anywhere),
            Self::GoOn => None,
        }
    }
}

/// Why a scheduler cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The rows cannot be read.
    #[error("the runs cannot be read from the database")]
    Store(#[from] StoreError),
    /// The rows make no sense together: a run is pinned to a document that this version cannot read, for one.
    #[error("the unfinished runs cannot be taken up")]
    Rows(#[from] LoadError<CanonicalError>),
    /// The API server does not answer.
    #[error("the Kubernetes API server does not answer")]
    Api(#[source] Box<kube::Error>),
    /// The run that is to go on was in another cluster: its pods may still run there.
    #[error(
        "run {run} was in another cluster: expected the one with the id {expected}, found {found}"
    )]
    OtherCluster {
        /// The run.
        run: RunKey,
        /// The uid of the namespace `kube-system` of its cluster.
        expected: String,
        /// That of the cluster which answers.
        found: String,
    },
}

/// Why a run cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is one with this id, or one about the same instant.
    #[error("run {0} exists already, or another one of its DAG that is about the same instant")]
    Exists(RunKey),
    /// The rows cannot be read.
    #[error("the database cannot tell whether the run exists")]
    Store(#[from] StoreError),
}

/// A running scheduler. Dropping it ends its tasks where they are, like a crash: nothing is lost.
pub struct Dags {
    pub(crate) shared: Arc<Shared>,
    tasks: Tasks,
    gate: Gate,
    max_task_retry_delay: Duration,
    left_waiting: Vec<RunKey>,
    has_moved: bool,
    /// Changes of pools are recorded and take effect in one order.
    pool_turns: Arc<tokio::sync::Mutex<()>>,
}

impl Drop for Dags {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

impl fmt::Debug for Dags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dags")
            .field("cluster", &self.shared.cluster)
            .finish_non_exhaustive()
    }
}

impl Dags {
    /// Starts the scheduler of one database in one cluster, and goes on with whatever is unfinished there.
    ///
    /// *Guarantees*: the first effect comes after the pods have been listed and joined with the rows.
    pub async fn start(
        client: Client,
        store: Arc<dyn RunStore>,
        logs: Arc<dyn LogArchive>,
        clock: Arc<dyn Clock>,
        config: DagsConfig,
    ) -> Result<Self, StartError> {
        let mut snapshot = store.load().await?;
        let mut dags = StoredDags::default();
        dags.add(std::mem::take(&mut snapshot.documents).into_values());
        let catalog = Catalog::load(StoredRows::take(&mut snapshot), &mut dags);
        let cluster = cluster_id(&client).await?;
        let stored = snapshot.watch_position.as_deref();
        let position: Option<Position> = stored.and_then(|text| text.parse().ok());
        let former = position.map(|at| at.cluster).filter(|at| *at != cluster);
        let has_moved = former.is_some();
        if let (Some(expected), Some(run)) = (former, config.left_runs.bound_to_its_cluster()) {
            return Err(StartError::OtherCluster {
                run: run.clone(),
                expected,
                found: cluster,
            });
        }
        let at = Reached::stored(stored, &cluster);
        let board = Board::load(snapshot, |run| dags.read(&run.dag_hash))?;
        // The text of the documents is not needed any more.
        drop(dags);

        let shared = Arc::new(Shared::new(
            store,
            clock,
            cluster,
            (config.pods.clone(), config.workers.clone()),
            board,
            catalog,
            config.disposal.keep_failed,
        ));
        shared.inbox.stored(at);
        if at.actions.is_some() {
            // TaskActions of runs that are over may be left.
            shared.launched.reach(Launcher::TaskAction, Stage::Wanted);
        }
        shared.follow_actions_if_wanted();
        if has_moved {
            // Nobody here can know whether the former cluster still runs them.
            tracing::warn!(
                "the cluster is another one than before: unfinished tries start again here, and their pods in the former \
                 cluster, if it still exists, run on beside them"
            );
            shared.inbox.push(Fact::ClusterChanged);
        }
        let left_waiting = config.left_runs.to_be_interrupted(&shared.board());
        let interrupts = left_waiting.iter().cloned().map(Fact::Interrupt);
        interrupts.for_each(|fact| shared.inbox.push(fact));
        let service = Self {
            shared,
            left_waiting,
            has_moved,
            tasks: Tasks::new(),
            gate: config.gate.clone(),
            max_task_retry_delay: config.limits.max_task_retry_delay,
            pool_turns: Arc::default(),
        };
        service.spawn(client, logs, config, at).await?;
        Ok(service)
    }

    async fn spawn(
        &self,
        client: Client,
        logs: Arc<dyn LogArchive>,
        config: DagsConfig,
        at: Reached,
    ) -> Result<(), StartError> {
        let shared = &self.shared;
        let namespace = &shared.pod_config.namespace;
        let caches: [(Resource, Arc<dyn CacheFeed>); 2] = [
            (Resource::POD, shared.launched.pods.clone()),
            (TASK_ACTION, shared.launched.actions.clone()),
        ];
        let applier =
            Applier::new(client.clone(), "dags", caches).with_metrics(config.metrics.clone());
        let left_behind = observe::left_behind(&client, &shared.pod_config).await;
        let left_behind = left_behind.map_err(|error| StartError::Api(Box::new(error)))?;

        let watch = LaunchWatch::new(
            Api::<LaunchedPod>::namespaced(client.clone(), namespace),
            shared.clone(),
        );
        self.tasks
            .spawn("dags.watch", watch.run(at.pods, self.tasks.shutdown()));
        let actions = LaunchWatch::new(actions::api(&client, namespace), shared.clone());
        self.tasks.spawn(
            "dags.watch.actions",
            actions.run(at.actions, self.tasks.shutdown()),
        );
        let launched = &shared.launched;
        launched.reached(Launcher::Pod, Stage::Listed).await;

        let measures = config.measures;
        let scheduler = Scheduler::new(shared.clone(), config.limits, measures.clone());
        let scheduler = self.runner(scheduler, &applier, 1);
        self.run(scheduler, scheduler_triggers(shared.clone()));
        let log_keeper = LogKeeper::new(client.clone(), logs, self.gate.clone(), measures);
        let launches = Launches::new(shared.clone(), config.disposal, log_keeper);
        let launches = self
            .runner(launches, &applier, config.concurrency)
            .asking(keep_log::limits(config.concurrency))
            .remembering(launched.log_memory());
        self.run(launches, launch_triggers(shared.clone()));
        let runs = Runs::new(shared.clone(), client);
        let runs = self.runner(runs, &applier, config.concurrency);
        self.run(runs, shared.run_keys.clone().stream());
        shared
            .run_keys
            .add(shared.board().runs.keys().cloned().chain(left_behind));
        Ok(())
    }

    fn runner<C: Controller>(
        &self,
        controller: C,
        applier: &Applier,
        concurrency: usize,
    ) -> Runner<C> {
        let clock = self.shared.clock.clone();
        Runner::new(Arc::new(controller), applier.clone(), clock)
            .gated_by(self.gate.clone())
            .concurrency(concurrency)
    }

    fn run<C: Controller>(
        &self,
        runner: Runner<C>,
        triggers: impl Stream<Item = C::Key> + Send + 'static,
    ) {
        let name = runner.name();
        let rounds = runner.run(triggers, self.tasks.shutdown());
        self.tasks.spawn(name, rounds);
    }

    /// Follows state changes from now on. A follower that is 4,096 changes behind loses the oldest.
    pub fn changes(&self) -> broadcast::Receiver<StateChange> {
        self.shared.changes.subscribe()
    }

    /// Creates a run and waits until it is recorded.
    pub async fn request_run(&self, new: NewRun) -> Result<RunKey, RequestError> {
        let key = new.key();
        if self.shared.store.has_run(&key, new.logical_date).await? {
            return Err(RequestError::Exists(key));
        }
        self.shared.inbox.push(Fact::RunRequested(new));
        loop {
            let committed = self.shared.committed.notified();
            let is_decided = !self.shared.inbox.requested().contains(&key);
            if self.shared.board().runs.contains_key(&key)
                || self.shared.store.has_run(&key, None).await?
            {
                return Ok(key);
            }
            if is_decided {
                // A run about the same instant came first.
                return Err(RequestError::Exists(key));
            }
            committed.await;
        }
    }

    /// Ends a run now: its pods are stopped within their grace.
    pub fn cancel(&self, key: &RunKey) {
        self.shared.inbox.push(Fact::CancelRun(key.clone()));
    }

    /// Stops a run without ending it: its pods are stopped within their grace, no try is consumed. Returns when that
    /// is recorded; [`released`](Self::released) waits for the pods.
    pub async fn interrupt(&self, key: &RunKey) {
        self.shared.inbox.push(Fact::Interrupt(key.clone()));
        loop {
            let committed = self.shared.committed.notified();
            let board = self.shared.board();
            if board
                .runs
                .get(key)
                .is_none_or(|active| run_state::is_interrupted(&active.run))
            {
                return;
            }
            committed.await;
        }
    }

    /// Lets an interrupted run go on.
    pub fn resume(&self, key: &RunKey) {
        self.shared.inbox.push(Fact::Resume(key.clone()));
    }

    /// Waits until a run is over. `None`: there is no such run.
    pub async fn ended(
        &self,
        key: &RunKey,
    ) -> Result<Option<(Run, Vec<TaskInstance>)>, StoreError> {
        loop {
            let committed = self.shared.committed.notified();
            if !self.shared.board().runs.contains_key(key) {
                return self.shared.store.run(key).await;
            }
            committed.await;
        }
    }

    /// Waits until what the tries of a run that is over or interrupted were launched as is gone, or kept for good, with
    /// their logs stored.
    pub async fn released(&self, key: &RunKey) {
        let mut moves = self.shared.launched.moves();
        while self.shared.launched.is_busy_with(key) {
            if !moves.next().await {
                return;
            }
        }
    }

    /// The tasks of a run for whose pods [`released`](Self::released) waits.
    pub fn unreleased(&self, key: &RunKey) -> BTreeSet<String> {
        self.shared.launched.busy_tasks(key)
    }

    /// Whether the database was used in another cluster before: unfinished tries start again in this one.
    pub fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// How many task instances of unfinished runs are in which state; `None` is the one before `Scheduled`.
    pub fn census(&self) -> BTreeMap<Option<TaskState>, usize> {
        let mut census = BTreeMap::new();
        for run in self.shared.board().runs.values() {
            for row in run.tasks.values() {
                *census.entry(row.state).or_insert(0) += 1;
            }
        }
        census
    }

    /// What the queued runs wait for, as things are now.
    pub fn run_waits(&self) -> RunWaits {
        RunWaits::of(self.shared.board())
    }

    /// When a task instance that waits for its retry is tried again, at the earliest.
    pub fn next_try(&self, row: &TaskInstance) -> Option<Timestamp> {
        let board = self.shared.board();
        let active = board.runs.get(&row.key.run)?;
        let task = active.dag.tasks.get(&row.key.task_id)?;
        let date = active.run.logical_date;
        retry::due_at(task, row, date, self.max_task_retry_delay)
    }

    /// What keeps the pod of a queued task instance from its start.
    pub fn pending(&self, row: &TaskInstance) -> Option<String> {
        let pending = self.shared.launched.pending(&row.id)?;
        (row.state == Some(TaskState::Queued)).then_some(pending)
    }

    /// Whether unfinished runs have tasks that become TaskActions, which another controller has to run.
    pub fn has_plugin_tasks(&self) -> bool {
        self.shared.board().has_plugin_tasks()
    }

    /// The runs that this scheduler has interrupted at its start, by [`LeftRuns::Wait`].
    pub fn left_waiting(&self) -> &[RunKey] {
        &self.left_waiting
    }

    /// Whether the scheduler is stopping: a caller stops it, or a part of it broke.
    pub fn is_stopping(&self) -> bool {
        self.tasks.shutdown().is_cancelled()
    }

    /// Waits until the scheduler is stopping: a caller stops it, or a part of it broke.
    pub async fn stopping(&self) {
        self.tasks.shutdown().cancelled().await;
    }

    /// Stops: running rounds finish within `limit`, pods stay. Returns whether all rounds finished.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.tasks.stop(limit).await
    }
}

async fn cluster_id(client: &Client) -> Result<String, StartError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let system = namespaces.get_metadata("kube-system").await;
    Ok(system
        .map_err(|error| StartError::Api(Box::new(error)))?
        .uid()
        .unwrap_or_default())
}

/// The tries that need a round. None comes before the scheduler has recorded that it runs in another cluster: a row that was
/// written in the earlier cluster asks for a pod, and this record takes the request back.
fn launch_triggers(shared: Arc<Shared>) -> impl Stream<Item = Uuid> + Send {
    let keys = shared.launch_keys.clone().stream();
    let has_arrived = async move {
        loop {
            let committed = shared.committed.notified();
            if !shared.inbox.has_cluster_change() {
                return keys;
            }
            committed.await;
        }
    };
    has_arrived.flatten_stream()
}

fn scheduler_triggers(shared: Arc<Shared>) -> impl Stream<Item = TheScheduler> + Send {
    futures::stream::unfold(true, move |is_first| {
        let shared = shared.clone();
        async move {
            if !is_first {
                shared.inbox.arrived().await;
            }
            Some((TheScheduler, false))
        }
    })
}
