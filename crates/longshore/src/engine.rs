//! The seam to everything that makes a run happen: embedded cluster, process node, scheduler, database.
//!
//! The command line hands over an [`Order`] and gets a [`Started`] run, whose state changes it follows to the [`End`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    num::{NonZeroU32, NonZeroU64},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use longshore_dags::{
    DagMeasures, LeftRuns, StateChange,
    launch::decide::Disposal,
    logs::{LogDirectory, LogPath},
    model::Dag,
    scheduler::{NewRun, identity::manual_run_id},
};
use longshore_kit::{Clock, Gate, Metrics, SystemClock};
use longshore_node::UnmappedImages;
use longshore_store::{Run, RunKey, RunStore, StoredDocument, TaskInstance};
use serde_json::{Map, Value};
use tokio::{
    sync::{broadcast, mpsc},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{
        cluster::RunCluster,
        database::{Database, Rights},
        scheduling::{Scheduling, SchedulingPlan, parallelism},
    },
    error::CliError,
    kubernetes::RealCluster,
    output,
    progress::phases::Phases,
};

pub(crate) mod airflow;
mod cluster;
pub(crate) mod database;
mod pools;
pub(crate) mod scheduling;
mod watched_store;
pub(crate) mod workers;

/// The run to be started, and where it runs.
#[derive(Debug)]
pub(crate) struct Order {
    /// The DAG.
    pub(crate) dag: Dag,
    /// Parameters, over the DAG's defaults.
    pub(crate) params: Map<String, Value>,
    /// The slots of the pools that the folder of the DAG names.
    pub(crate) pools: BTreeMap<String, i64>,
    /// A run to go on with; `None` starts a new run.
    pub(crate) resume: Option<String>,
    /// Pods at the same time.
    pub(crate) parallelism: Option<NonZeroU32>,
    /// The data directory, locked by the caller.
    pub(crate) data_dir: PathBuf,
    /// What the embedded cluster does with pods whose image is not in the image map.
    pub(crate) unmapped_images: UnmappedImages,
    /// How many processes a pod of the embedded cluster may have.
    pub(crate) pod_pids_limit: Option<NonZeroU64>,
    /// A cluster of the user's; `None` for the embedded one.
    pub(crate) cluster: Option<RealCluster>,
    /// Whether the run goes on in another cluster than before, where its unfinished tasks start again.
    pub(crate) in_other_cluster: bool,
}

impl Order {
    /// The run to go on with.
    fn resumed(&self) -> Option<RunKey> {
        self.resume.clone().map(|run_id| RunKey {
            dag_id: self.dag.dag_id.clone(),
            run_id,
        })
    }
}

/// How long a run that has ended, or was stopped, waits for its pods to go. The next process with
/// this data directory takes over the pods that are left.
const RELEASE_LIMIT: Duration = Duration::from_secs(90);

/// After this time, the command says what it waits for.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

const MOVED: &str = "the cluster is another one than before: unfinished tasks of runs that are resumed start again here, \
                     and their pods in the former cluster, if it still exists, run on";

/// What the tasks of a run shared: the outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Workspace {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A claim in a cluster.
    Claim {
        /// The namespace of the claim.
        namespace: String,
        /// The name of the claim.
        name: String,
    },
}

impl fmt::Display for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Claim { namespace, name } => {
                write!(f, "persistentvolumeclaim/{name} in namespace {namespace}")
            }
        }
    }
}

/// A run that goes on.
#[derive(Debug)]
pub(crate) struct Started {
    /// The key of the run.
    pub(crate) run: RunKey,
    /// Every transition, in order. Closed when the run is over or was stopped.
    pub(crate) changes: mpsc::UnboundedReceiver<StateChange>,
    /// The caller cancels it to stop the pods within their grace and leave the run resumable.
    pub(crate) stop: CancellationToken,
    /// How the run ended; ready once `changes` is closed.
    pub(crate) end: JoinHandle<Result<End, CliError>>,
}

/// A run that is over, or was stopped on the way.
#[derive(Debug)]
pub(crate) struct End {
    /// The run as it stands; finished unless it was stopped.
    pub(crate) run: Run,
    /// The task instances of the run, in the order of their ids.
    pub(crate) tasks: Vec<TaskEnd>,
    /// What the tasks shared, where the DAG has a workspace.
    pub(crate) workspace: Option<Workspace>,
    /// The directory with the tasks' logs.
    pub(crate) logs: PathBuf,
}

/// A task instance as it stands.
#[derive(Debug)]
pub(crate) struct TaskEnd {
    /// The row of the task instance.
    pub(crate) task_instance: TaskInstance,
    /// The log of its last try, where it had one.
    pub(crate) log: Option<PathBuf>,
}

