//! The queries of the service beside those of the scheduler.

use async_trait::async_trait;

use crate::{
    changes::{RunFilter, RunStore, StoreError},
    model::{TaskInstance, TaskKey, TaskState},
};

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

/// The store as the service sees it.
#[async_trait]
pub trait Catalog: RunStore {
    /// How many runs there are on all pages of a listing: its `before` and `limit` do not count.
    async fn count_runs(&self, filter: &RunFilter) -> Result<u64, StoreError>;

    /// Task instances of many runs.
    async fn task_instances(&self, filter: &TaskFilter) -> Result<Vec<TaskInstance>, StoreError>;

    /// How many task instances there are on all pages of a listing.
    async fn count_task_instances(&self, filter: &TaskFilter) -> Result<u64, StoreError>;
}
