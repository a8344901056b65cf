//! The database, with a memory of its first failed write: later writes are refused until a restart.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use jiff::Timestamp;
use longshore_kit::Gate;
use longshore_store::{
    AskedStore, Catalog, Changes, DagVersion, DocumentHash, Pool, Run, RunKey, RunStore, Snapshot,
    Store, StoreError, StoredDocument, TaskInstance,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

mod told;

/// A store that remembers its first failed write. After that it refuses all further writes until it is opened again,
/// so that there is no point in waiting: a full disk must end the command, not hang it. A write that the gate refuses
/// does not count.
#[derive(Debug)]
pub(crate) struct WatchedStore {
    store: Arc<Store>,
    gate: Gate,
    failure: OnceLock<StoreError>,
    broken: CancellationToken,
}

impl WatchedStore {
    /// Watches this store, whose writes pass `gate`.
    pub(crate) fn new(store: Store, gate: Gate) -> Self {
        Self {
            store: Arc::new(store),
            gate,
            failure: OnceLock::new(),
            broken: CancellationToken::new(),
        }
    }

    /// The database as the service reads it.
    pub(crate) fn catalog(&self) -> Arc<dyn Catalog> {
        self.store.clone()
    }

    /// The database as workers ask it.
    pub(crate) fn asked(&self) -> Arc<dyn AskedStore> {
        self.store.clone()
    }

    /// Waits until a write has failed for good.
    pub(crate) async fn broken(&self) {
        self.broken.cancelled().await;
    }

    /// Why nothing can be written any more.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.failure.get().cloned()
    }

    /// Closes the database.
    pub(crate) async fn close(&self) {
        self.store.close().await;
    }

    fn check(&self, doing: &'static str) -> Result<(), StoreError> {
        self.gate
            .check()
            .map_err(|not_leader| StoreError::Unavailable {
                doing,
                why: not_leader.to_string().into(),
            })
    }

    fn note<T>(&self, written: Result<T, StoreError>) -> Result<T, StoreError> {
        written.inspect_err(|error| self.note_failure(error))
    }

    fn note_failure(&self, error: &StoreError) {
        if let StoreError::Unavailable { .. } = error {
            let _ = self.failure.set(error.clone());
            self.broken.cancel();
        }
    }
}

#[async_trait]
impl RunStore for WatchedStore {
    fn scheduler_id(&self) -> &str {
        self.store.scheduler_id()
    }

    async fn commit(&self, changes: &Changes) -> Result<(), StoreError> {
        self.check("commit")?;
        self.note(self.store.commit(changes).await)
    }

    async fn load(&self) -> Result<Snapshot, StoreError> {
        self.store.load().await
    }

    async fn run(&self, key: &RunKey) -> Result<Option<(Run, Vec<TaskInstance>)>, StoreError> {
        self.store.run(key).await
    }

    async fn document(&self, hash: &DocumentHash) -> Result<StoredDocument, StoreError> {
        self.store.document(hash).await
    }

    async fn has_run(
        &self,
        key: &RunKey,
        logical_date: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        self.store.has_run(key, logical_date).await
    }

    async fn try_by_id(&self, id: Uuid) -> Result<Option<TaskInstance>, StoreError> {
        self.store.try_by_id(id).await
    }

    async fn dag_version(&self, id: Uuid) -> Result<Option<DagVersion>, StoreError> {
        self.store.dag_version(id).await
    }

    async fn set_pool(&self, pool: &Pool) -> Result<(), StoreError> {
        self.check("set pool")?;
        self.note(self.store.set_pool(pool).await)
    }

    async fn delete_pool(&self, name: &str) -> Result<(), StoreError> {
        self.check("delete pool")?;
        self.note(self.store.delete_pool(name).await)
    }
}
