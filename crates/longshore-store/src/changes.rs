//! The one way in which rows change: a set of changes, committed in one transaction.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;
use longshore_core::{Class, Classify};
use uuid::Uuid;

use crate::model::{
    ArchivedTry, Bundle, Dag, DagVersion, Deferral, DocumentHash, Expansion, FileKey, ImportError,
    Pool, Reschedule, Run, RunKey, StoredDocument, TaskInstance,
};

/// What one transaction does. Empty changes are not committed.
///
/// Rows are whole: an insert where `version` is 0, else an update that holds only if the stored version is the same,
/// and counts it up: afterwards the stored version is the given one + 1. One conflict refuses the whole transaction; a
/// row given twice, a task of a run that is gone and an id that is taken are conflicts too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Documents that runs and DAGs of these changes refer to, where the database may not have them yet. Documents are
    /// stored before all other rows; one that is there already stays as it is.
    pub documents: Vec<StoredDocument>,
    /// Runs, in any order.
    pub runs: Vec<Run>,
    /// Task instances, in any order. An update is by key (`dag_id`, `run_id`, `task_id`, `map_index`), because the id
    /// changes with every try.
    pub task_instances: Vec<TaskInstance>,
    /// Ended tries that go to the history, in the transaction that starts the next one. They keep their version.
    pub archived: Vec<ArchivedTry>,
    /// The last `resourceVersion` of the pod watch whose effects are in this transaction or an earlier one.
    pub watch_position: Option<String>,
    /// DAGs, in any order. A schedule goes on in the transaction that creates the run that was due.
    pub dags: Vec<Dag>,
    /// Versions of DAGs, in any order. Stored before runs and task instances.
    pub dag_versions: Vec<DagVersion>,
    /// Places of DAG files, in any order.
    pub bundles: Vec<Bundle>,
    /// Files of which no DAG could be read, in any order.
    pub import_errors: Vec<ImportError>,
    /// Files that have no import error any more; one that had none is no conflict.
    pub mended: Vec<FileKey>,
    /// Mapped tasks whose length became known. Done before all other changes of task instances, which then find the task
    /// instance at map index 0, with the same row version.
    pub expansions: Vec<Expansion>,
    /// Looks of sensors that gave up their worker. Never changed again.
    pub reschedules: Vec<Reschedule>,
    /// How deferred tries go on; replaces what was stored of the same try.
    pub deferrals: Vec<Deferral>,
}

impl Changes {
    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
            && self.runs.is_empty()
            && self.task_instances.is_empty()
            && self.archived.is_empty()
            && self.watch_position.is_none()
            && self.dags.is_empty()
            && self.dag_versions.is_empty()
            && self.bundles.is_empty()
            && self.import_errors.is_empty()
            && self.mended.is_empty()
            && self.expansions.is_empty()
            && self.reschedules.is_empty()
            && self.deferrals.is_empty()
    }
}

/// The stored state from which a scheduler starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Every run that is not finished, oldest first.
    pub runs: Vec<Run>,
    /// The task instances of those runs.
    pub task_instances: Vec<TaskInstance>,
    /// The pools.
    pub pools: Vec<Pool>,
    /// The resource version from which the pod watch goes on.
    pub watch_position: Option<String>,
    /// Every DAG that there ever was, by name.
    pub dags: Vec<Dag>,
    /// The latest version of each DAG, and the versions of these runs; by DAG and number.
    pub dag_versions: Vec<DagVersion>,
    /// Every bundle that there ever was, by name.
    pub bundles: Vec<Bundle>,
    /// Every file of which no DAG can be read, by bundle and path.
    pub import_errors: Vec<ImportError>,
    /// The documents of these runs and DAGs, each once.
    pub documents: BTreeMap<DocumentHash, StoredDocument>,
}

/// The store as the scheduler and the command line see it; the lists of the service read a
/// [`Catalog`](crate::Catalog). Tests put a decorator in front that fails, delays, or commits and loses the result.
#[async_trait]
pub trait RunStore: Send + Sync + 'static {
    /// The identity of this database, made at its creation: the value of the pods' `airflow-worker` label.
    fn scheduler_id(&self) -> &str;

    /// Commits all changes in one transaction, durably, or none of them.
    async fn commit(&self, changes: &Changes) -> Result<(), StoreError>;

    /// All that is not finished, and all DAGs.
    async fn load(&self) -> Result<Snapshot, StoreError>;

    /// One run with its task instances.
    async fn run(&self, key: &RunKey) -> Result<Option<(Run, Vec<TaskInstance>)>, StoreError>;

    /// The document of this hash, which a row refers to.
    async fn document(&self, hash: &DocumentHash) -> Result<StoredDocument, StoreError>;

    /// Whether the DAG of this address has a run of that name, or, where an instant is given, a run about that instant.
    async fn has_run(
        &self,
        key: &RunKey,
        logical_date: Option<Timestamp>,
    ) -> Result<bool, StoreError>;

    /// The current or archived try with this id: the try that an orphaned pod belonged to.
    async fn try_by_id(&self, id: Uuid) -> Result<Option<TaskInstance>, StoreError>;

    /// A version of a DAG.
    async fn dag_version(&self, id: Uuid) -> Result<Option<DagVersion>, StoreError>;

    /// Creates or changes a pool.
    async fn set_pool(&self, pool: &Pool) -> Result<(), StoreError>;

    /// Deletes a pool, if there is one of this name.
    async fn delete_pool(&self, name: &str) -> Result<(), StoreError>;
}

/// Why the store did not do what the caller asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer changed a row, or this one did, in a commit whose result was lost.
    #[error("{what} was changed by another writer since it was read; read it again")]
    Conflict {
        /// The row.
        what: String,
    },
    /// The engine failed in a way that may pass: locked, full disk, connection lost. Whether a commit that
    /// returned this error happened is unknown: read again.
    #[error("the database {doing} failed: {why}")]
    Unavailable {
        /// The operation that failed.
        doing: &'static str,
        /// The error text of the engine.
        why: Arc<str>,
    },
    /// A stored row cannot be read: written by a newer version, or damaged.
    #[error("{what} in the database cannot be read: {why}")]
    Corrupt {
        /// The row.
        what: String,
        /// What is wrong with the row.
        why: Arc<str>,
    },
}

impl Classify for StoreError {
    fn class(&self) -> Class {
        match self {
            Self::Conflict { .. } => Class::Conflict,
            Self::Unavailable { .. } => Class::Retry,
            Self::Corrupt { .. } => Class::Bug,
        }
    }
}
