//! What the service can do, over its scheduler, its database, its logs and its cluster: the responses to all requests
//! of the HTTP API.
//!
//! Reads come from the database, so that they show what is durable; requests go to the scheduler, and the service
//! responds once they are recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use longshore_console::{
    Checks, Control, ControlError, Feed, RunName, TaskName,
    control::{LogQuery, LogStream, Pause, RunPage, RunQuery},
    objects,
};
use longshore_dags::{
    ClearError, Dags, KnownDag, PoolError, RequestError, StateChange,
    model::Dag,
    scheduler::{NewRun, RunWait, RunWaits, Selection, identity::manual_run_id},
};
use longshore_kit::{Clock, Metrics};
use longshore_store::{
    Catalog, DocumentHash, ListedRun, RunCursor, RunFilter, RunKey, RunState, RunType, StoreError,
    TaskFilter, TaskInstance,
};
use serde_json::Value;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{graph, to_objects};

pub(crate) mod logs;

pub(crate) use logs::Logs;

/// Longest that the record of a request may take.
const RECORD_TIMEOUT: Duration = Duration::from_secs(10);

/// A loop that has not turned for so long hangs.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// The service.
pub(crate) struct ServiceControl {
    pub(crate) dags: Arc<Dags>,
    pub(crate) store: Arc<dyn Catalog>,
    pub(crate) logs: Logs,
    pub(crate) feed: Feed,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
}

/// Publishes the state changes of the scheduler to the feed, until the scheduler is gone.
pub(crate) async fn publish_changes(mut changes: broadcast::Receiver<StateChange>, feed: Feed) {
    loop {
        match changes.recv().await {
            Ok(change) => feed.publish(to_objects::change(&change)),
            Err(RecvError::Lagged(n_missed)) => {
                tracing::warn!(n_missed, "the change feed is behind the scheduler");
                feed.skip();
            }
            Err(RecvError::Closed) => return,
        }
    }
}

impl ServiceControl {
    fn known(&self, dag_id: &str) -> Result<KnownDag, ControlError> {
        let known = self.dags.dag(dag_id);
        known.ok_or_else(|| self.unknown(dag_id))
    }

    /// There is no such DAG; the one that was probably meant.
    fn unknown(&self, dag_id: &str) -> ControlError {
        let known = self.dags.dags().into_iter();
        let known = known.filter(|known| known.file.is_some());
        let nearest = known
            .filter_map(|known| known.dag_id)
            .map(|known| (strsim::damerau_levenshtein(&known, dag_id), known))
            .filter(|(distance, _)| *distance <= 2)
            .min();
        ControlError::UnknownDag {
            dag_id: dag_id.to_owned(),
            nearest: nearest.map(|(_, nearest)| nearest),
        }
    }

    /// The DAG that a run is made of.
    fn runnable(&self, dag_id: &str) -> Result<(Arc<Dag>, DocumentHash), ControlError> {
        let KnownDag {
            dag,
            dag_hash,
            error,
            file,
            ..
        } = self.known(dag_id)?;
        let dag = match file {
            None => Err("its file was removed from the DAG folder".to_owned()),
            Some(_) => dag.zip(dag_hash).ok_or_else(|| {
                error.unwrap_or_else(|| "what is stored of it cannot be read".to_owned())
            }),
        };
        dag.map_err(|why| {
            ControlError::Invalid(format!("no run can be made of the DAG {dag_id}: {why}"))
        })
    }

    async fn object(&self, known: &KnownDag) -> Result<objects::Dag, ControlError> {
        let filter = RunFilter {
            dag_id: known.dag_id.clone(),
            limit: Some(1),
            ..RunFilter::default()
        };
        let last = self.store.runs(&filter).await.map_err(unavailable)?;
        Ok(to_objects::dag(known, last.first()))
    }

    /// Waits for a clear, and reads what it changed.
    async fn cleared(
        &self,
        name: &RunName,
        clear: impl Future<Output = Result<BTreeSet<String>, ClearError>>,
    ) -> Result<Vec<objects::Task>, ControlError> {
        let cleared = tokio::time::timeout(RECORD_TIMEOUT, clear).await;
        let cleared = cleared.map_err(late_scheduler)?;
        let cleared = cleared.map_err(|error| refused(name, error))?;
        let mut rows = self.rows(name).await?;
        self.sort(&name.dag_id, &mut rows);
        let rows = rows.iter().filter(|row| cleared.contains(&row.key.task_id));
        Ok(rows.map(to_objects::task).collect())
    }

