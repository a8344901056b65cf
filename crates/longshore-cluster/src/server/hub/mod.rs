//! The sequencer and what it has published: the state and the recent events of every collection.
//!
//! **Invariant:** all writes pass [`Hub::commit`], one at a time, so the order of revisions is the order in which
//! every watcher sees them. Readers take a collection's lock for as long as cloning a few `Arc`s takes; nothing is
//! encoded or decoded under a lock, and nobody waits for a watcher.

mod collection;
mod cursor;
mod object;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::store::{Record, Store, StoreError};

pub(crate) use collection::{Collection, Event, Objects, TooOld};
pub(crate) use cursor::{Cursor, Lost};
pub(crate) use object::{Draft, EventType, Key, Object, frame_of};

/// What a write expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// No object of this key.
    Absent,
    /// The object as written by this revision.
    At(u64),
}

/// What a write does.
#[derive(Debug)]
pub(crate) enum Change {
    Put(Draft),
    Delete,
}

/// Why a write was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// Another write came first; read again.
    #[error("the object changed since it was read")]
    Raced,
    /// The backend refused.
    #[error("the write could not be stored")]
    Store(#[from] StoreError),
}

/// Locks; a panic of another holder does not spread, because every critical section here leaves a whole state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Sequencer {
    revision: u64,
    store: Box<dyn Store>,
}

/// The one order of all writes.
pub(crate) struct Hub {
    sequencer: Mutex<Sequencer>,
    /// The newest revision whose event every reader can see.
    published: watch::Sender<u64>,
}

impl Hub {
    pub(crate) fn new(store: Box<dyn Store>, revision: u64) -> Hub {
        let revision = revision.max(1);
        Hub {
            sequencer: Mutex::new(Sequencer { revision, store }),
            published: watch::Sender::new(revision),
        }
    }

    /// Puts the objects of an earlier process back into their collection.
    pub(crate) fn restore(&self, collection: &Collection, records: &[Record]) {
        for record in records
            .iter()
            .filter(|it| it.collection == collection.resource.storage_path())
        {
            let Some(json) = &record.json else { continue };
            #[expect(clippy::expect_used, reason = "this server has encoded what it stored")]
            let object = serde_json::from_slice(json).expect("decode a stored object");
            let draft = Draft::new(&collection.resource, &object);
            let key = Key::from_position(&record.key);
            let object = draft.seal(key, record.revision, EventType::Modified);
            collection.restore(object, self.revision());
        }
    }

    /// The newest published revision.
    pub(crate) fn revision(&self) -> u64 {
        *self.published.borrow()
    }

    /// Resolves when `revision` has been published.
    pub(crate) async fn reached(&self, revision: u64) {
        let mut published = self.published.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = published.wait_for(|now| *now >= revision).await;
    }

    /// Makes one write and waits until it is stored. For a delete, the answer is the last state under the revision of
    /// the deletion.
    #[expect(
        clippy::unused_async,
        reason = "a durable store acknowledges later; callers already wait for it"
    )]
    pub(crate) async fn commit(
        &self,
        collection: &Collection,
        key: Key,
        expected: Expected,
        change: Change,
    ) -> Result<Arc<Object>, CommitError> {
        self.commit_now(collection, key, expected, change)
    }

    /// Makes one write: gives it the next revision, stores it, publishes it.
    pub(crate) fn commit_now(
        &self,
        collection: &Collection,
        key: Key,
        expected: Expected,
        change: Change,
    ) -> Result<Arc<Object>, CommitError> {
        let mut sequencer = lock(&self.sequencer);
        let previous = collection.get(&key);
        let found = previous
            .as_ref()
            .map_or(Expected::Absent, |object| Expected::At(object.revision));
        if found != expected {
            return Err(CommitError::Raced);
        }
        let revision = sequencer.revision + 1;
        let event = match (change, previous) {
            (Change::Put(draft), None) => Event {
                kind: EventType::Added,
                object: Arc::new(draft.seal(key, revision, EventType::Added)),
                previous: None,
            },
            (Change::Put(draft), Some(previous)) => Event {
                kind: EventType::Modified,
                object: Arc::new(draft.seal(key, revision, EventType::Modified)),
                previous: Some(previous),
            },
            (Change::Delete, Some(previous)) => Event {
                kind: EventType::Deleted,
                object: Arc::new(previous.departed(revision)),
                previous: Some(previous),
            },
            (Change::Delete, None) => return Err(CommitError::Raced),
        };
        if sequencer.store.is_durable() {
            sequencer.store.append(record(collection, &event))?;
        }
        sequencer.revision = revision;
        let object = Arc::clone(&event.object);
        collection.publish(event);
        self.published.send_replace(revision);
        drop(sequencer);
        collection.announce(revision);
        Ok(object)
    }

    /// Forgets the events of these collections, as a compaction would: every revision handed out so far is too old
    /// afterwards, and open watches are told so.
    pub(crate) fn compact<'a>(&self, collections: impl Iterator<Item = &'a Arc<Collection>>) {
        let mut sequencer = lock(&self.sequencer);
        sequencer.revision += 1;
        let revision = sequencer.revision;
        for collection in collections {
            collection.compact(revision);
        }
        self.published.send_replace(revision);
    }
}

fn record(collection: &Collection, event: &Event) -> Record {
    Record {
        revision: event.object.revision,
        collection: collection.resource.storage_path(),
        key: event.object.key.as_str().to_owned(),
        json: (event.kind != EventType::Deleted).then(|| event.object.json()),
    }
}
