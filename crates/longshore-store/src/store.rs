//! The store, on either engine.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{
    catalog::{Catalog, ListedRun, RunFilter, TaskFilter},
    changes::{Changes, RunStore, Snapshot, StoreError},
    engine::Connection,
    heartbeats::{self, Heartbeat},
    listing,
    model::{
        ArchivedTry, DagVersion, Deferral, DocumentHash, Pool, Reschedule, Run, RunKey,
        StoredDocument, TaskInstance, TaskKey,
    },
    off_clock,
    open::{Opened, Place},
    open_error::OpenError,
    query,
    readers::Readers,
    server::Server,
    told::{
        EventFilter, FromTry, JsonText, MappedLength, Rendered, Shared as SharedRow,
        StoredConnection, StoredEvent, StoredVariable, TellError, ToldStore, VariableKeys, XComKey,
        read, write::Done,
    },
    work::{Request, Work},
    writer::{Message, Shared, Writer},
};

/// Reads of the service at the same time, each on a connection of its own.
pub(crate) const SERVICE_READERS: u32 = 4;

/// Requests that may wait for the writer; further callers wait before they are queued.
const MAX_WAITING: usize = 1024;

/// What the store counts, for metrics and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commits, changes of pools and told values that were requested and answered, with success or not.
    pub n_requests: u64,
    /// Transactions of the engine for these requests: fewer, because waiting requests share one.
    pub n_transactions: u64,
}

/// Runs, task instances and DAGs, in SQLite or Postgres.
///
/// *Flow*: all writes go to one writer, which commits together what waits together; what is told ([`ToldStore`]) comes
/// after the commits that wait, in transactions of its own. Reads of the scheduler
/// ([`RunStore`]) have a connection of their own, and those of the service ([`Catalog`]) have four others, so that a slow
/// list holds nothing but itself. Each read sees every commit that has returned before.
/// *Guarantees*: a commit that has returned survives any crash of the process and of the machine; any other commit is
/// there wholly or not at all. No timer of the runtime is involved: under a paused clock the store takes no time.
/// *Cancellation*: a caller may go away at any moment; its commit is then wholly done or not at all.
/// *After a failed write* to a file, whose outcome is unknown, all calls return [`StoreError::Unavailable`] until a
/// restart. *After a lost connection* to a server all calls do so until the store has opened another connection; by
/// then every commit whose result was lost is decided, so read again.
#[derive(Debug)]
pub struct Store {
    database: String,
    scheduler_id: String,
    inbox: mpsc::Sender<Message>,
    /// For [`RunStore`].
    scheduler: Arc<Readers>,
    /// For [`Catalog`].
    service: Arc<Readers>,
    shared: Arc<Shared>,
}