    /// Sorts the tasks of a run as the graph of the DAG now has them.
    fn sort(&self, dag_id: &str, rows: &mut [TaskInstance]) {
        if let Some(dag) = self.dags.dag(dag_id).and_then(|known| known.dag) {
            graph::sort(rows, &graph::in_order(&dag), |row| &row.key.task_id);
        }
    }

    /// A run, with what it waits for. The scheduler may know of it a moment later than the database.
    fn waiting(&self, row: &ListedRun, waits: &RunWaits) -> objects::Run {
        let now = self.clock.now();
        let is_held = row.state != RunState::Queued || row.reason.is_some();
        let to_come = row.logical_date.filter(|date| *date > now);
        let wait = waits.of_run(&row.key, now);
        let wait = wait.or(to_come.map(RunWait::LogicalDate));
        let wait = wait.filter(|_| !is_held);
        objects::Run {
            blocked: wait.map(|wait| wait.to_string()),
            not_before: wait.and_then(RunWait::not_before),
            ..to_objects::run(row)
        }
    }

    /// A run without its task instances.
    async fn row(&self, name: &RunName) -> Result<ListedRun, ControlError> {
        row(self.store.as_ref(), name).await
    }

    /// The task instances of a run.
    async fn rows(&self, name: &RunName) -> Result<Vec<TaskInstance>, ControlError> {
        tasks(self.store.as_ref(), name, None).await
    }
}

/// Whether the loops of the controllers turn.
pub(crate) fn vital_signs(metrics: &Metrics) -> Vec<objects::Check> {
    let beats = metrics.since_beats().into_iter();
    let check = |(controller, since): (&str, Duration)| objects::Check {
        name: controller.to_owned(),
        problem: (since > MAX_SILENCE).then(|| format!("its loop stands for {since:.0?}")),
    };
    beats.map(check).collect()
}

#[async_trait]
impl Checks for ServiceControl {
    fn vital_signs(&self) -> Vec<objects::Check> {
        vital_signs(&self.metrics)
    }

    async fn checks(&self) -> Vec<objects::Check> {
        let one = RunFilter {
            limit: Some(1),
            ..RunFilter::default()
        };
        let database = self.store.runs(&one).await.err();
        let cluster = self.logs.answers().await.err();
        let scheduler = self.dags.is_stopping();
        let check = |name: &str, problem: Option<String>| objects::Check {
            name: name.to_owned(),
            problem,
        };
        vec![
            check("database", database.map(|error| error.to_string())),
            check("cluster", cluster.map(|error| error.to_string())),
            check(
                "scheduler",
                scheduler.then(|| "the scheduler is stopping".to_owned()),
            ),
        ]
    }
}

#[async_trait]
impl Control for ServiceControl {
    async fn dags(&self) -> Result<Vec<objects::Dag>, ControlError> {
        let newest = self.store.newest_runs().await.map_err(unavailable)?;
        let newest: BTreeMap<&str, &ListedRun> = newest
            .iter()
            .map(|run| (run.key.dag_id.as_str(), run))
            .collect();
        let known = self.dags.dags();
        // A DAG whose file is gone is not listed, but a request by its name still finds it.
        let there = known.iter().filter(|known| known.file.is_some());
        let objects = there.filter_map(|known| {
            let dag_id = known.dag_id.as_deref()?;
            Some(to_objects::listed_dag(known, newest.get(dag_id).copied()))
        });
        Ok(objects.collect())
    }

    async fn import_errors(&self) -> Result<Vec<objects::ImportError>, ControlError> {
        let known = self.dags.dags();
        Ok(known.iter().filter_map(to_objects::import_error).collect())
    }

    async fn dag(&self, dag_id: &str) -> Result<objects::Dag, ControlError> {
        self.object(&self.known(dag_id)?).await
    }

    async fn set_pause(&self, dag_id: &str, pause: Pause) -> Result<objects::Dag, ControlError> {
        let set = self.dags.set_paused(dag_id, pause == Pause::Paused);
        match tokio::time::timeout(RECORD_TIMEOUT, set).await {
            Ok(Ok(())) => self.dag(dag_id).await,
            Ok(Err(unknown)) => Err(self.unknown(&unknown.0)),
            Err(late) => Err(late_scheduler(late)),
        }
    }

