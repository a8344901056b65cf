//! The store's contract in memory: the law runs replay each scenario hundreds of times, and always in the same order.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use async_trait::async_trait;
use jiff::Timestamp;
use longshore_store::{
    ArchivedTry, Changes, Dag, DagVersion, DocumentHash, Pool, Run, RunKey, RunStore, Snapshot,
    StoreError, StoredDocument, TaskInstance, TaskKey,
};
use uuid::Uuid;

#[derive(Debug)]
pub(crate) struct MemoryStore {
    scheduler_id: &'static str,
    rows: Mutex<Rows>,
}

#[derive(Clone, Debug, Default)]
struct Rows {
    runs: BTreeMap<RunKey, Run>,
    task_instances: BTreeMap<TaskKey, TaskInstance>,
    archived: Vec<ArchivedTry>,
    pools: BTreeMap<String, Pool>,
    watch_position: Option<String>,
    dags: BTreeMap<String, Dag>,
    documents: BTreeMap<DocumentHash, StoredDocument>,
    dag_versions: BTreeMap<Uuid, DagVersion>,
}

impl MemoryStore {
    pub(crate) fn new(scheduler_id: &'static str) -> Self {
        let store = Self {
            scheduler_id,
            rows: Mutex::default(),
        };
        for (name, slots) in [("default_pool", 128), ("one", 1)] {
            let pool = Pool::new(name, slots);
            store.rows().pools.insert(name.to_owned(), pool);
        }
        store
    }

    /// All runs.
    pub(crate) fn runs(&self) -> Vec<Run> {
        self.rows().runs.values().cloned().collect()
    }

    /// The archived tries of a run, oldest first.
    pub(crate) fn history(&self, key: &RunKey) -> Vec<ArchivedTry> {
        let rows = self.rows();
        let of_run = rows
            .archived
            .iter()
            .filter(|it| it.task_instance.key.run == *key);
        of_run.cloned().collect()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap()
    }
}

impl Rows {
    /// Refuses a row whose document is not there.
    fn check_document(&self, hash: &DocumentHash) -> Result<(), StoreError> {
        let version = i64::from(!self.documents.contains_key(hash));
        check(hash, version, None)
    }
}

/// Refuses a row whose version is not the stored one.
fn check(what: impl std::fmt::Display, given: i64, stored: Option<i64>) -> Result<(), StoreError> {
    if given == stored.unwrap_or(0) {
        return Ok(());
    }
    Err(StoreError::Conflict {
        what: what.to_string(),
    })
}

#[async_trait]
impl RunStore for MemoryStore {
    fn scheduler_id(&self) -> &str {
        self.scheduler_id
    }

    async fn commit(&self, changes: &Changes) -> Result<(), StoreError> {
        let mut stored = self.rows();
        let mut rows = stored.clone();
        let documents = changes.documents.iter();
        rows.documents
            .extend(documents.map(|document| (document.hash().clone(), document.clone())));
        for version in &changes.dag_versions {
            rows.check_document(&version.document)?;
            rows.dag_versions.insert(version.id, version.clone());
        }
        for run in &changes.runs {
            check(
                &run.key,
                run.version,
                rows.runs.get(&run.key).map(|row| row.version),
            )?;
            rows.check_document(&run.dag_hash)?;
            let run = Run {
                version: run.version + 1,
                ..run.clone()
            };
            rows.runs.insert(run.key.clone(), run);
        }
        for row in &changes.task_instances {
            let known = rows.task_instances.get(&row.key).map(|row| row.version);
            check(&row.key, row.version, known)?;
            let row = TaskInstance {
                version: row.version + 1,
                ..row.clone()
            };
            rows.task_instances.insert(row.key.clone(), row);
        }
        rows.archived.extend(changes.archived.iter().cloned());
        for dag in &changes.dags {
            let known = rows.dags.get(&dag.dag_id);
            check(&dag.dag_id, dag.version, known.map(|row| row.version))?;
            rows.check_document(&dag.document_hash)?;
            let dag = Dag {
                version: dag.version + 1,
                ..dag.clone()
            };
            rows.dags.insert(dag.dag_id.clone(), dag);
        }
        if changes.watch_position.is_some() {
            rows.watch_position.clone_from(&changes.watch_position);
        }
        *stored = rows;
        Ok(())
    }

    async fn load(&self) -> Result<Snapshot, StoreError> {
        let rows = self.rows();
        let is_open = |key: &RunKey| !rows.runs[key].state.is_finished();
        Ok(Snapshot {
            runs: rows
                .runs
                .values()
                .filter(|run| is_open(&run.key))
                .cloned()
                .collect(),
            task_instances: rows
                .task_instances
                .values()
                .filter(|row| is_open(&row.key.run))
                .cloned()
                .collect(),
            pools: rows.pools.values().cloned().collect(),
            watch_position: rows.watch_position.clone(),
            dags: rows.dags.values().cloned().collect(),
            documents: rows.documents.clone(),
            // Container DAGs have nothing else.
            ..Snapshot::default()
        })
    }

    async fn run(&self, key: &RunKey) -> Result<Option<(Run, Vec<TaskInstance>)>, StoreError> {
        let rows = self.rows();
        Ok(rows.runs.get(key).map(|run| {
            let tasks = rows
                .task_instances
                .values()
                .filter(|row| row.key.run == *key);
            (run.clone(), tasks.cloned().collect())
        }))
    }

    async fn document(&self, hash: &DocumentHash) -> Result<StoredDocument, StoreError> {
        Ok(self.rows().documents[hash].clone())
    }

    async fn has_run(
        &self,
        key: &RunKey,
        logical_date: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let rows = self.rows();
        let mut of_dag = rows
            .runs
            .values()
            .filter(|run| run.key.dag_id == key.dag_id);
        let is_about = |run: &Run| logical_date.is_some() && run.logical_date == logical_date;
        Ok(of_dag.any(|run| run.key == *key || is_about(run)))
    }

    async fn try_by_id(&self, id: Uuid) -> Result<Option<TaskInstance>, StoreError> {
        let rows = self.rows();
        let archived = rows.archived.iter().map(|archived| &archived.task_instance);
        let mut all = rows.task_instances.values().chain(archived);
        Ok(all.find(|row| row.id == id).cloned())
    }

    async fn dag_version(&self, id: Uuid) -> Result<Option<DagVersion>, StoreError> {
        Ok(self.rows().dag_versions.get(&id).cloned())
    }

    async fn set_pool(&self, pool: &Pool) -> Result<(), StoreError> {
        self.rows().pools.insert(pool.name.clone(), pool.clone());
        Ok(())
    }

    async fn delete_pool(&self, name: &str) -> Result<(), StoreError> {
        self.rows().pools.remove(name);
        Ok(())
    }
}
