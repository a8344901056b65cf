//! What the service keeps and lists beside the scheduler's rows.

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use crate::changes::{RunFilter, RunStore, StoreError};
use crate::model::{Dag, TaskInstance, TaskKey, TaskState};

/// A DAG as its file says.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedDag {
    /// Its name.
    pub dag_id: String,
    /// Its file, relative to the folder; `None` once that is gone.
    pub file: Option<String>,
    /// When the file was read.
    pub parsed_at: Timestamp,
    /// What is wrong with it.
    pub error: Option<String>,
    /// Its validated document; `None` keeps the last one.
    pub document: Option<Value>,
    /// Whether it is paused from the start; has no effect on a DAG that is known.
    pub is_paused_upon_creation: bool,
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

/// The store as the service sees it.
#[async_trait]
pub trait Catalog: RunStore {
    /// How many runs there are on all pages of a listing: its `before` and `limit` do not count.
    async fn count_runs(&self, filter: &RunFilter) -> Result<u64, StoreError>;

    /// Task instances of many runs.
    async fn task_instances(&self, filter: &TaskFilter) -> Result<Vec<TaskInstance>, StoreError>;

    /// How many task instances there are on all pages of a listing.
    async fn count_task_instances(&self, filter: &TaskFilter) -> Result<u64, StoreError>;

    /// All DAGs, by name.
    async fn dags(&self) -> Result<Vec<Dag>, StoreError>;

    /// A document by its hash.
    async fn document(&self, hash: &str) -> Result<Option<Value>, StoreError>;

    /// Stores what a DAG's file says now. What users and scheduler decided stays: paused or not, the next run.
    async fn set_dag(&self, dag: &ParsedDag) -> Result<(), StoreError>;

    /// Pauses a DAG or lets it go on. A DAG that is not there is a conflict.
    async fn set_paused(&self, dag_id: &str, is_paused: bool) -> Result<(), StoreError>;
}
