//! A cluster, a database, a scripted node: everything around one scheduler.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures::AsyncReadExt;
use jiff::Timestamp;
use longshore_dags::{
    Dags, DagsConfig, RequestError, StartError, document,
    launch::decide::Disposal,
    logs::{LogArchive, LogPath, LogStream, StorePermit},
    model::Dag,
    pods::build::PodConfig,
    scheduler::{Limits, NewRun},
};
use longshore_kit::Clock;
use longshore_store::{
    Changes, DagVersion, DocumentHash, Pool, Run, RunKey, RunStore, Snapshot, StoreError,
    StoredDocument, TaskInstance,
};
use longshore_test::{
    Place,
    faults::{Admission, FaultPlan, Faults, Injected, Process, Rule},
    scripted_node::ScriptedNode,
};
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

use crate::{
    executor,
    memory_store::MemoryStore,
    surroundings::{Logs, Surroundings},
};

/// The run that every scenario starts.
pub(crate) const RUN_ID: &str = "manual__2026-01-01T00:00:00+00:00";

/// Everything around the scheduler under test. It lives through the scheduler's crashes.
pub(crate) struct World {
    /// The cluster.
    pub(crate) place: Place,
    /// The cluster as the scheduler reaches it.
    pub(crate) api: Place,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) began_at: Timestamp,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) node: Arc<ScriptedNode>,
    pub(crate) dag: Arc<Dag>,
    /// The DAGs after the first.
    pub(crate) others: Vec<Arc<Dag>>,
    /// What the API server admits, and was asked to create.
    pub(crate) admission: Admission,
    pub(crate) config: DagsConfig,
    /// The folder of DAG files that the scheduler follows, if it follows one.
    pub(crate) folder: Option<TempDir>,
    /// Whether the logs of pods can be read, and those that were stored.
    pub(crate) logs: Logs,
}

impl World {
    pub(crate) async fn new(yaml: &str) -> Self {
        Self::with_rules(yaml, &[]).await
    }

    /// A world whose API server refuses some creates. The document may hold several DAGs.
    pub(crate) async fn with_rules(yaml: &str, rules: &[Rule]) -> Self {
        let world = Self::standing_on(Surroundings::embedded(), yaml, rules);
        if yaml.contains("plugin:") {
            executor::start(&world.place, world.clock.clone()).await;
        }
        world
    }

    /// A world in these surroundings.
    pub(crate) fn standing_on(around: Surroundings, yaml: &str, rules: &[Rule]) -> Self {
        let mut dags = yaml.split("\n---\n").map(dag);
        let store = MemoryStore::new("memory00");
        Self {
            api: around.place.clone(),
            began_at: around.clock.now(),
            config: config(store.scheduler_id(), &around.place),
            place: around.place,
            clock: around.clock,
            logs: around.logs,
            store: Arc::new(store),
            node: around.node,
            dag: dags.next().unwrap(),
            others: dags.collect(),
            admission: Admission::new(rules.iter().copied()),
            folder: None,
        }
    }