    async fn trigger(
        &self,
        dag_id: &str,
        trigger: objects::Trigger,
    ) -> Result<objects::Run, ControlError> {
        let (dag, dag_hash) = self.runnable(dag_id)?;
        // A run of a DAG from Python may be given anything, as in Airflow.
        let is_closed = dag.python.is_none();
        let mut names = trigger.params.keys();
        if let Some(name) = names.find(|name| is_closed && !dag.params.contains_key(*name)) {
            return Err(ControlError::UnknownParam {
                dag_id: dag_id.to_owned(),
                name: name.clone(),
            });
        }
        let at = self.clock.now();
        let run_id = trigger.run_id.unwrap_or_else(|| manual_run_id(at));
        let name = RunName {
            dag_id: dag_id.to_owned(),
            run_id: run_id.clone(),
        };
        let new = NewRun {
            dag,
            dag_hash,
            document: None,
            run_id,
            run_type: RunType::Manual,
            logical_date: Some(trigger.logical_date.unwrap_or(at)),
            conf: Value::Object(trigger.params),
            details: self.dags.manual_details(dag_id, at),
        };
        match self.dags.request_run(new).await {
            Ok(_) => self.run(&name).await,
            Err(RequestError::Exists(_)) => Err(ControlError::RunExists(name)),
            Err(RequestError::Store(error)) => Err(unavailable(error)),
        }
    }

    async fn runs(&self, query: &RunQuery) -> Result<RunPage, ControlError> {
        let before = match &query.after {
            None => None,
            Some(last) => Some(RunCursor::from(&self.row(last).await?)),
        };
        let states = query.states.iter().map(|state| run_state(state));
        let filter = RunFilter {
            dag_id: query.dag_id.clone(),
            states: states.collect::<Result<_, _>>()?,
            before,
            // One more than the page, to find out whether there is another page.
            limit: u32::try_from(query.limit + 1).ok(),
        };
        let runs = self.store.runs(&filter).await.map_err(unavailable)?;
        let waits = self.dags.run_waits();
        let of_page = runs.iter().take(query.limit);
        Ok(RunPage {
            runs: of_page.map(|run| self.waiting(run, &waits)).collect(),
            has_more: runs.len() > query.limit,
        })
    }

    async fn run(&self, run: &RunName) -> Result<objects::Run, ControlError> {
        let row = self.row(run).await?;
        Ok(self.waiting(&row, &self.dags.run_waits()))
    }

    async fn cancel(&self, run: &RunName) -> Result<objects::Run, ControlError> {
        let row = self.row(run).await?;
        if row.state.is_finished() {
            return Err(ControlError::WrongState {
                what: format!("run {run}"),
                state: to_objects::run(&row).state,
                expected: "only a run that is not over can be cancelled",
            });
        }
        self.dags.cancel(&row.key);
        // The service responds once the end is recorded: until then a crash would forget the request.
        match tokio::time::timeout(RECORD_TIMEOUT, self.dags.ended(&row.key)).await {
            Ok(Ok(_)) => self.run(run).await,
            Ok(Err(error)) => Err(unavailable(error)),
            Err(late) => Err(late_scheduler(late)),
        }
    }

    async fn retry(&self, run: &RunName) -> Result<Vec<objects::Task>, ControlError> {
        let row = self.row(run).await?;
        self.cleared(run, self.dags.retry(&row.key)).await
    }

    async fn tasks(&self, run: &RunName) -> Result<Vec<objects::Task>, ControlError> {
        let mut rows = self.rows(run).await?;
        self.sort(&run.dag_id, &mut rows);
        Ok(rows.iter().map(to_objects::task).collect())
    }

    async fn task(&self, task: &TaskName) -> Result<objects::Task, ControlError> {
        let row = &find(self.store.as_ref(), task).await?;
        let history = self.store.history(&row.key.run).await;
        let history = history.map_err(unavailable)?;
        let earlier = history
            .iter()
            .filter(|archived| archived.task_instance.key == row.key);
        let run = self.run(&task.run).await?;
        let of_run = run
            .blocked
            .map(|why| format!("run {} is queued: {why}", task.run));
        let of_pod = || Some(format!("its pod waits: {}", self.dags.pending(row)?));
        Ok(objects::Task {
            earlier_tries: earlier
                .map(|archived| to_objects::earlier_try(&archived.task_instance))
                .collect(),
            next_try_at: self.dags.next_try(row),
            blocked: self.dags.never_admitted(row).or(of_run).or_else(of_pod),
            ..to_objects::task(row)
        })
    }

    async fn clear(
        &self,
        task: &TaskName,
        clear: objects::Clear,
    ) -> Result<Vec<objects::Task>, ControlError> {
        let row = find(self.store.as_ref(), task).await?;
        let selection = Selection {
            task_ids: [row.key.task_id.clone()].into(),
            includes_downstream: clear.downstream,
            ..Selection::default()
        };
        self.cleared(&task.run, self.dags.clear(&row.key.run, &selection))
            .await
    }