impl Store {
    /// Opens the database in this file, and creates it where there is none. Its directory must exist. A file
    /// `<path>.lock` beside it keeps other processes out.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let absolute = std::path::absolute(path).map_err(|e| OpenError::Directory {
            database: path.display().to_string(),
            source: e.into(),
        })?;
        Self::start(Place::File(absolute)).await
    }

    /// Makes an empty database in memory, gone with the store.
    pub async fn in_memory() -> Result<Self, OpenError> {
        Self::start(Place::Memory(Uuid::new_v4().to_string())).await
    }

    /// Connects to a Postgres database: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with `sslmode`, `sslrootcert`,
    /// `sslcert`, `sslkey`, `host` (a directory is that of a Unix socket), `port`, `dbname`, `user`, `password` and
    /// `options` as parameters where needed. What the URL does not say is taken from the variables that `psql` reads.
    /// The database must exist; its tables are made. An advisory lock keeps other schedulers out.
    ///
    /// # Errors
    /// The server cannot be reached, or its database cannot be used. No [`OpenError`] holds the password, nor anything of a
    /// URL that cannot be read.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        let server = Server::parse(url).map_err(|why| OpenError::Url { why })?;
        Self::start(Place::Server(server.into())).await
    }

    /// Connects as [`connect`](Self::connect) does, and ends the session of the present writer: for
    /// a process that knows by other means (a lease) that no other process may write. A process
    /// that was paused, or cut off from the network, would keep its session, and with it the lock,
    /// until TCP gives the connection up. Its commits are decided by then.
    pub async fn take_over(url: &str) -> Result<Self, OpenError> {
        let server = Server::parse(url).map_err(|why| OpenError::Url { why })?;
        let place = Place::Server(server.into());
        let opener = place.clone();
        let ended = off_clock::run(async move || opener.end_former_writer().await).await;
        ended.map_err(|e| OpenError::Engine {
            database: place.name(),
            why: e.to_string().into(),
        })??;
        Self::start(place).await
    }

    async fn start(place: Place) -> Result<Self, OpenError> {
        let opener = place.clone();
        let opened = off_clock::run(async move || opener.open().await).await;
        let Opened {
            writer,
            reader,
            lock,
            scheduler_id,
            opening,
        } = opened.map_err(|e| OpenError::Engine {
            database: place.name(),
            why: e.to_string().into(),
        })??;
        let scheduler = Readers::new(place.clone(), 1, Some(reader));
        let service = Readers::new(place.clone(), SERVICE_READERS, None);
        let database = place.name();
        let shared = Arc::new(Shared::default());
        let (inbox, requests) = mpsc::channel(MAX_WAITING);
        let writer = Writer {
            place,
            opening,
            connection: writer,
            shared: Arc::clone(&shared),
            lock,
        };
        // Ends when the inbox closes, which is when the store goes away.
        tokio::spawn(writer.run(requests));
        Ok(Self {
            database,
            scheduler_id,
            inbox,
            scheduler,
            service,
            shared,
        })
    }

    /// Closes the database after all earlier requests; returns when it can be opened again. Later calls return
    /// [`StoreError::Unavailable`]. (Dropping the store closes it too, a moment later.)
    pub async fn close(&self) {
        self.scheduler.close().await;
        self.service.close().await;
        let (done, closed) = oneshot::channel();
        if self.inbox.send(Message::Close(done)).await.is_ok() {
            // An error means that another caller closed it first.
            let _ = closed.await;
        }
        self.inbox.closed().await;
    }

    /// The secret that signs the tokens of workers: the one that is stored, else the one that is offered, from now on.
    pub async fn token_secret(&self, offered: &str) -> Result<String, StoreError> {
        self.write(Work::TokenSecret(offered.to_owned())).await?;
        self.show(query::token_secret).await
    }

    /// The name of the database, without secrets: its file, or user, server and database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// What was counted since the store was opened.
    pub fn counters(&self) -> Counters {
        Counters {
            n_requests: self.shared.n_requests.load(Ordering::Relaxed),
            n_transactions: self.shared.n_transactions.load(Ordering::Relaxed),
        }
    }

    async fn write(&self, work: Work) -> Result<Done, StoreError> {
        let (answer, answered) = oneshot::channel();
        let request = Message::Write(Box::new(Request { work, answer }));
        self.inbox
            .send(request)
            .await
            .map_err(|_| closed("commit"))?;
        answered.await.map_err(|_| closed("commit"))?
    }

    /// Reads for the scheduler.
    async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        W: AsyncFnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        self.scheduler.read(&self.shared, work).await
    }

    /// Reads for the service.
    pub(crate) async fn show<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        W: AsyncFnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        self.service.read(&self.shared, work).await
    }
}