    /// A world whose DAG is in a folder that the scheduler follows.
    pub(crate) async fn following(yaml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("dag.yaml"), yaml).unwrap();
        Self {
            folder: Some(folder),
            ..Self::new(yaml).await
        }
    }

    /// The same database and the same DAG in another cluster.
    pub(crate) fn elsewhere(&self) -> Self {
        Self {
            store: self.store.clone(),
            ..self.in_(self.surroundings().elsewhere())
        }
    }

    /// Another database and the same DAG in the same cluster.
    pub(crate) fn beside(&self) -> Self {
        let store = MemoryStore::new("memory01");
        Self {
            config: config(store.scheduler_id(), &self.place),
            store: Arc::new(store),
            ..self.in_(self.surroundings())
        }
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings {
            place: self.place.clone(),
            clock: self.clock.clone(),
            node: self.node.clone(),
            logs: self.logs.clone(),
        }
    }

    /// The same DAGs there, with a database of their own.
    fn in_(&self, around: Surroundings) -> Self {
        Self {
            dag: self.dag.clone(),
            others: self.others.clone(),
            admission: self.admission.clone(),
            ..Self::standing_on(around, "dag_id: other\ntasks: {a: {command: [x]}}", &[])
        }
    }

    /// Starts the scheduler, behind the faults of `process`.
    pub(crate) async fn start(&self, process: &Process) -> Dags {
        loop {
            match self.try_to_start(process).await {
                Ok(dags) => {
                    if let Some(folder) = &self.folder {
                        dags.follow(folder.path()).unwrap();
                    }
                    return dags;
                }
                // What a supervisor does with a process that cannot start.
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    pub(crate) async fn try_to_start(&self, process: &Process) -> Result<Dags, StartError> {
        Dags::start(
            process.client(self.admission.service(&self.api)),
            Arc::new(FaultyStore {
                store: self.store.clone(),
                process: process.clone(),
            }),
            Arc::new(FaultyLogs {
                logs: self.logs.clone(),
                process: process.clone(),
            }),
            self.clock.clone(),
            self.config.clone(),
        )
        .await
    }

    /// Asks for the scenario's run, unless it is there.
    pub(crate) async fn request(&self, dags: &Dags, run_id: &str) -> RunKey {
        self.request_of(dags, &self.dag, run_id).await
    }

    /// Asks for a run of this DAG, unless it is there.
    pub(crate) async fn request_of(&self, dags: &Dags, dag: &Arc<Dag>, run_id: &str) -> RunKey {
        let new = NewRun::manual(dag.clone(), run_id.to_owned());
        let key = new.key();
        loop {
            match dags.request_run(new.clone()).await {
                Ok(_) | Err(RequestError::Exists(_)) => return key,
                // Asked again, as a person would.
                Err(RequestError::Store(_)) => {}
            }
        }
    }
}

impl World {
    /// The rows of a run, behind the scheduler's back.
    pub(crate) async fn rows(&self, run: &RunKey) -> (Run, Vec<TaskInstance>) {
        self.store.run(run).await.unwrap().unwrap()
    }
}

pub(crate) fn dag(yaml: &str) -> Arc<Dag> {
    let document = document::parse("scenario.yaml", yaml).unwrap();
    let read = &mut |name: &str| Ok(format!("contents of {name}").into_bytes());
    Arc::new(document.validate(read).unwrap())
}

/// A process in which nothing goes wrong.
pub(crate) fn undisturbed() -> Process {
    Faults::new(FaultPlan::none()).start()
}

/// Lets this simulated time pass.
pub(crate) async fn seconds(n: u64) {
    tokio::time::sleep(Duration::from_secs(n)).await;
}

pub(crate) fn config(scheduler_id: &str, place: &Place) -> DagsConfig {
    DagsConfig {
        limits: Limits::default(),
        pods: PodConfig {
            namespace: place.namespace().to_owned(),
            scheduler_id: scheduler_id.to_owned(),
            ..PodConfig::default()
        },
        disposal: Disposal::default(),
        concurrency: 8,
        metrics: longshore_kit::Metrics::new(),
        measures: longshore_dags::DagMeasures::default(),
        gate: longshore_kit::Gate::always_open(),
        left_runs: longshore_dags::LeftRuns::GoOn,
        workers: None,
    }
}

/// The database behind the faults.
pub(crate) struct FaultyStore {
    pub(crate) store: Arc<dyn RunStore>,
    pub(crate) process: Process,
}

impl FaultyStore {
    async fn effect<T>(
        &self,
        doing: &'static str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.process
            .effect(doing, work)
            .await
            .unwrap_or_else(|injected| {
                Err(StoreError::Unavailable {
                    doing,
                    why: injected.to_string().into(),
                })
            })
    }
}

#[async_trait]
impl RunStore for FaultyStore {
    fn scheduler_id(&self) -> &str {
        self.store.scheduler_id()
    }

    async fn commit(&self, changes: &Changes) -> Result<(), StoreError> {
        self.effect("commit", self.store.commit(changes)).await
    }

    async fn load(&self) -> Result<Snapshot, StoreError> {
        self.effect("get rows", self.store.load()).await
    }

    async fn run(&self, key: &RunKey) -> Result<Option<(Run, Vec<TaskInstance>)>, StoreError> {
        self.effect("get run", self.store.run(key)).await
    }

    async fn document(&self, hash: &DocumentHash) -> Result<StoredDocument, StoreError> {
        self.effect("get document", self.store.document(hash)).await
    }

    async fn try_by_id(&self, id: Uuid) -> Result<Option<TaskInstance>, StoreError> {
        self.effect("get try", self.store.try_by_id(id)).await
    }

    async fn has_run(
        &self,
        key: &RunKey,
        logical_date: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let found = self.store.has_run(key, logical_date);
        self.effect("get run", found).await
    }

    async fn dag_version(&self, id: Uuid) -> Result<Option<DagVersion>, StoreError> {
        self.effect("get version", self.store.dag_version(id)).await
    }

    async fn set_pool(&self, pool: &Pool) -> Result<(), StoreError> {
        self.effect("set pool", self.store.set_pool(pool)).await
    }

    async fn delete_pool(&self, name: &str) -> Result<(), StoreError> {
        self.effect("delete pool", self.store.delete_pool(name))
            .await
    }
}

/// An archive behind the faults. What it keeps is of no interest: scripted pods have no logs.
pub(crate) struct FaultyLogs {
    pub(crate) logs: Logs,
    pub(crate) process: Process,
}

#[async_trait]
impl LogArchive for FaultyLogs {
    async fn store(
        &self,
        path: &LogPath,
        mut log: LogStream,
        permit: StorePermit,
    ) -> io::Result<()> {
        let stored = self.process.effect("archive log", async {
            let mut text = String::new();
            log.read_to_string(&mut text).await?;
            if self.logs.archive_hangs.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            while self.logs.archive_pauses.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            permit.check()?;
            self.logs.store(path.as_str(), text);
            Ok(())
        });
        let stored = stored.await;
        stored.map_err(|injected: Injected| io::Error::other(injected.to_string()))?
    }
}

/// The end of a world as text: rows, archived tries, what ran, what is left in the cluster. Ids and times are left out.
pub(crate) async fn digest(world: &World) -> String {
    let mut lines = Vec::new();
    for run in world.store.runs() {
        let (run, rows) = world.store.run(&run.key).await.unwrap().unwrap();
        lines.push(format!("run {} {:?} {:?}", run.key, run.state, run.reason));
        let mut tries = world.store.history(&run.key);
        tries.sort_by_key(|archived| {
            (
                archived.task_instance.key.clone(),
                archived.task_instance.try_number,
            )
        });
        lines.extend(
            tries
                .iter()
                .map(|archived| format!("  ended {}", row(&archived.task_instance))),
        );
        lines.extend(
            rows.iter()
                .map(|task_instance| format!("  now   {}", row(task_instance))),
        );
    }
    for dag in world.store.load().await.unwrap().dags {
        let next = dag.next_run.map(|next| next.run_after);
        lines.push(format!(
            "dag {} paused {} next {next:?} last {:?}",
            dag.dag_id, dag.is_paused, dag.last_interval
        ));
    }
    lines.extend(ran(world));
    let stored = world.logs.stored();
    lines.extend(
        stored
            .iter()
            .map(|(path, log)| format!("log {path}: {log:?}")),
    );
    for plural in ["pods", "configmaps", "persistentvolumeclaims"] {
        lines.push(format!(
            "{plural} left: {}",
            left(world, plural).await.join(" ")
        ));
    }
    let has_plugins = |dag: &Arc<Dag>| dag.tasks.values().any(|task| task.plugin.is_some());
    if has_plugins(&world.dag) {
        lines.push(format!(
            "taskactions left: {}",
            left(world, TASK_ACTIONS).await.join(" ")
        ));
    }
    lines.join("\n")
}

fn row(row: &TaskInstance) -> String {
    let failure = row.failure.as_ref().map(|failure| match failure.exit_code {
        // A watch that breaks just then does not tell how a deleted pod ended.
        Some(143) => "PodDeleted".to_owned(),
        Some(code) => format!("exit code {code}"),
        None => failure.reason.clone().unwrap_or_default(),
    });
    format!(
        "{} {:?} try {} of {} launch {} failure {} result {:?}",
        row.key.task_id,
        row.state,
        row.try_number,
        row.max_tries + 1,
        row.launch,
        failure.as_deref().unwrap_or("-"),
        row.result
    )
}

/// What the node ran, by try: the heart of "nothing runs twice".
fn ran(world: &World) -> Vec<String> {
    let by_try = world.node.history();
    let runs = by_try.by(|run| {
        Some(format!(
            "{} {} try {}",
            run.annotations.get("run_id")?,
            run.annotations.get("task_id")?,
            run.annotations.get("try_number")?
        ))
    });
    runs.into_iter()
        .map(|(identity, runs)| {
            let codes: Vec<_> = runs.iter().map(|run| run.exit_code).collect();
            format!("ran {identity}: {codes:?}")
        })
        .collect()
}

/// The plural name of what tasks with a plugin become.
pub(crate) const TASK_ACTIONS: &str = "taskactions";

/// What the scheduler has left of a kind, by task and phase.
pub(crate) async fn left(world: &World, plural: &str) -> Vec<String> {
    let group = if plural == TASK_ACTIONS {
        "/apis/flyte.org/v1"
    } else {
        "/api/v1"
    };
    let path = format!("{group}/namespaces/{}/{plural}", world.place.namespace());
    let request = http::Request::get(path).body(vec![]);
    let list: Value = world
        .place
        .client()
        .request(request.unwrap())
        .await
        .unwrap();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let mut left: Vec<String> = items
        .iter()
        .filter(|item| !item["metadata"]["labels"]["dag_id"].is_null())
        .map(|item| {
            let task = item["metadata"]["annotations"]["task_id"]
                .as_str()
                .unwrap_or("-");
            let status = &item["status"];
            let phase = status["phase"].as_str().or(status["pluginPhase"].as_str());
            format!("{task}:{}", phase.unwrap_or("-"))
        })
        .collect();
    left.sort();
    left
}
