//! A catalog in a file, for a machine without the peer's cache service.
//!
//! What was acknowledged is durable. Writes that come while another one is under way are made durable together.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use longshore_kit::Clock;
use longshore_plugins::CacheKey;
use longshore_proto::flyteidl2::cacheservice::{self as base, CachedOutput, Metadata};
use prost::Message;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use tokio::{sync::oneshot, task::spawn_blocking};

use super::{
    Catalog, CatalogError, Limits, Put, Replace, Reservation, from_proto, reservation::claim,
    server::to_wire, to_proto,
};

/// Organisation, project, domain and key.
type Scoped = (&'static str, &'static str, &'static str, &'static str);
type Rows = TableDefinition<'static, Scoped, &'static [u8]>;

/// A `cacheservice.CachedOutput` for each key.
const OUTPUTS: Rows = TableDefinition::new("outputs");
/// A `cacheservice.Reservation` for each key that is reserved.
const RESERVATIONS: Rows = TableDefinition::new("reservations");
/// Entries are small and looked up once.
const PAGE_CACHE: usize = 1 << 20;

/// A catalog in a file that no other process has open.
#[derive(Debug)]
pub struct EmbeddedCatalog {
    writer: Arc<Writer>,
    clock: Arc<dyn Clock>,
    limits: Limits,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "the catalog {path} cannot be opened; without it tasks run again whose outputs were cached"
)]
pub struct OpenError {
    path: PathBuf,
    source: redb::Error,
}

/// A write, and whom to tell once it is durable.
type Job = Box<dyn FnOnce(&WriteTransaction) -> Result<Told, redb::Error> + Send>;
type Told = Box<dyn FnOnce() + Send>;

struct Writer {
    database: Database,
    waiting: Mutex<Vec<Job>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl EmbeddedCatalog {
    /// Opens a catalog, which is made where there is none. Reservations that are over are forgotten.
    ///
    /// # Errors
    /// Where the file is no catalog, is damaged, or is in use.
    pub fn open(path: &Path, clock: Arc<dyn Clock>, limits: Limits) -> Result<Self, OpenError> {
        let opened = open(path, clock.now()).map_err(|source| OpenError {
            path: path.to_owned(),
            source,
        })?;
        let writer = Arc::new(Writer {
            database: opened,
            waiting: Mutex::default(),
        });
        Ok(Self {
            writer,
            clock,
            limits,
        })
    }
}

fn open(path: &Path, now: Timestamp) -> Result<Database, redb::Error> {
    let database = Database::builder()
        .set_cache_size(PAGE_CACHE)
        .create(path)?;
    let transaction = database.begin_write()?;
    {
        transaction.open_table(OUTPUTS)?;
        let mut reservations = transaction.open_table(RESERVATIONS)?;
        reservations.retain(|_, row| reservation(row).is_ok_and(|it| !it.is_over(now)))?;
    }
    transaction.commit()?;
    Ok(database)
}

impl Writer {
    /// Does `work` in a transaction, and answers once that is durable.
    async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, CatalogError> {
        let (done, outcome) = oneshot::channel();
        let job: Job = Box::new(move |transaction| {
            let value = work(transaction)?;
            Ok(Box::new(move || drop(done.send(value))))
        });
        let is_first = {
            let mut waiting = self.waiting();
            waiting.push(job);
            waiting.len() == 1
        };
        if is_first {
            // Jobs that come before this transaction has started are written with it.
            let writer = Arc::clone(self);
            spawn_blocking(move || {
                let written = writer.write_all();
                // The caller that is told may close the file.
                drop(writer);
                match written {
                    Ok(told) => told.into_iter().for_each(|tell| tell()),
                    Err(error) => tracing::error!(%error, "the catalog was not written"),
                }
            });
        }
        outcome.await.map_err(|_| CatalogError::NotWritten)
    }

