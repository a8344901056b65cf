//! The connections that read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use crate::{
    changes::StoreError,
    engine::{Connection, EngineError},
    off_clock,
    open::Place,
    query,
    store::closed,
    writer::Shared,
};

/// The reading connections of the scheduler, or those of the service: neither waits for the other. At most `n_slots` reads
/// run at the same time, each on a connection of its own; a read that finds no free connection opens one.
#[derive(Debug)]
pub(crate) struct Readers {
    place: Place,
    n_slots: u32,
    slots: Arc<Semaphore>,
    free: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(place: Place, n_slots: u32, opened: Option<Connection>) -> Arc<Self> {
        Arc::new(Self {
            place,
            n_slots,
            slots: Arc::new(Semaphore::new(n_slots as usize)),
            free: Mutex::new(opened.into_iter().collect()),
        })
    }

    /// Runs queries that all see the same state.
    pub(crate) async fn read<T, W>(
        self: &Arc<Self>,
        shared: &Shared,
        work: W,
    ) -> Result<T, StoreError>
    where
        W: AsyncFnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let slot = slot.map_err(|_| closed("read"))?;
        shared.check("read")?;
        let readers = Arc::clone(self);
        let read = off_clock::run(async move || {
            // Released once the connection is free again.
            let _slot = slot;
            let mut connection = readers.connection().await?;
            let found = query::in_transaction(&mut connection, work).await;
            readers.put_back(connection);
            found
        });
        read.await.map_err(|error| unavailable(error.to_string()))?
    }

    async fn connection(&self) -> Result<Connection, StoreError> {
        let free = self.free().pop();
        match free {
            Some(connection) => Ok(connection),
            None => {
                let connected = self.place.connect_reader().await;
                connected.map_err(|error| unavailable(error.to_string()))
            }
        }
    }

    /// A server that has closed one connection may have closed all of them.
    fn put_back(&self, connection: Connection) {
        let mut free = self.free();
        if connection.is_lost() {
            free.clear();
        } else {
            free.push(connection);
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes all connections after the reads under way. Later reads fail.
    pub(crate) async fn close(&self) {
        // An error means that they are closed already.
        let _all = self.slots.acquire_many(self.n_slots).await;
        self.slots.close();
        let free = std::mem::take(&mut *self.free());
        let closed = off_clock::run(async move || {
            for connection in free {
                connection.close().await?;
            }
            Ok::<_, EngineError>(())
        });
        if let Ok(Err(error)) = closed.await {
            tracing::debug!(%error, "a reading connection was not closed cleanly");
        }
    }
}

fn unavailable(why: String) -> StoreError {
    StoreError::Unavailable {
        doing: "read",
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        Catalog as _, Changes, RunFilter, RunKey, RunStore as _, Store, store::SERVICE_READERS,
    };

    /// Longer than anything here takes; the machine may be busy.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_slow_read_of_the_service_holds_neither_other_reads_nor_the_scheduler() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("runs.db")).await.unwrap();
        let store = Arc::new(store);
        let (mut held, mut ends) = (Vec::new(), Vec::new());
        for n in 0..SERVICE_READERS {
            let one = RunFilter::default();
            let read = tokio::time::timeout(LONG, store.runs(&one)).await;
            read.unwrap()
                .unwrap_or_else(|error| panic!("beside {n} slow reads: {error}"));
            let (begun, has_begun) = oneshot::channel();
            let (end, ended) = oneshot::channel::<()>();
            let slow = Arc::clone(&store);
            held.push(tokio::spawn(async move {
                slow.show(async move |c: &mut Connection| {
                    query::fetch(c, "SELECT * FROM run", []).await?;
                    begun.send(()).unwrap();
                    Ok(ended.await)
                })
                .await
            }));
            ends.push(end);
            has_begun.await.unwrap();
        }
        let key = RunKey {
            dag_id: "a".to_owned(),
            run_id: "b".to_owned(),
        };
        let scheduler = async {
            store.load().await.unwrap();
            assert!(!store.has_run(&key, None).await.unwrap());
            let changes = Changes {
                watch_position: Some("1".to_owned()),
                ..Changes::default()
            };
            store.commit(&changes).await.unwrap();
            store.load().await.unwrap().watch_position
        };
        let position = tokio::time::timeout(LONG, scheduler).await.unwrap();
        assert_eq!(position.as_deref(), Some("1"));
        drop(ends);
        for slow in held {
            slow.await.unwrap().unwrap().unwrap_err();
        }
        store.close().await;
        assert!(store.load().await.is_err());
        assert!(store.runs(&RunFilter::default()).await.is_err());
    }
}
