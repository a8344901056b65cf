//! What the service shows. Its reads have connections of their own, so that a slow one holds neither the scheduler nor
//! the others.

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    changes::StoreError,
    model::{
        ArchivedTry, DagVersion, Deferral, DocumentHash, Reschedule, RunKey, RunState, RunType,
        StoredDocument, TaskInstance, TaskKey, TaskState,
    },
};

/// A run as lists show it: nothing is read that they do not show.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedRun {
    /// The key of the run.
    pub key: RunKey,
    /// What started the run.
    pub run_type: RunType,
    /// The state of the run.
    pub state: RunState,
    /// The instant that the run is about; `None` for a manual run without one.
    pub logical_date: Option<Timestamp>,
    /// When it was created.
    pub queued_at: Timestamp,
    /// When its first task could start.
    pub start_date: Option<Timestamp>,
    /// When it ended.
    pub end_date: Option<Timestamp>,
    /// Parameters given at the trigger.
    pub conf: Value,
    /// Why the run ended so, where that is not plain from its tasks.
    pub reason: Option<String>,
}

/// Which runs a listing shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only this DAG.
    pub dag_id: Option<String>,
    /// Only in one of these states; empty for any.
    pub states: Vec<RunState>,
    /// Only those that come after this place in the listing: the next page.
    pub before: Option<RunCursor>,
    /// At most this many, newest first.
    pub limit: Option<u32>,
}

/// A place in the listing of runs. It stays where it is when its run changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunCursor {
    /// When the run at this place was created.
    pub queued_at: Timestamp,
    /// That run.
    pub key: RunKey,
}

impl From<&ListedRun> for RunCursor {
    fn from(run: &ListedRun) -> Self {
        Self {
            queued_at: run.queued_at,
            key: run.key.clone(),
        }
    }
}

/// Which task instances a listing shows: current tries only, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Only of this DAG.
    pub dag_id: Option<String>,
    /// Only of runs with this id.
    pub run_id: Option<String>,
    /// Only of this task.
    pub task_id: Option<String>,
    /// Only in one of these states, `None` being the one before `Scheduled`; empty for any.
    pub states: Vec<Option<TaskState>>,
    /// Only those that come after this one: the next page.
    pub after: Option<TaskKey>,
    /// At most this many.
    pub limit: Option<u32>,
}

/// The store as the service reads it.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// Runs, newest first.
    async fn runs(&self, filter: &RunFilter) -> Result<Vec<ListedRun>, StoreError>;

    /// The newest run of each DAG that the service knows, by DAG.
    async fn newest_runs(&self) -> Result<Vec<ListedRun>, StoreError>;

    /// One run.
    async fn listed_run(&self, key: &RunKey) -> Result<Option<ListedRun>, StoreError>;

    /// How many runs there are on all pages of a listing: its `before` and `limit` do not count.
    async fn count_runs(&self, filter: &RunFilter) -> Result<u64, StoreError>;

    /// The document that a run is pinned to; `None` where there is no such run.
    async fn document_of(&self, key: &RunKey) -> Result<Option<StoredDocument>, StoreError>;

    /// Task instances of many runs.
    async fn task_instances(&self, filter: &TaskFilter) -> Result<Vec<TaskInstance>, StoreError>;

    /// How many task instances there are on all pages of a listing.
    async fn count_task_instances(&self, filter: &TaskFilter) -> Result<u64, StoreError>;

    /// The archived tries of a run, oldest first.
    async fn history(&self, key: &RunKey) -> Result<Vec<ArchivedTry>, StoreError>;

    /// The versions of a DAG, latest first.
    async fn dag_versions(&self, dag_id: &str) -> Result<Vec<DagVersion>, StoreError>;

    /// The document, or the source, of this hash, which a row refers to.
    async fn text(&self, hash: &DocumentHash) -> Result<StoredDocument, StoreError>;

    /// The looks of a sensor in this try, in their order.
    async fn reschedules(&self, id: Uuid) -> Result<Vec<Reschedule>, StoreError>;

    /// How this try goes on, if it was deferred.
    async fn deferral(&self, id: Uuid) -> Result<Option<Deferral>, StoreError>;
}
