//! Clear and retry, as they are asked for from outside.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_store::{RunKey, Snapshot, StoreError, TaskState};
use uuid::Uuid;

use super::Dags;
use crate::{
    base::documents::StoredDags,
    model::CanonicalError,
    scheduler::{
        board::{ActiveRun, Board, LoadError},
        clear::{Clearing, Selection},
        facts::Fact,
    },
};

/// Why tasks cannot be cleared.
#[derive(Debug, thiserror::Error)]
pub enum ClearError {
    /// There is no such run.
    #[error("there is no run {0}")]
    UnknownRun(RunKey),
    /// The run has no such task.
    #[error("run {run} has no task `{task_id}`")]
    UnknownTask {
        /// The run.
        run: RunKey,
        /// The task.
        task_id: String,
    },
    /// Only a run that is over can be retried.
    #[error("run {0} is not over; only a run that is over can be retried")]
    NotOver(RunKey),
    /// The rows cannot be read.
    #[error("the run cannot be read from the database")]
    Store(#[from] StoreError),
    /// The rows make no sense together.
    #[error("the run cannot be taken up again")]
    Rows(#[source] Box<LoadError<CanonicalError>>),
}

impl Dags {
    /// Gives the selected task instances a new try, and lets the run go on if it was over. Returns the ids of the
    /// tasks, once the clear is recorded. A pod that runs is stopped first.
    ///
    /// *Guarantees*: a try is cleared at most once by one call, whatever crashes; one that is retried by itself between
    /// the call and the decision is left as it is.
    /// *Cancellation*: the clear may be recorded or not.
    pub async fn clear(
        &self,
        run: &RunKey,
        selection: &Selection,
    ) -> Result<BTreeSet<String>, ClearError> {
        self.clear_where(run, |found| selected(selection, &found))
            .await
    }

    /// Clears all that did not get done in a run that is over: failed tasks, those that never ran because of them, and
    /// those that were cut off when the run was cancelled or timed out. Returns their ids, once the clear is recorded.
    pub async fn retry(&self, run: &RunKey) -> Result<BTreeSet<String>, ClearError> {
        self.clear_where(run, |found| match &found {
            Found::Over(_) => selected(&Selection::not_done(), &found),
            Found::Active(_) => Err(ClearError::NotOver(run.clone())),
        })
        .await
    }

    async fn clear_where(
        &self,
        run: &RunKey,
        select: impl Fn(Found) -> Result<BTreeMap<Uuid, String>, ClearError>,
    ) -> Result<BTreeSet<String>, ClearError> {
        loop {
            let found = self.find(run).await?;
            let stored = match &found {
                Found::Over(stored) => Some(stored.clone()),
                Found::Active(_) => None,
            };
            let tries = select(found)?;
            if tries.is_empty() {
                return Ok(BTreeSet::new());
            }
            let clearing = Clearing {
                run: run.clone(),
                tries: tries.keys().copied().collect(),
                stored,
            };
            self.shared.inbox.push(Fact::Clear(clearing.clone()));
            self.settled(&clearing).await;
            if is_recorded(&self.find(run).await?, &clearing) {
                return Ok(tries.into_values().collect());
            }
            // Another clear came first and the run is over again since.
        }
    }

    /// Waits until a clear was decided upon, and that is recorded.
    async fn settled(&self, clearing: &Clearing) {
        loop {
            let committed = self.shared.committed.notified();
            if !self.shared.inbox.is_waiting_to_clear(clearing) {
                return;
            }
            committed.await;
        }
    }

    async fn find(&self, key: &RunKey) -> Result<Found, ClearError> {
        let board = self.shared.board();
        if let Some(active) = board.runs.get(key) {
            return Ok(Found::Active(active.clone()));
        }
        let stored = self.shared.store.run(key).await?;
        let (run, rows) = stored.ok_or_else(|| ClearError::UnknownRun(key.clone()))?;
        let mut dags = StoredDags::known(&board, &self.shared.catalog());
        drop(board);
        if !dags.is_known(&run.dag_hash) {
            dags.add([self.shared.store.document(&run.dag_hash).await?]);
        }
        let snapshot = Snapshot {
            runs: vec![run],
            task_instances: rows,
            ..Snapshot::default()
        };
        let board = Board::load(snapshot, |run| dags.read(&run.dag_hash));
        let mut board = board.map_err(|error| ClearError::Rows(Box::new(error)))?;
        let over = board.runs.remove(key);
        over.map(Found::Over)
            .ok_or_else(|| ClearError::UnknownRun(key.clone()))
    }
}

/// Where a run is.
enum Found {
    /// On the board.
    Active(Arc<ActiveRun>),
    /// In the store only.
    Over(Arc<ActiveRun>),
}

impl Found {
    fn rows(&self) -> &Arc<ActiveRun> {
        match self {
            Self::Active(run) | Self::Over(run) => run,
        }
    }
}

fn selected(selection: &Selection, found: &Found) -> Result<BTreeMap<Uuid, String>, ClearError> {
    let run = found.rows();
    selection
        .tries(run)
        .map_err(|task_id| ClearError::UnknownTask {
            run: run.run.key.clone(),
            task_id,
        })
}

/// All tries of a clear are followed by new ones, or will be.
fn is_recorded(found: &Found, clearing: &Clearing) -> bool {
    let is_as_before =
        |id: &Uuid, state| clearing.tries.contains(id) && state != Some(TaskState::Restarting);
    !found
        .rows()
        .tasks
        .values()
        .any(|row| is_as_before(&row.id, row.state))
}
