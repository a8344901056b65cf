//! The backend that remembers: one redb file in a directory of its own.
//!
//! A batch is one transaction: the new state of each object, how to take the write back (the
//! window of events), and the newest revision become durable together or not at all.

mod open_database;
mod rows;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use longshore_files::{Draft, System};
use open_database::OpenDatabase;
use redb::{Database, ReadableDatabase, StorageBackend, backends::FileBackend};
use rows::{Reader, Session, Writer};

use super::{
    Durability, Loaded, MAX_UNSTORED, OpenError, Record, Store, StoreError,
    lock::{DirectoryLock, private_file},
};

/// The file with the objects.
const FILE: &str = "cluster.redb";

/// Every row is read once, at the start; afterwards only the pages on the way to a write are.
const CACHE_BYTES: usize = 16 << 20;

/// A file below this size is never compacted.
const SMALL_FILE_BYTES: u64 = 64 << 20;

/// A store in a directory that no other process has open.
pub(crate) struct FileStore {
    database: OpenDatabase,
    path: PathBuf,
    durability: Durability,
    /// Events kept of each collection.
    window: usize,
    /// Events there are of each collection.
    n_events: BTreeMap<String, usize>,
    /// Why nothing is written any more.
    failed: Option<String>,
    /// Released after the database is closed.
    _lock: Option<DirectoryLock>,
}

impl FileStore {
    /// Opens the store in a directory, which is made when it is not there.
    pub(crate) fn open(
        directory: &Path,
        durability: Durability,
        window: usize,
    ) -> Result<FileStore, OpenError> {
        let lock = DirectoryLock::take(directory)?;
        let path = directory.join(FILE);
        let is_there = path
            .try_exists()
            .map_err(|error| OpenError::from_io(&path, error))?;
        if !is_there {
            create(&path)?;
        }
        let file = private_file()
            .open(&path)
            .map_err(|error| OpenError::from_io(&path, error))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        if length == 0 {
            // A store file gets its name after its first transaction is durable, so an empty one is
            // damaged.
            return Err(OpenError::damaged(&path, "it is empty"));
        }
        let database = guarded(&path, || {
            let mut database = database(FileBackend::new(file)?)?;
            if length > SMALL_FILE_BYTES {
                compact_when_sparse(&mut database, length)?;
            }
            Ok(database)
        })?;
        let store = FileStore::over(database, path, durability, window);
        Ok(FileStore {
            _lock: Some(lock),
            ..store
        })
    }

    /// A store over an open database.
    fn over(database: Database, path: PathBuf, durability: Durability, window: usize) -> FileStore {
        FileStore {
            database: database.into(),
            path,
            durability,
            window: window.max(1),
            n_events: BTreeMap::new(),
            failed: None,
            _lock: None,
        }
    }

    /// A store over a medium that a test made.
    #[cfg(test)]
    pub(super) fn on_medium(
        medium: impl StorageBackend,
        is_new: bool,
        window: usize,
    ) -> Result<FileStore, OpenError> {
        let path = PathBuf::from("medium");
        let database = guarded(&path, || database(medium))?;
        if is_new {
            guarded(&path, || Writer::initialise(&database))?;
        }
        Ok(FileStore::over(database, path, Durability::Strict, window))
    }

    fn read(&self) -> Result<Loaded, OpenError> {
        guarded(&self.path, || {
            let transaction = self.database.begin_read()?;
            Reader::new(&transaction)?.read()
        })
    }

