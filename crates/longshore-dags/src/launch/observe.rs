//! What a round about a try reads, and what that means.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use longshore_core::{Asked, Class, Classify, Seen, UnknownCause, error::chain};
use longshore_store::{StoreError, TaskInstance, TaskState};
use serde_json::Value;
use uuid::Uuid;

use super::{
    decide::{Disposal, FailedObject, LaunchedView, LogAnswer, LogNotes, Observed, TaskView},
    table::Name,
};
use crate::{
    actions,
    base::shared::Shared,
    logs::LogPath,
    model::{Launcher, Task},
    pods::{
        build::{self, BuildInput},
        worker::{self, WorkerBuildError, WorkerInput},
    },
    scheduler::{
        board::{ActiveRun, Board},
        decide::{REASON_TASK_FAILED, deadline, limit},
    },
};

/// How long a worker may live on after it has told the end of its try: it waits for some seconds, and uploads its log.
const WORKER_LINGERS: SignedDuration = SignedDuration::from_mins(10);

/// What a round reads.
pub(super) struct Loaded {
    /// Whether facts about the try wait for the scheduler, so that its row may be older than its objects.
    is_behind: bool,
    /// The board, which has the current tries of runs that are not over.
    board: Board,
    /// The row of a try that has objects and is not on the board.
    ended: Option<Arc<TaskInstance>>,
    /// The object that the row wants, where the try has none; or why it cannot be built.
    object: Option<Result<Value, String>>,
    pods: Seen<Vec<LaunchedView>>,
    replay_done: bool,
    started_at: Timestamp,
    log_notes: Arc<LogNotes>,
    newest_surplus: Option<FailedObject>,
}

/// Why a round about a try failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The store could not read a try.
    #[error("the try cannot be read")]
    Store(#[from] StoreError),
}

impl Classify for LaunchError {
    fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
        }
    }
}

/// Reads the objects of a try, then its row, which must not be older than they are. The store is read only for a try
/// that has left the board and has objects.
pub(super) async fn load(
    shared: &Shared,
    ti_id: &Uuid,
    now: Timestamp,
) -> Result<Loaded, StoreError> {
    let launched = &shared.launched;
    let mut pods = launched.of(ti_id, None);
    let is_behind = shared.inbox.is_waiting_for(ti_id);
    let board = shared.board();
    let is_on_board = board.task_instance_by_id(ti_id).is_some();
    let ended = if is_behind || is_on_board || pods.present().is_none() {
        None
    } else {
        shared.ended_try(ti_id).await?
    };
    let object = if is_behind || !pods.is_absent() {
        None
    } else {
        wanted(shared, &board, ti_id, now).await?
    };
    let launcher = launcher(&board, ti_id);
    if let Some(Ok(object)) = &object {
        // The kit's live reads put the object into the cache before the watch reports it.
        pods = launched.of(ti_id, Some(name_of(launcher, object)));
    }
    Ok(Loaded {
        is_behind,
        ended,
        object,
        pods,
        replay_done: launched.is_replayed(launcher),
        started_at: shared.started_at,
        log_notes: launched.log_notes(ti_id),
        newest_surplus: launched.newest_surplus(),
        board,
    })
}

/// What was read, as the decision needs it.
pub(super) fn assemble(
    loaded: Loaded,
    ti_id: Uuid,
    now: Timestamp,
    config: Disposal,
    asked: BTreeMap<String, Asked<LogAnswer>>,
) -> Observed {
    Observed {
        now,
        ti_id,
        launcher: launcher(&loaded.board, &ti_id),
        task: task(&loaded, &ti_id),
        pods: loaded.pods,
        replay_done: loaded.replay_done,
        started_at: loaded.started_at,
        config,
        asked,
        log_notes: loaded.log_notes,
        newest_surplus: loaded.newest_surplus,
    }
}

fn task(loaded: &Loaded, ti_id: &Uuid) -> Seen<TaskView> {
    if loaded.is_behind {
        return Seen::unknown(
            UnknownCause::Behind,
            "the scheduler has not taken in what is known of it",
        );
    }
    match loaded.board.task_instance_by_id(ti_id) {
        Some((active, row)) => {
            let task = active.dag.tasks.get(&row.key.task_id);
            Seen::Present(TaskView {
                deadline: task.and_then(|task| deadline(task, row)),
                limit: task.and_then(|task| limit(task, row)),
                pod: loaded.object.clone(),
                ..view(row)
            })
        }
        None => loaded.ended.as_deref().map(view).into(),
    }
}

