//! The Task Execution API over the rows: what workers ask and say, answered from one scheduler and its store.
//!
//! `/run`, `/state` and `/skip-downstream` are facts of the scheduler's round ([`Dags::report`]), and are answered after its
//! commit. Everything else waits for no round: it reads the board in memory, or the store over the connections of the
//! service, and writes transactions of its own ([`ToldStore`]), each fenced by the id of the try in the statement itself.
//! Heartbeats are only remembered, and written now and then for people ([`Execution::write_heartbeats`]).
//!
//! Read `state` first, which is [`ExecutionState`](longshore_airflow_api::ExecutionState) method by method; `tries` is
//! about the task instance of the token, `runs` about runs and other task instances, `values` about XComs, variables,
//! connections and the store of a task instance.

mod runs;
mod state;
mod tries;
mod values;

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_airflow::api::{ApiError, TaskInstanceState};
use longshore_airflow_api::{StateError, StateResult};
use longshore_store::{
    AskedStore, Catalog, FromTry, KnownTry, Run, RunKey, StoreError, TaskInstance, TaskState,
    TellError, ToldStore, heartbeats::WRITE_INTERVAL,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{Dags, ReportError, secrets::Secrets, workers};

/// The store as workers use it.
#[derive(Clone)]
pub struct WorkerStore {
    /// What they write, and read of what was written so.
    pub told: Arc<dyn ToldStore>,
    /// What the service shows.
    pub catalog: Arc<dyn Catalog>,
    /// What they ask about tries, runs and DAGs.
    pub asked: Arc<dyn AskedStore>,
}

impl fmt::Debug for WorkerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerStore").finish_non_exhaustive()
    }
}

impl WorkerStore {
    /// All of it in one store.
    pub fn of<S: ToldStore + Catalog + AskedStore>(store: Arc<S>) -> Self {
        Self {
            told: store.clone(),
            catalog: store.clone(),
            asked: store,
        }
    }
}

/// Answers workers: [`ExecutionState`](longshore_airflow_api::ExecutionState) of one scheduler.
pub struct Execution {
    dags: Arc<Dags>,
    store: WorkerStore,
    secrets: Secrets,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Execution");
        shown.field("dags", &self.dags).finish_non_exhaustive()
    }
}

/// What is known of a try, from the board or from the store.
#[derive(Debug)]
enum Found {
    /// It is the present one, of a run that is not over.
    OnBoard {
        run: Arc<Run>,
        row: Arc<TaskInstance>,
    },
    /// Its run is over, or another try followed.
    Stored(KnownTry),
}

impl Execution {
    /// Answers for this scheduler, whose rows are in `store`. `secrets` has the keys of variables and connections.
    pub fn new(dags: Arc<Dags>, store: WorkerStore, secrets: Secrets) -> Self {
        Self {
            dags,
            store,
            secrets,
        }
    }

    /// Writes when workers were heard, now and then until `stopping`. A failed write is made up by the next one.
    pub async fn write_heartbeats(self: Arc<Self>, stopping: CancellationToken) {
        let interval = Duration::try_from(WRITE_INTERVAL).unwrap_or_default();
        let pause = || tokio::time::sleep(interval);
        while stopping.run_until_cancelled(pause()).await.is_some() {
            let now = self.now();
            let due = self.dags.shared.change_heartbeats(|heard| heard.due(now));
            if let Err(error) = self.store.told.note_heartbeats(&due).await {
                tracing::debug!(%error, "when workers were heard is not written");
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.dags.shared.clock.now()
    }

    /// What is known of a try.
    async fn find(&self, id: Uuid) -> StateResult<Option<Found>> {
        {
            let board = self.dags.shared.board_mut();
            if let Some((active, row)) = board.task_instance_by_id(&id) {
                let (run, row) = (Arc::clone(&active.run), Arc::clone(row));
                return Ok(Some(Found::OnBoard { run, row }));
            }
        }
        let known = self.store.asked.known_try(id).await.map_err(unavailable)?;
        Ok(known.map(Found::Stored))
    }

    /// The present try of this id, or why there is none.
    async fn present(&self, id: Uuid) -> StateResult<Found> {
        match self.find(id).await? {
            None => Err(ApiError::no_task_instance().into()),
            Some(Found::Stored(known)) if known.is_archived => {
                Err(ApiError::archived_task_instance().into())
            }
            Some(found) => Ok(found),
        }
    }

    /// Writes what the worker of a try says.
    async fn tell(&self, id: Uuid, what: FromTry) -> StateResult<()> {
        match self.store.told.tell(id, what).await {
            Ok(_) => Ok(()),
            Err(TellError::Unknown { .. }) => Err(ApiError::no_task_instance().into()),
            Err(TellError::Earlier { .. }) => Err(ApiError::archived_task_instance().into()),
            Err(TellError::Store(error)) => Err(unavailable(error)),
        }
    }
}

impl Found {
    fn state(&self) -> Option<TaskState> {
        match self {
            Self::OnBoard { row, .. } => row.state,
            Self::Stored(known) => known.state,
        }
    }

    fn run(&self) -> &RunKey {
        match self {
            Self::OnBoard { run, .. } => &run.key,
            Self::Stored(known) => &known.key.run,
        }
    }
}

fn unavailable(error: StoreError) -> StateError {
    StateError::unavailable(error)
}

/// Why a report is not taken, for its worker.
fn not_taken(error: ReportError) -> StateError {
    match error {
        ReportError::Unknown(_) => ApiError::no_task_instance().into(),
        ReportError::Earlier(_) => ApiError::archived_task_instance().into(),
        ReportError::NotLeader(_) | ReportError::Ended | ReportError::Store(_) => {
            StateError::unavailable(error)
        }
    }
}

fn word(state: Option<TaskState>) -> Option<TaskInstanceState> {
    state.map(workers::task_state)
}