    fn write(&mut self, batch: &[Record]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut writer = Writer::new(&transaction)?;
            for record in batch {
                writer.put(record)?;
                let n_events = self.n_events.entry(record.collection.clone()).or_default();
                *n_events += 1;
                if *n_events > self.window {
                    *n_events -= writer.prune(&record.collection, *n_events - self.window)?;
                }
            }
            if let Some(last) = batch.last() {
                writer.set_revision(last.revision)?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// Runs one transaction. After an error the content of the medium is not known, so there is no
    /// second attempt: a retried `fsync` may report success for pages that the system has dropped.
    fn transact(
        &mut self,
        revision: u64,
        run: impl FnOnce(&mut FileStore) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        if let Some(message) = &self.failed {
            let message = format!("the store has stopped: {message}");
            return Err(StoreError { revision, message });
        }
        let ran = match catch_unwind(AssertUnwindSafe(|| run(self))) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "its pages do not hold what was written to them".to_owned(),
        };
        let message = format!("{}: {ran}", self.path.display());
        self.failed = Some(message.clone());
        Err(StoreError { revision, message })
    }
}

impl Store for FileStore {
    fn load(&mut self) -> Result<Loaded, OpenError> {
        let mut loaded = self.read()?;
        for (collection, shelf) in &mut loaded.shelves {
            self.n_events.insert(collection.clone(), shelf.events.len());
            // Kept when the window was longer.
            let surplus = shelf.events.len().saturating_sub(self.window);
            if let Some(last) = shelf.events.drain(..surplus).next_back() {
                shelf.start = last.revision;
            }
        }
        let before = guarded(&self.path, || Session::read(&self.database.begin_read()?))?;
        if !before.is_closed {
            if before.is_relaxed {
                // Watchers saw writes that are lost: what they resume from never happened.
                loaded.floor = loaded.revision + MAX_UNSTORED;
            }
            // Revisions that were given out and not stored are not given out again.
            loaded.revision += MAX_UNSTORED;
        }
        let session = Session {
            revision: loaded.revision,
            floor: loaded.floor,
            is_closed: false,
            is_relaxed: self.durability == Durability::Relaxed,
        };
        guarded(&self.path, || session.write(&self.database))?;
        Ok(loaded)
    }

    fn append(&mut self, batch: &[Record]) -> Result<(), StoreError> {
        let revision = batch.first().map_or(0, |record| record.revision);
        self.transact(revision, |store| store.write(batch))
    }

    fn close(&mut self, revision: u64) -> Result<(), StoreError> {
        self.transact(revision, |store| {
            let session = Session::read(&store.database.begin_read()?);
            let session = session.map_err(Failure::into_redb)?;
            let closed = Session {
                revision: revision.max(session.revision),
                is_closed: true,
                ..session
            };
            closed.write(&store.database).map_err(Failure::into_redb)
        })
    }

    fn is_durable(&self) -> bool {
        true
    }
}

/// A failure of the store file.
#[derive(Debug)]
enum Failure {
    Database(redb::Error),
    /// A row says something impossible.
    Row(String),
    NewerFormat(u64),
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Database(error.into())
    }
}

impl Failure {
    fn into_redb(self) -> redb::Error {
        match self {
            Failure::Database(error) => error,
            Failure::Row(what) => redb::Error::Corrupted(what),
            Failure::NewerFormat(found) => redb::Error::Corrupted(format!("format {found}")),
        }
    }

    fn at(self, path: &Path) -> OpenError {
        let file = path.to_owned();
        match self {
            Failure::Row(what) => OpenError::damaged(path, what),
            Failure::NewerFormat(found) => OpenError::NewerFormat {
                file,
                found,
                supported: rows::FORMAT,
            },
            #[expect(
                clippy::wildcard_enum_match_arm,
                reason = "all other errors of redb mean that a page is not what it should be"
            )]
            Failure::Database(error) => match error {
                redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    OpenError::damaged(path, error)
                }
                redb::Error::Io(error) => OpenError::from_io(path, error),
                redb::Error::DatabaseAlreadyOpen => OpenError::Locked {
                    directory: file.parent().unwrap_or(path).to_owned(),
                    holder: "another process".to_owned(),
                },
                error => OpenError::damaged(path, error),
            },
        }
    }
}

/// Turns what redb does on damaged pages, errors and panics, into one kind of answer.
fn guarded<T>(path: &Path, run: impl FnOnce() -> Result<T, Failure>) -> Result<T, OpenError> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|failure| failure.at(path)),
        Err(_) => Err(OpenError::damaged(
            path,
            "a page does not hold what it should",
        )),
    }
}

fn database(medium: impl StorageBackend) -> Result<Database, Failure> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    Ok(builder.create_with_backend(medium)?)
}

/// Makes an empty store under another name first, so that the name always means a whole one.
fn create(path: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::from_io(path, error);
    let mut draft = Draft::begin(System, path, 0o600).map_err(failed)?;
    let file = draft.file().and_then(|file| file.try_clone());
    let file = file.map_err(failed)?;
    guarded(path, || {
        Writer::initialise(&database(FileBackend::new(file)?)?)
    })?;
    draft.commit().map_err(failed)
}

/// Compacts the file when less than a third of it is in use.
fn compact_when_sparse(database: &mut Database, length: u64) -> Result<(), Failure> {
    let transaction = database.begin_write()?;
    let stats = transaction.stats()?;
    transaction.abort()?;
    if stats.stored_bytes() + stats.metadata_bytes() < length / 3 {
        database.compact()?;
    }
    Ok(())
}