/// The launcher of a try's object; a try that is not on the board launches nothing more.
fn launcher(board: &Board, ti_id: &Uuid) -> Launcher {
    let found = board.task_instance_by_id(ti_id);
    let task = found.and_then(|(active, row)| active.dag.tasks.get(&row.key.task_id));
    task.map_or(Launcher::Pod, Task::launcher)
}

/// The object that a row wants, or wanted when it was cleared.
async fn wanted(
    shared: &Shared,
    board: &Board,
    ti_id: &Uuid,
    now: Timestamp,
) -> Result<Option<Result<Value, String>>, StoreError> {
    let Some((active, row)) = board.task_instance_by_id(ti_id) else {
        return Ok(None);
    };
    if !matches!(row.state, Some(TaskState::Queued | TaskState::Restarting)) {
        return Ok(None);
    }
    Ok(Some(if row.airflow.is_some() {
        let built = build_worker(shared, active, row, now).await?;
        built.map_err(|error| chain(&error))
    } else {
        build(shared, active, row)
    }))
}

/// The pod of a worker: of a task of a DAG from Python.
async fn build_worker(
    shared: &Shared,
    active: &ActiveRun,
    row: &TaskInstance,
    now: Timestamp,
) -> Result<Result<Value, WorkerBuildError>, StoreError> {
    let Some(workers) = &shared.workers_config else {
        return Ok(Err(WorkerBuildError::NoWorkers(row.key.to_string())));
    };
    let dag = shared.worker_dags.of(shared.store.as_ref(), row).await?;
    Ok(dag.and_then(|dag| {
        worker::build_worker(&WorkerInput {
            run: &active.run,
            task_instance: row,
            dag: &dag,
            pods: &shared.pod_config,
            workers,
            now,
            token_id: Uuid::new_v4().into_bytes(),
        })
    }))
}

fn build(shared: &Shared, active: &ActiveRun, row: &TaskInstance) -> Result<Value, String> {
    let task = active
        .dag
        .tasks
        .get(&row.key.task_id)
        .ok_or_else(|| format!("task {} is not in the DAG of its run", row.key))?;
    if let Some(python) = &task.python {
        let operator = &python.operator;
        return Err(format!(
            "task `{}` ({operator}) comes from a Python DAG file, and this version starts no workers for those yet",
            task.task_id
        ));
    }
    let input = BuildInput {
        run: &active.run,
        dag: &active.dag,
        task,
        task_instance: row,
        results: &active.tasks,
        config: &shared.pod_config,
    };
    let built = match &task.plugin {
        None => build::build_pod(&input),
        Some(_) if shared.launched.is_missing(Launcher::TaskAction) => {
            return Err(actions::NOT_INSTALLED.to_owned());
        }
        Some(plugin) => actions::build::build_action(&input, plugin),
    };
    built.map_err(|error| chain(&error))
}

fn view(row: &TaskInstance) -> TaskView {
    TaskView {
        state: row.state,
        ended_at: row.end_date,
        launch: row.launch,
        pod_uid: row.pod_uid.clone(),
        pod: None,
        deadline: None,
        limit: None,
        lingers_until: lingers_until(row),
        log: LogPath::of(row),
    }
}

/// Until when the pod of a try may run on whose worker has told its end.
fn lingers_until(row: &TaskInstance) -> Option<Timestamp> {
    row.airflow.as_ref()?.process.as_ref()?;
    let is_told = match row.state {
        Some(TaskState::Failed) => {
            let reason = row.failure.as_ref().and_then(|it| it.reason.as_deref());
            reason == Some(REASON_TASK_FAILED)
        }
        Some(TaskState::Skipped | TaskState::Removed | TaskState::UpstreamFailed) => true,
        None
        | Some(
            TaskState::Scheduled
            | TaskState::Queued
            | TaskState::Running
            | TaskState::Restarting
            | TaskState::Success
            | TaskState::UpForRetry
            | TaskState::UpForReschedule
            | TaskState::Deferred
            | TaskState::AwaitingInput,
        ) => false,
    };
    row.end_date
        .filter(|_| is_told)?
        .checked_add(WORKER_LINGERS)
        .ok()
}

fn name_of(launcher: Launcher, object: &Value) -> Name {
    let text = |field: &str| {
        let text = object["metadata"][field].as_str();
        text.unwrap_or_default().to_owned()
    };
    Name {
        launcher,
        namespace: text("namespace"),
        name: text("name"),
    }
}
