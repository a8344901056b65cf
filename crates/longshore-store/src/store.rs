//! The store on an embedded database.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinError;
use uuid::Uuid;

use crate::changes::{Changes, RunFilter, RunStore, Snapshot, StoreError};
use crate::model::{ArchivedTry, Pool, Run, RunKey, TaskInstance};
use crate::off_clock;
use crate::open::{OpenError, Opened, Place};
use crate::query;
use crate::sqlite::Connection;
use crate::writer::{Message, Request, Shared, Work, Writer};

/// Requests that may wait for the writer; further callers wait to be let in.
const MAX_WAITING: usize = 1024;

/// What the store counts, for metrics and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commits and pools asked for and answered, well or not.
    pub n_requests: u64,
    /// Transactions of the engine that they took: fewer, because waiting requests share one.
    pub n_transactions: u64,
}

/// Runs and task instances in SQLite.
///
/// *Flow*: all writes go to one writer, which commits together what waits together; reads go to a connection of their
/// own and see all that was answered before.
/// *Guarantees*: a commit that was answered survives any crash of the process and of the machine; one that was not is
/// there wholly or not at all. No timer of the runtime is involved: under a paused clock the store takes no time.
/// *Cancellation*: a caller may go away at any moment; its commit is then wholly done or not at all.
/// *After a failed write* whose outcome nobody knows, all calls answer [`StoreError::Unavailable`] until a restart.
#[derive(Debug)]
pub struct Store {
    scheduler_id: String,
    inbox: mpsc::Sender<Message>,
    /// `None` once closed.
    reader: Arc<Mutex<Option<Connection>>>,
    shared: Arc<Shared>,
}

impl Store {
    /// Opens the database in this file, and creates it where there is none. Its directory must exist. A file
    /// `<path>.lock` beside it keeps other processes out.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let absolute = std::path::absolute(path).map_err(|e| OpenError::Directory {
            path: path.to_owned(),
            source: e.into(),
        })?;
        Self::start(Place::File(absolute)).await
    }

    /// Makes an empty database in memory, gone with the store.
    pub async fn in_memory() -> Result<Self, OpenError> {
        Self::start(Place::Memory(Uuid::new_v4().to_string())).await
    }

    async fn start(place: Place) -> Result<Self, OpenError> {
        let path = match &place {
            Place::File(path) => path.clone(),
            Place::Memory(name) => name.into(),
        };
        let opened = off_clock::run(async move || place.open().await).await;
        let Opened {
            writer,
            reader,
            lock,
            scheduler_id,
        } = opened.map_err(|e| OpenError::Engine {
            path,
            why: e.to_string().into(),
        })??;
        let shared = Arc::new(Shared::default());
        let (inbox, requests) = mpsc::channel(MAX_WAITING);
        let writer = Writer {
            connection: writer,
            shared: Arc::clone(&shared),
            lock,
        };
        // Ends when the inbox closes, which is when the store goes away.
        tokio::spawn(writer.run(requests));
        Ok(Self {
            scheduler_id,
            inbox,
            reader: Arc::new(Mutex::new(Some(reader))),
            shared,
        })
    }

    /// Closes the database after all that was asked before; returns when it can be opened again. Later calls answer
    /// [`StoreError::Unavailable`]. (Dropping the store closes it too, a moment later.)
    pub async fn close(&self) {
        let reader = self.reader.lock().await.take();
        if let Some(reader) = reader
            && let Ok(Err(error)) = off_clock::run(async move || reader.close().await).await
        {
            tracing::debug!(%error, "a reading connection was not closed cleanly");
        }
        let (done, closed) = oneshot::channel();
        if self.inbox.send(Message::Close(done)).await.is_ok() {
            // An error means that somebody else closed it first.
            let _ = closed.await;
        }
        self.inbox.closed().await;
    }

    /// What was counted since the store was opened.
    pub fn counters(&self) -> Counters {
        Counters {
            n_requests: self.shared.n_requests.load(Ordering::Relaxed),
            n_transactions: self.shared.n_transactions.load(Ordering::Relaxed),
        }
    }

    async fn write(&self, work: Work) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        let request = Message::Write(Request { work, answer });
        self.inbox
            .send(request)
            .await
            .map_err(|_| closed("commit"))?;
        answered.await.map_err(|_| closed("commit"))?
    }

    /// Runs queries that all see the same state.
    async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        W: AsyncFnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        self.shared.check("read")?;
        let mut reader = Arc::clone(&self.reader).lock_owned().await;
        let read = off_clock::run(async move || {
            let connection = reader.as_mut().ok_or_else(|| closed("read"))?;
            query::in_transaction(connection, work).await
        });
        read.await.map_err(stopped)?
    }
}

fn closed(doing: &'static str) -> StoreError {
    StoreError::Unavailable {
        doing,
        why: "the store is closed".into(),
    }
}

fn stopped(error: JoinError) -> StoreError {
    StoreError::Unavailable {
        doing: "read",
        why: error.to_string().into(),
    }
}

#[async_trait]
impl RunStore for Store {
    fn scheduler_id(&self) -> &str {
        &self.scheduler_id
    }

    async fn commit(&self, changes: &Changes) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.write(Work::Changes(changes.clone())).await
    }

    async fn load(&self) -> Result<Snapshot, StoreError> {
        self.read(query::load).await
    }

    async fn run(&self, key: &RunKey) -> Result<Option<(Run, Vec<TaskInstance>)>, StoreError> {
        let key = key.clone();
        self.read(async move |c: &mut Connection| query::run(c, &key).await)
            .await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        let filter = filter.clone();
        self.read(async move |c: &mut Connection| query::runs(c, &filter).await)
            .await
    }

    async fn try_by_id(&self, id: Uuid) -> Result<Option<TaskInstance>, StoreError> {
        self.read(async move |c: &mut Connection| query::try_by_id(c, id).await)
            .await
    }

    async fn history(&self, key: &RunKey) -> Result<Vec<ArchivedTry>, StoreError> {
        let key = key.clone();
        self.read(async move |c: &mut Connection| query::history(c, &key).await)
            .await
    }

    async fn set_pool(&self, pool: &Pool) -> Result<(), StoreError> {
        self.write(Work::Pool(pool.clone())).await
    }
}