/// Starts a run, or goes on with one.
pub(crate) async fn start(order: Order) -> Result<Started, CliError> {
    let engine = Engine::start(&order).await?;
    pools::prepare(&engine.scheduling.dags, &order).await?;
    let mut changes = engine.scheduling.dags.changes();
    let has_workspace = order.dag.workspace.is_some();
    tell_of_left_runs(engine.scheduling.dags.left_waiting());
    if order.cluster.is_some() && engine.scheduling.dags.has_moved() {
        output::note(MOVED);
    }
    let run = match order.resumed() {
        Some(key) => engine.resume(&order.dag, key).await?,
        None => engine.request(order.dag, order.params).await?,
    };
    let stop = CancellationToken::new();
    let (tell, told) = mpsc::unbounded_channel();
    let (key, stopped) = (run.clone(), stop.clone());
    let end = tokio::spawn(async move {
        let follow = forward(&mut changes, &key, &tell);
        let ended = engine.to_the_end(&key, &stopped);
        // Both end with the run: the loop below sends the last changes before the end of the run is reported.
        tokio::select! {
            () = follow => {}
            () = ended => {}
        }
        while let Ok(change) = changes.try_recv() {
            let _ = tell.send(change);
        }
        engine.finish(&key, has_workspace).await
    });
    Ok(Started {
        run,
        changes: told,
        stop,
        end,
    })
}

/// Names the runs that this command has stopped: their commands were killed, and told nobody how to go on.
fn tell_of_left_runs(runs: &[RunKey]) {
    for RunKey { dag_id, run_id } in runs {
        output::note(&format!(
            "run {run_id} of DAG {dag_id}, whose command was killed, waits: `longshore run` with its file and \
             `--resume {run_id}` goes on with it"
        ));
    }
}

/// What a command says that waits for the pods of a run.
fn waiting_for(tasks: &BTreeSet<String>, logs: &Path) -> String {
    const SHOWN: usize = 3;
    let mut names: Vec<&str> = tasks.iter().map(String::as_str).take(SHOWN).collect();
    let more = format!("{} more", tasks.len().saturating_sub(SHOWN));
    if tasks.len() > SHOWN {
        names.push(&more);
    }
    format!(
        "waiting at most {} s for the pods of the run to stop, and for their logs to be stored in {} (is the disk full?): \
         {}",
        RELEASE_LIMIT.as_secs(),
        logs.display(),
        names.join(", ")
    )
}