pub(crate) fn closed(doing: &'static str) -> StoreError {
    StoreError::Unavailable {
        doing,
        why: "the store is closed".into(),
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
        self.write(Work::Changes(Box::new(changes.clone())))
            .await
            .map(drop)
    }

    async fn load(&self) -> Result<Snapshot, StoreError> {
        self.read(query::load).await
    }

    async fn run(&self, key: &RunKey) -> Result<Option<(Run, Vec<TaskInstance>)>, StoreError> {
        let key = key.clone();
        self.read(async move |c: &mut Connection| query::run(c, &key).await)
            .await
    }

    async fn document(&self, hash: &DocumentHash) -> Result<StoredDocument, StoreError> {
        let hash = hash.clone();
        self.read(async move |c: &mut Connection| query::document(c, &hash).await)
            .await
    }

    async fn has_run(
        &self,
        key: &RunKey,
        logical_date: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let key = key.clone();
        self.read(async move |c: &mut Connection| query::has_run(c, &key, logical_date).await)
            .await
    }

    async fn try_by_id(&self, id: Uuid) -> Result<Option<TaskInstance>, StoreError> {
        self.read(async move |c: &mut Connection| query::try_by_id(c, id).await)
            .await
    }

    async fn dag_version(&self, id: Uuid) -> Result<Option<DagVersion>, StoreError> {
        self.read(async move |c: &mut Connection| query::dag_version(c, id).await)
            .await
    }

    async fn set_pool(&self, pool: &Pool) -> Result<(), StoreError> {
        self.write(Work::Pool(pool.clone())).await.map(drop)
    }

    async fn delete_pool(&self, name: &str) -> Result<(), StoreError> {
        self.write(Work::NoPool(name.to_owned())).await.map(drop)
    }
}

#[async_trait]
impl Catalog for Store {
    async fn runs(&self, filter: &RunFilter) -> Result<Vec<ListedRun>, StoreError> {
        let filter = filter.clone();
        self.show(async move |c: &mut Connection| listing::runs(c, &filter).await)
            .await
    }

    async fn newest_runs(&self) -> Result<Vec<ListedRun>, StoreError> {
        self.show(listing::newest_runs).await
    }

    async fn listed_run(&self, key: &RunKey) -> Result<Option<ListedRun>, StoreError> {
        let key = key.clone();
        self.show(async move |c: &mut Connection| listing::run(c, &key).await)
            .await
    }

    async fn count_runs(&self, filter: &RunFilter) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.show(async move |c: &mut Connection| listing::count_runs(c, &filter).await)
            .await
    }

    async fn document_of(&self, key: &RunKey) -> Result<Option<StoredDocument>, StoreError> {
        let key = key.clone();
        self.show(async move |c: &mut Connection| listing::document_of(c, &key).await)
            .await
    }

    async fn task_instances(&self, filter: &TaskFilter) -> Result<Vec<TaskInstance>, StoreError> {
        let filter = filter.clone();
        self.show(async move |c: &mut Connection| listing::task_instances(c, &filter).await)
            .await
    }

    async fn count_task_instances(&self, filter: &TaskFilter) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.show(async move |c: &mut Connection| listing::count_task_instances(c, &filter).await)
            .await
    }

    async fn history(&self, key: &RunKey) -> Result<Vec<ArchivedTry>, StoreError> {
        let key = key.clone();
        self.show(async move |c: &mut Connection| query::history(c, &key).await)
            .await
    }

    async fn dag_versions(&self, dag_id: &str) -> Result<Vec<DagVersion>, StoreError> {
        let dag_id = dag_id.to_owned();
        self.show(async move |c: &mut Connection| query::dag_versions_of(c, &dag_id).await)
            .await
    }

    async fn text(&self, hash: &DocumentHash) -> Result<StoredDocument, StoreError> {
        let hash = hash.clone();
        self.show(async move |c: &mut Connection| query::document(c, &hash).await)
            .await
    }

    async fn reschedules(&self, id: Uuid) -> Result<Vec<Reschedule>, StoreError> {
        self.show(async move |c: &mut Connection| query::reschedules(c, id).await)
            .await
    }

    async fn deferral(&self, id: Uuid) -> Result<Option<Deferral>, StoreError> {
        self.show(async move |c: &mut Connection| query::deferral(c, id).await)
            .await
    }
}

#[async_trait]
impl ToldStore for Store {
    async fn tell(&self, id: Uuid, what: FromTry) -> Result<u64, TellError> {
        match self.write(Work::Tell(id, what)).await? {
            Done::Rows(n_rows) => Ok(n_rows),
            Done::Unknown => Err(TellError::Unknown { id }),
            Done::Earlier => Err(TellError::Earlier { id }),
        }
    }

