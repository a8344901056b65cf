//! What workers and users write and read beside the scheduler: the writes pass the gate, and a failed one counts.

use async_trait::async_trait;
use jiff::Timestamp;
use longshore_store::{
    EventFilter, FromTry, Heartbeat, JsonText, MappedLength, Rendered, RunKey, Shared, StoreError,
    StoredConnection, StoredEvent, StoredVariable, TaskKey, TellError, ToldStore, VariableKeys,
    XComKey,
};
use uuid::Uuid;

use super::WatchedStore;

#[async_trait]
impl ToldStore for WatchedStore {
    async fn tell(&self, id: Uuid, what: FromTry) -> Result<u64, TellError> {
        self.check("write of a worker")?;
        let written = self.store.tell(id, what).await;
        if let Err(TellError::Store(error)) = &written {
            self.note_failure(error);
        }
        written
    }

    async fn keep(&self, what: Shared) -> Result<u64, StoreError> {
        self.check("write of a value")?;
        self.note(self.store.keep(what).await)
    }

    async fn note_heartbeats(&self, heartbeats: &[Heartbeat]) -> Result<u64, StoreError> {
        self.check("write of heartbeats")?;
        self.note(self.store.note_heartbeats(heartbeats).await)
    }

    async fn last_heartbeat(&self, id: Uuid) -> Result<Option<Timestamp>, StoreError> {
        self.store.last_heartbeat(id).await
    }

    async fn xcom(&self, key: &XComKey, map_index: i32) -> Result<Option<JsonText>, StoreError> {
        self.store.xcom(key, map_index).await
    }

    async fn xcom_of_this_or_earlier_runs(
        &self,
        key: &XComKey,
        map_index: i32,
    ) -> Result<Option<JsonText>, StoreError> {
        let reading = self.store.xcom_of_this_or_earlier_runs(key, map_index);
        reading.await
    }

    async fn count_xcoms(&self, key: &XComKey) -> Result<u64, StoreError> {
        self.store.count_xcoms(key).await
    }

    async fn xcoms(
        &self,
        key: &XComKey,
        from: u64,
        limit: u32,
    ) -> Result<Vec<JsonText>, StoreError> {
        self.store.xcoms(key, from, limit).await
    }

    async fn xcom_keys(&self, key: &TaskKey) -> Result<Vec<String>, StoreError> {
        self.store.xcom_keys(key).await
    }

    async fn mapped_lengths(&self, run: &RunKey) -> Result<Vec<MappedLength>, StoreError> {
        self.store.mapped_lengths(run).await
    }

    async fn rendered(&self, id: Uuid) -> Result<Rendered, StoreError> {
        self.store.rendered(id).await
    }

    async fn variable(&self, key: &str) -> Result<Option<StoredVariable>, StoreError> {
        self.store.variable(key).await
    }

    async fn variable_keys(
        &self,
        prefix: &str,
        from: u64,
        limit: u32,
    ) -> Result<VariableKeys, StoreError> {
        self.store.variable_keys(prefix, from, limit).await
    }

    async fn connection(&self, conn_id: &str) -> Result<Option<StoredConnection>, StoreError> {
        self.store.connection(conn_id).await
    }

    async fn task_state(
        &self,
        id: Uuid,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<JsonText>, StoreError> {
        self.store.task_state(id, key, now).await
    }

    async fn events(&self, filter: &EventFilter) -> Result<Vec<StoredEvent>, StoreError> {
        self.store.events(filter).await
    }
}

#[cfg(test)]
mod tests {
    use longshore_kit::Gate;
    use longshore_store::{Sealed, Store};

    use super::*;

    fn variable(value: &str) -> Shared {
        Shared::Variable(StoredVariable {
            key: "key".to_owned(),
            value: Sealed::plain(value.to_owned()),
            description: None,
        })
    }

    /// The ways to write.
    #[derive(Clone, Copy, Debug)]
    enum Write {
        OfWorker,
        OfUser,
        Heartbeat,
    }

    const WRITES: [Write; 3] = [Write::OfWorker, Write::OfUser, Write::Heartbeat];

    /// Why the store did not write. No try has the id of this worker.
    async fn failure_of(store: &WatchedStore, write: Write) -> Option<StoreError> {
        let id = Uuid::nil();
        match write {
            Write::OfWorker => {
                let what = FromTry::Shared(variable("worker"));
                match store.tell(id, what).await.unwrap_err() {
                    TellError::Store(error) => Some(error),
                    TellError::Unknown { .. } | TellError::Earlier { .. } => None,
                }
            }
            Write::OfUser => store.keep(variable("user")).await.err(),
            Write::Heartbeat => {
                let at = Timestamp::UNIX_EPOCH;
                let heartbeats = [Heartbeat { id, at }];
                store.note_heartbeats(&heartbeats).await.err()
            }
        }
    }

    #[tokio::test]
    async fn what_workers_and_users_write_passes_the_gate() {
        let gate = Gate::always_open();
        let store = WatchedStore::new(Store::in_memory().await.unwrap(), gate.clone());
        for write in WRITES {
            assert!(failure_of(&store, write).await.is_none(), "{write:?}");
        }
        gate.close();
        for write in WRITES {
            let why = failure_of(&store, write).await.unwrap().to_string();
            assert!(why.contains("does not hold the lease"), "{write:?}: {why}");
        }
        // A refused write is no failed one, and reads go on.
        assert!(store.failure().is_none());
        let stored = store.variable("key").await.unwrap().unwrap();
        assert_eq!(stored.value.text(), "user");
    }

    #[tokio::test]
    async fn a_failed_write_of_a_worker_or_user_counts() {
        for write in WRITES {
            let store = Store::in_memory().await.unwrap();
            store.close().await;
            let store = WatchedStore::new(store, Gate::always_open());
            assert!(failure_of(&store, write).await.is_some(), "{write:?}");
            assert!(store.failure().is_some(), "{write:?}");
            store.broken().await;
        }
    }
}
