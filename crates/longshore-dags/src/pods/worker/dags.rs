//! What workers need to know of DAGs, from their documents.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_store::{DagVersion, RunStore, StoreError, TaskInstance};
use serde_json::Value;
use uuid::Uuid;

use super::WorkerBuildError;

/// Versions of DAGs that are remembered; the documents of more are read again.
const MAX_REMEMBERED: usize = 1_000;

/// What workers need to know of a version of a DAG.
#[derive(Debug)]
pub(crate) struct WorkerDag {
    pub(super) version: DagVersion,
    pub(super) tasks: BTreeMap<String, WorkerTask>,
}

/// What the executor reads of a task.
#[derive(Debug, Default)]
pub(super) struct WorkerTask {
    pub(super) queue: Option<String>,
    pub(super) executor_config: Value,
}

impl WorkerDag {
    /// What the document of a version says.
    pub(super) fn read(version: DagVersion, document: &str) -> Result<Self, WorkerBuildError> {
        let document: Value =
            serde_json::from_str(document).map_err(|error| WorkerBuildError::Document {
                version: version.to_string(),
                why: error.to_string(),
            })?;
        let defaults = &document["client_defaults"]["tasks"];
        let tasks = document["dag"]["tasks"].as_array().into_iter().flatten();
        let tasks = tasks.filter_map(|task| {
            let task = task.get("__var").unwrap_or(task);
            let task_id = task["task_id"].as_str()?.to_owned();
            Some((task_id, WorkerTask::read(task, defaults)))
        });
        Ok(Self {
            tasks: tasks.collect(),
            version,
        })
    }
}

impl WorkerTask {
    /// A mapped task has its settings in `partial_kwargs`; what a document does not say is a default.
    fn read(task: &Value, defaults: &Value) -> Self {
        let member = |name: &str| {
            let places = [task, &task["partial_kwargs"], defaults];
            let found = places.into_iter().find_map(|place| place.get(name));
            found.cloned().unwrap_or_default()
        };
        let queue = member("queue");
        Self {
            queue: queue.as_str().map(str::to_owned),
            executor_config: member("executor_config"),
        }
    }
}

/// What was read of versions of DAGs. A version never changes.
#[derive(Debug, Default)]
pub(crate) struct WorkerDags {
    read: Mutex<BTreeMap<Uuid, Arc<WorkerDag>>>,
}

impl WorkerDags {
    fn read(&self) -> MutexGuard<'_, BTreeMap<Uuid, Arc<WorkerDag>>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A version.
    ///
    /// # Errors
    /// The outer one may pass, the inner one does not.
    pub(crate) async fn of(
        &self,
        store: &dyn RunStore,
        row: &TaskInstance,
    ) -> Result<Result<Arc<WorkerDag>, WorkerBuildError>, StoreError> {
        let no_version = || WorkerBuildError::NoVersion(row.key.to_string());
        let Some(id) = row.airflow.as_ref().map(|task| task.dag_version) else {
            return Ok(Err(no_version()));
        };
        if let Some(known) = self.read().get(&id) {
            return Ok(Ok(Arc::clone(known)));
        }
        let Some(version) = store.dag_version(id).await? else {
            return Ok(Err(no_version()));
        };
        let document = store.document(&version.document).await?;
        let dag = match WorkerDag::read(version, document.body()) {
            Ok(dag) => Arc::new(dag),
            Err(error) => return Ok(Err(error)),
        };
        let mut read = self.read();
        if read.len() >= MAX_REMEMBERED {
            read.clear();
        }
        read.insert(id, Arc::clone(&dag));
        Ok(Ok(dag))
    }
}