    async fn keep(&self, what: SharedRow) -> Result<u64, StoreError> {
        match self.write(Work::Keep(what)).await? {
            Done::Rows(n_rows) => Ok(n_rows),
            // Nobody's try is asked for.
            Done::Unknown | Done::Earlier => Ok(0),
        }
    }

    async fn note_heartbeats(&self, heartbeats: &[Heartbeat]) -> Result<u64, StoreError> {
        if heartbeats.is_empty() {
            return Ok(0);
        }
        match self.write(Work::Heartbeats(heartbeats.to_vec())).await? {
            Done::Rows(n_rows) => Ok(n_rows),
            Done::Unknown | Done::Earlier => Ok(0),
        }
    }

    async fn last_heartbeat(&self, id: Uuid) -> Result<Option<Timestamp>, StoreError> {
        self.show(async move |c: &mut Connection| heartbeats::last(c, id).await)
            .await
    }

    async fn xcom(&self, key: &XComKey, map_index: i32) -> Result<Option<JsonText>, StoreError> {
        let key = key.clone();
        self.show(async move |c: &mut Connection| read::xcom(c, &key, map_index).await)
            .await
    }

    async fn xcom_of_this_or_earlier_runs(
        &self,
        key: &XComKey,
        map_index: i32,
    ) -> Result<Option<JsonText>, StoreError> {
        let key = key.clone();
        let work = async move |c: &mut Connection| {
            read::xcom_of_this_or_earlier_runs(c, &key, map_index).await
        };
        self.show(work).await
    }

    async fn count_xcoms(&self, key: &XComKey) -> Result<u64, StoreError> {
        let key = key.clone();
        self.show(async move |c: &mut Connection| read::count_xcoms(c, &key).await)
            .await
    }

    async fn xcoms(
        &self,
        key: &XComKey,
        from: u64,
        limit: u32,
    ) -> Result<Vec<JsonText>, StoreError> {
        let key = key.clone();
        self.show(async move |c: &mut Connection| read::xcoms(c, &key, from, limit).await)
            .await
    }

    async fn xcom_keys(&self, key: &TaskKey) -> Result<Vec<String>, StoreError> {
        let key = key.clone();
        self.show(async move |c: &mut Connection| read::xcom_keys(c, &key).await)
            .await
    }

    async fn mapped_lengths(&self, run: &RunKey) -> Result<Vec<MappedLength>, StoreError> {
        let run = run.clone();
        self.show(async move |c: &mut Connection| read::mapped_lengths(c, &run).await)
            .await
    }

    async fn rendered(&self, id: Uuid) -> Result<Rendered, StoreError> {
        self.show(async move |c: &mut Connection| read::rendered(c, id).await)
            .await
    }

    async fn variable(&self, key: &str) -> Result<Option<StoredVariable>, StoreError> {
        let key = key.to_owned();
        self.show(async move |c: &mut Connection| read::variable(c, &key).await)
            .await
    }

    async fn variable_keys(
        &self,
        prefix: &str,
        from: u64,
        limit: u32,
    ) -> Result<VariableKeys, StoreError> {
        let prefix = prefix.to_owned();
        let work =
            async move |c: &mut Connection| read::variable_keys(c, &prefix, from, limit).await;
        self.show(work).await
    }

    async fn connection(&self, conn_id: &str) -> Result<Option<StoredConnection>, StoreError> {
        let conn_id = conn_id.to_owned();
        self.show(async move |c: &mut Connection| read::connection(c, &conn_id).await)
            .await
    }

    async fn task_state(
        &self,
        id: Uuid,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<JsonText>, StoreError> {
        let key = key.to_owned();
        self.show(async move |c: &mut Connection| read::task_state(c, id, &key, now).await)
            .await
    }

    async fn events(&self, filter: &EventFilter) -> Result<Vec<StoredEvent>, StoreError> {
        let filter = filter.clone();
        self.show(async move |c: &mut Connection| read::events(c, &filter).await)
            .await
    }
}