    /// Returns the callers to tell. Dropping a job tells its caller that it is not done.
    fn write_all(&self) -> Result<Vec<Told>, redb::Error> {
        // Waits for the transaction before this one.
        let transaction = self.database.begin_write();
        let jobs = std::mem::take(&mut *self.waiting());
        let transaction = transaction?;
        let mut told = Vec::with_capacity(jobs.len());
        for job in jobs {
            told.push(job(&transaction)?);
        }
        transaction.commit()?;
        Ok(told)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Job>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, key: &CacheKey) -> Result<Option<Vec<u8>>, redb::Error> {
        let table = self.database.begin_read()?.open_table(OUTPUTS)?;
        Ok(table.get(scoped(key))?.map(|row| row.value().to_vec()))
    }
}

fn scoped(key: &CacheKey) -> (&str, &str, &str, &str) {
    (&key.org, &key.project, &key.domain, &key.key)
}

fn reservation(row: &[u8]) -> Result<Reservation, CatalogError> {
    let wire = base::Reservation::decode(row);
    wire.unwrap_or_default().try_into()
}

#[async_trait]
impl Catalog for EmbeddedCatalog {
    async fn get(&self, key: &CacheKey) -> Result<Option<CachedOutput>, CatalogError> {
        let (writer, asked) = (Arc::clone(&self.writer), key.clone());
        let row = spawn_blocking(move || writer.read(&asked)).await;
        let row = row.map_err(|error| CatalogError::NotRead(error.to_string()))?;
        let row = row.map_err(|error| CatalogError::NotRead(error.to_string()))?;
        let output = row.map(|row| CachedOutput::decode(row.as_slice()));
        output.transpose().map_err(|error| CatalogError::BadEntry {
            key: key.key.clone(),
            why: error.to_string(),
        })
    }

    async fn put(
        &self,
        key: &CacheKey,
        output: CachedOutput,
        replace: Replace,
    ) -> Result<Put, CatalogError> {
        let (key, now) = (key.clone(), self.clock.now());
        let work = move |transaction: &WriteTransaction| {
            let mut outputs = transaction.open_table(OUTPUTS)?;
            let old = outputs.get(scoped(&key))?;
            // One that cannot be read is of no use.
            let old = old.and_then(|row| CachedOutput::decode(row.value()).ok());
            if old.as_ref().is_some_and(|old| stays(old, replace, now)) {
                return Ok(Put::AlreadyThere);
            }
            let output = stamped(output, old, now);
            outputs.insert(scoped(&key), output.encode_to_vec().as_slice())?;
            Ok(Put::Stored)
        };
        self.writer.write(work).await
    }

    async fn get_or_extend_reservation(
        &self,
        key: &CacheKey,
        owner: &str,
        heartbeat: Duration,
    ) -> Result<Reservation, CatalogError> {
        let (key, owner) = (key.clone(), owner.to_owned());
        let (now, limits) = (self.clock.now(), self.limits);
        let work = move |transaction: &WriteTransaction| {
            let mut reservations = transaction.open_table(RESERVATIONS)?;
            let row = reservations.get(scoped(&key))?;
            let current = row.and_then(|row| reservation(row.value()).ok());
            let claimed = claim(current.as_ref(), &owner, heartbeat, now, limits);
            let Some(claimed) = claimed else {
                return Ok(current);
            };
            let wire = to_wire(claimed.clone(), key.key.clone());
            reservations.insert(scoped(&key), wire.encode_to_vec().as_slice())?;
            Ok(Some(claimed))
        };
        let reservation = self.writer.write(work).await?;
        reservation.ok_or(CatalogError::Incomplete("a reservation"))
    }

    async fn release_reservation(&self, key: &CacheKey, owner: &str) -> Result<(), CatalogError> {
        let (key, owner) = (key.clone(), owner.to_owned());
        let work = move |transaction: &WriteTransaction| {
            let mut reservations = transaction.open_table(RESERVATIONS)?;
            let row = reservations.get(scoped(&key))?;
            let current = row.and_then(|row| reservation(row.value()).ok());
            if current.is_some_and(|current| current.owner == owner) {
                reservations.remove(scoped(&key))?;
            }
            Ok(())
        };
        self.writer.write(work).await
    }
}

/// Whether what is cached stays.
fn stays(old: &CachedOutput, replace: Replace, now: Timestamp) -> bool {
    match replace {
        Replace::Nothing => true,
        Replace::Anything => false,
        Replace::OlderThan(age) => {
            let updated_at = old.metadata.as_ref().and_then(|it| it.last_updated_at);
            let updated_at = updated_at.and_then(from_proto);
            let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
            updated_at.is_none_or(|at| now.duration_since(at) <= age)
        }
    }
}

/// Outputs with the times that the catalog keeps of them.
fn stamped(output: CachedOutput, old: Option<CachedOutput>, now: Timestamp) -> CachedOutput {
    let metadata = output.metadata.unwrap_or_default();
    let first = old.and_then(|old| old.metadata?.created_at);
    let created_at = metadata.created_at.or(first);
    CachedOutput {
        metadata: Some(Metadata {
            created_at: created_at.or_else(|| Some(to_proto(now))),
            last_updated_at: Some(to_proto(now)),
            ..metadata
        }),
        ..output
    }
}