    async fn logs(&self, task: &TaskName, query: LogQuery) -> Result<LogStream, ControlError> {
        self.logs
            .read(self.store.clone(), &self.feed, task, query)
            .await
    }

    async fn pools(&self) -> Result<Vec<objects::Pool>, ControlError> {
        let pools = self.dags.pools();
        Ok(pools.values().map(to_objects::pool).collect())
    }

    async fn set_pool(&self, pool: objects::Pool) -> Result<objects::Pool, ControlError> {
        if pool.slots < -1 {
            let why = format!(
                "a pool has 0 slots or more, or -1 for no limit, found {}",
                pool.slots
            );
            return Err(ControlError::Invalid(why));
        }
        let setting = self.dags.set_pool(&pool.name, pool.slots);
        setting.await.map_err(not_changed)?;
        Ok(pool)
    }

    async fn delete_pool(&self, name: &str) -> Result<objects::Pool, ControlError> {
        let pool = self.dags.delete_pool(name).await.map_err(not_changed)?;
        Ok(to_objects::pool(&pool))
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }
}

/// The state of this word.
fn run_state(word: &str) -> Result<RunState, ControlError> {
    serde_json::from_value(Value::from(word))
        .map_err(|_| ControlError::Invalid(format!("{word:?} is no state of a run")))
}

fn key(name: &RunName) -> RunKey {
    RunKey {
        dag_id: name.dag_id.clone(),
        run_id: name.run_id.clone(),
    }
}

/// A run without its task instances.
async fn row(store: &dyn Catalog, name: &RunName) -> Result<ListedRun, ControlError> {
    let run = store.listed_run(&key(name)).await.map_err(unavailable)?;
    run.ok_or_else(|| ControlError::UnknownRun(name.clone()))
}

/// The task instances of a run: all, or those of one task.
async fn tasks(
    store: &dyn Catalog,
    name: &RunName,
    task_id: Option<&str>,
) -> Result<Vec<TaskInstance>, ControlError> {
    let filter = TaskFilter {
        dag_id: Some(name.dag_id.clone()),
        run_id: Some(name.run_id.clone()),
        task_id: task_id.map(str::to_owned),
        ..TaskFilter::default()
    };
    let rows = store.task_instances(&filter).await.map_err(unavailable)?;
    if rows.is_empty() {
        row(store, name).await?;
    }
    Ok(rows)
}

async fn find(store: &dyn Catalog, task: &TaskName) -> Result<TaskInstance, ControlError> {
    let rows = tasks(store, &task.run, Some(&task.task_id)).await?;
    let mut rows = rows.into_iter();
    rows.find(|row| row.key.map_index == task.map_index)
        .ok_or_else(|| ControlError::UnknownTask(task.clone()))
}

fn late_scheduler(late: tokio::time::error::Elapsed) -> ControlError {
    ControlError::Unavailable {
        what: "the scheduler",
        source: Box::new(late),
    }
}

/// Why tasks are not cleared.
fn refused(run: &RunName, error: ClearError) -> ControlError {
    match error {
        ClearError::UnknownRun(_) => ControlError::UnknownRun(run.clone()),
        ClearError::UnknownTask { task_id, .. } => ControlError::UnknownTask(TaskName {
            run: run.clone(),
            task_id,
            map_index: -1,
        }),
        ClearError::NotOver(_) => ControlError::WrongState {
            what: format!("run {run}"),
            state: "not over".to_owned(),
            expected: "only a run that is over can be retried",
        },
        ClearError::Store(error) => unavailable(error),
        ClearError::Rows(error) => {
            tracing::error!(%error, %run, "a run cannot be taken up again");
            ControlError::Internal(format!("run {run}"))
        }
    }
}

/// Why a pool was not changed or deleted.
fn not_changed(error: PoolError) -> ControlError {
    match error {
        PoolError::Unknown(name) => ControlError::UnknownPool(name),
        PoolError::InFile { pool, file } => ControlError::PoolInFile { pool, file },
        PoolError::Store(error) => unavailable(error),
        why @ PoolError::Default => {
            ControlError::Invalid(format!("the pool is not deleted: {why}"))
        }
    }
}

fn unavailable(error: StoreError) -> ControlError {
    tracing::warn!(%error, "the database does not answer a request");
    ControlError::Unavailable {
        what: "the database",
        source: Box::new(error),
    }
}

#[cfg(test)]
mod tests;