/// Hands the changes of one run on.
async fn forward(
    changes: &mut broadcast::Receiver<StateChange>,
    run: &RunKey,
    tell: &mpsc::UnboundedSender<StateChange>,
) {
    loop {
        match changes.recv().await {
            Ok(change) if change.run == *run => {
                let _ = tell.send(change);
            }
            Ok(_) => {}
            Err(broadcast::error::RecvError::Lagged(n_missed)) => {
                tracing::warn!(n_missed, "the progress is behind the run");
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// A run's scheduler, and its cluster.
struct Engine {
    data_dir: PathBuf,
    scheduling: Scheduling,
    cluster: RunCluster,
}

impl Engine {
    async fn start(order: &Order) -> Result<Self, CliError> {
        let data_dir = order.data_dir.clone();
        let (metrics, phases) = (Metrics::new(), Phases::silent());
        let store = Database::InDataDir.open(&data_dir, Rights::First, &phases);
        let store = store.await?;
        let parallelism = parallelism(order.parallelism);
        let cluster = RunCluster::start(order, parallelism, &metrics).await?;
        let plan = SchedulingPlan {
            data_dir: data_dir.clone(),
            namespace: cluster.namespace().to_owned(),
            parallelism,
            disposal: Disposal::default(),
            gate: Gate::always_open(),
            metrics: metrics.clone(),
            measures: DagMeasures::default(),
            // A command runs what its user names, and nothing that an earlier command was killed at.
            left_runs: LeftRuns::Wait {
                but: order.resumed(),
                // The embedded cluster is a new one each time, after all pods of the former one have ended.
                anywhere: order.cluster.is_none() || order.in_other_cluster,
            },
            // Its file is that of a container DAG.
            workers: None,
        };
        let client = cluster.client("dags", &metrics)?;
        let scheduling = Scheduling::start(client, store, plan, &phases).await?;
        if order.dag.has_plugin_tasks() || scheduling.dags.has_plugin_tasks() {
            cluster.run_actions()?;
        }
        Ok(Self {
            data_dir,
            scheduling,
            cluster,
        })
    }

    async fn request(&self, dag: Dag, params: Map<String, Value>) -> Result<RunKey, CliError> {
        let at = SystemClock.now();
        let run = NewRun {
            logical_date: Some(at),
            conf: Value::Object(params),
            ..NewRun::manual(Arc::new(dag), manual_run_id(at))
        };
        tokio::select! {
            requested = self.scheduling.dags.request_run(run) => requested.map_err(CliError::in_database),
            () = self.scheduling.store.broken() => Err(match self.scheduling.store.failure() {
                Some(why) => CliError::in_writing(&self.data_dir, why),
                None => CliError::Internal { place: "the store".to_owned() },
            }),
        }
    }

    async fn resume(&self, dag: &Dag, key: RunKey) -> Result<RunKey, CliError> {
        let known = self.scheduling.store.run(&key).await;
        let Some((run, _)) = known.map_err(CliError::in_database)? else {
            return Err(CliError::UnknownRun {
                dag_id: key.dag_id,
                run_id: key.run_id,
                data_dir: self.data_dir.clone(),
            });
        };
        // A run keeps the version that it began with. The user asked for the new version, so the
        // run must not silently go on with the old one.
        if run.dag_hash != *StoredDocument::of(&dag.to_json()).hash() {
            return Err(CliError::OtherVersion {
                dag_id: key.dag_id,
                run_id: key.run_id,
            });
        }
        self.scheduling.dags.resume(&key);
        Ok(key)
    }

    /// Waits until the run is over, or was stopped and has let its pods go.
    async fn to_the_end(&self, run: &RunKey, stop: &CancellationToken) {
        let regular = async {
            tokio::select! {
                _ = self.scheduling.dags.ended(run) => {}
                () = stop.cancelled() => self.scheduling.dags.interrupt(run).await,
            }
            let mut released = Box::pin(self.scheduling.dags.released(run));
            let released = async {
                let quick = tokio::time::timeout(SILENCE_LIMIT, &mut released).await;
                if quick.is_err() {
                    let tasks = self.scheduling.dags.unreleased(run);
                    output::note(&waiting_for(&tasks, &run_logs(&self.scheduling.logs, run)));
                    released.await;
                }
            };
            if tokio::time::timeout(RELEASE_LIMIT, released).await.is_err() {
                output::note(
                    "not waiting any longer for pods that are still there: their logs cannot be read, or they do not stop",
                );
            }
        };
        tokio::select! {
            () = regular => {}
            // The store takes no more writes, hence nothing may happen.
            () = self.scheduling.store.broken() => {}
        }
    }

    /// Stops everything, and says how the run stands.
    async fn finish(self, key: &RunKey, has_workspace: bool) -> Result<End, CliError> {
        let (store, logs) = (self.scheduling.store.clone(), self.scheduling.logs.clone());
        self.scheduling.stop().await;
        let workspace = self.cluster.stop(key).await;
        let stands = store.run(key).await;
        store.close().await;
        if let Some(why) = store.failure() {
            return Err(CliError::in_writing(&self.data_dir, why));
        }
        let stands = stands.map_err(CliError::in_database)?;
        let (run, rows) = stands.ok_or_else(|| CliError::Internal {
            place: format!("the row of run {key}"),
        })?;
        let workspace = has_workspace.then_some(workspace);
        Ok(End {
            run,
            tasks: rows.into_iter().map(|row| task_end(row, &logs)).collect(),
            workspace,
            logs: run_logs(&logs, key),
        })
    }
}

fn task_end(task_instance: TaskInstance, logs: &LogDirectory) -> TaskEnd {
    let last = task_instance.try_number;
    let tries = (1..=last)
        .rev()
        .map(|n| logs.file(&LogPath::of_try(&task_instance.key, n)));
    let log = tries.into_iter().find(|file| file.exists());
    TaskEnd { task_instance, log }
}

/// The directory above the logs of a run.
fn run_logs(logs: &LogDirectory, run: &RunKey) -> PathBuf {
    let file = logs.file(&LogPath::of_try(&run.task("-"), 1));
    file.ancestors().nth(2).unwrap_or(Path::new(".")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_waits_names_some_tasks() {
        for (n_tasks, expected) in [
            (1, ": t0"),
            (3, ": t0, t1, t2"),
            (5, ": t0, t1, t2, 2 more"),
        ] {
            let tasks = (0..n_tasks).map(|n| format!("t{n}")).collect();
            let said = waiting_for(&tasks, Path::new("/data/logs"));
            assert!(said.starts_with("waiting at most 90 s "), "{said}");
            assert!(said.contains(" in /data/logs "), "{said}");
            assert!(said.ends_with(expected), "{said}");
        }
    }
}
