//! The sequencer and what it has published: the state and the recent events of every collection.
//!
//! **Invariant:** all writes pass [`Hub::commit`], one at a time, so the order of revisions is the
//! order in which every watcher sees them. With a durable store a write waits in the journal first:
//! no reader sees the write before it is on the medium, and no other write of its object starts
//! meanwhile. Readers hold the lock of a collection only while they clone a few `Arc`s; nothing is
//! encoded or decoded under a lock, and no write waits for a watcher.

mod claims;
mod collection;
mod cursor;
mod journal;
mod object;
mod restore;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::store::{Durability, MAX_UNSTORED, Record, Store, StoreError, Stored};
use journal::{Entry, Journal, Progress};

pub(crate) use claims::Claim;
pub(crate) use collection::{Collection, Event, Objects, TooOld};
pub(crate) use cursor::{Cursor, Lost};
pub(crate) use object::{Draft, EventType, Key, Object, frame_of};
pub(crate) use restore::{NotJson, restore};

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
    /// Another object has got what this one would have; choose again.
    #[error("another object has what only one may have")]
    Claimed,
    /// The backend refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Locks; a panic of another holder does not spread, because every critical section here leaves a
/// whole state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What readers see of a write, and of a compaction.
pub(super) enum Publication {
    Event(Arc<Collection>, Event),
    /// These collections forget their events up to a revision.
    Compaction(Vec<Arc<Collection>>, u64),
}

impl Publication {
    fn revision(&self) -> u64 {
        match self {
            Publication::Event(_, event) => event.revision(),
            Publication::Compaction(_, revision) => *revision,
        }
    }

    /// Changes what readers find.
    fn apply(&self) {
        match self {
            Publication::Event(collection, event) => collection.publish(event.clone()),
            Publication::Compaction(collections, revision) => {
                for collection in collections {
                    collection.compact(*revision);
                }
            }
        }
    }

    /// Wakes the watchers.
    fn announce(&self) {
        match self {
            Publication::Event(collection, event) => collection.announce(event.revision()),
            Publication::Compaction(collections, revision) => {
                for collection in collections {
                    collection.announce(*revision);
                }
            }
        }
    }
}

/// How far a write got in its first step.
enum Staged {
    /// Readers see it.
    Published(Arc<Object>),
    /// Readers see it once it is stored.
    Waiting(Arc<Object>),
    /// Another write of this object comes first, and is not stored yet.
    Behind(u64),
}

struct Sequencer {
    /// The newest revision given out.
    revision: u64,
}

/// The one order of all writes.
pub(crate) struct Hub {
    sequencer: Mutex<Sequencer>,
    progress: Arc<watch::Sender<Progress>>,
    /// None when the store keeps nothing.
    journal: Option<Journal>,
    durability: Durability,
}

impl Hub {
    /// A hub over a store that has been loaded up to a revision.
    pub(crate) fn new(
        store: Box<dyn Store>,
        revision: u64,
        durability: Durability,
    ) -> std::io::Result<Hub> {
        let revision = revision.max(1);
        let progress = Arc::new(watch::Sender::new(Progress {
            published: revision,
            stored: revision,
            stopped: None,
        }));
        let journal = match store.is_durable() {
            true => Some(Journal::start(store, Arc::clone(&progress))?),
            false => None,
        };
        Ok(Hub {
            sequencer: Mutex::new(Sequencer { revision }),
            progress,
            journal,
            durability,
        })
    }

    /// The newest published revision.
    pub(crate) fn revision(&self) -> u64 {
        self.progress.borrow().published
    }

    /// Why no write is taken any more; none while all is well.
    pub(crate) fn stopped(&self) -> Option<StoreError> {
        self.progress.borrow().stopped.clone()
    }

    /// Resolves when `revision` has been published.
    pub(crate) async fn reached(&self, revision: u64) {
        let mut progress = self.progress.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = progress.wait_for(|now| now.published >= revision).await;
    }

    /// Resolves when `revision` is on the medium, or will never be.
    async fn stored(&self, revision: u64) -> Result<(), StoreError> {
        let mut progress = self.progress.subscribe();
        let is_settled = |now: &Progress| now.stored >= revision || now.stopped.is_some();
        let Ok(now) = progress.wait_for(is_settled).await else {
            return Ok(()); // The sender lives as long as `self`.
        };
        match &now.stopped {
            Some(stopped) if now.stored < revision => Err(StoreError {
                revision,
                message: stopped.message.clone(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Makes one write and waits until it is stored. For a delete it returns the last state under the revision of the
    /// deletion. A caller that stops waiting does not stop the write.
    pub(crate) async fn commit(
        &self,
        collection: &Arc<Collection>,
        key: Key,
        expected: Expected,
        change: Change,
    ) -> Result<Arc<Object>, CommitError> {
        match self.stage(collection, key, expected, change)? {
            Staged::Published(object) => {
                if self.journal.is_some() {
                    // Answered before it is stored, but never far ahead of the medium.
                    let lag = object.revision.saturating_sub(MAX_UNSTORED / 2);
                    self.stored(lag).await?;
                }
                Ok(object)
            }
            Staged::Waiting(object) => {
                self.stored(object.revision).await?;
                Ok(object)
            }
            Staged::Behind(revision) => {
                self.stored(revision).await?;
                Err(CommitError::Raced)
            }
        }
    }

    /// As [`Hub::commit`] for code that may block: the start.
    pub(crate) fn commit_now(
        &self,
        collection: &Arc<Collection>,
        key: Key,
        expected: Expected,
        change: Change,
    ) -> Result<Arc<Object>, CommitError> {
        let commit = self.commit(collection, key, expected, change);
        // The caller may be a task that has used up its budget, which would never wake here.
        futures::executor::block_on(tokio::task::unconstrained(commit))
    }

    /// Assigns the next revision to a write, and publishes it or hands it to the journal.
    fn stage(
        &self,
        collection: &Arc<Collection>,
        key: Key,
        expected: Expected,
        change: Change,
    ) -> Result<Staged, CommitError> {
        let mut sequencer = lock(&self.sequencer);
        let (previous, waiting) = collection.look(&key);
        if let Some(revision) = waiting {
            return Ok(Staged::Behind(revision));
        }
        let found = previous
            .as_ref()
            .map_or(Expected::Absent, |object| Expected::At(object.revision));
        if found != expected {
            return Err(CommitError::Raced);
        }
        if let Change::Put(draft) = &change
            && !may_have(collection, &key, draft, previous.as_deref())
        {
            return Err(CommitError::Claimed);
        }
        let revision = sequencer.revision + 1;
        if let Some(journal) = &self.journal {
            journal.admit(revision)?;
        }
        let event = event(key, revision, change, previous)?;
        sequencer.revision = revision;
        let object = Arc::clone(&event.object);
        let record = self.journal.as_ref().map(|_| record(collection, &event));
        let publication = Publication::Event(Arc::clone(collection), event);
        match (&self.journal, record) {
            (Some(journal), Some(record)) if self.durability == Durability::Strict => {
                collection.expect(&object);
                journal.push(Entry {
                    record,
                    publication: Some(publication),
                });
                return Ok(Staged::Waiting(object));
            }
            (Some(journal), Some(record)) => journal.push(Entry {
                record,
                publication: None,
            }),
            (None, _) | (_, None) => {}
        }
        self.publish(&publication);
        drop(sequencer);
        publication.announce();
        Ok(Staged::Published(object))
    }

    fn publish(&self, publication: &Publication) {
        publication.apply();
        let revision = publication.revision();
        self.progress
            .send_modify(|progress| progress.published = revision);
    }

    /// Forgets the events of these collections, as a compaction would. Afterwards every revision
    /// issued so far is too old, and open watches end with that error.
    pub(crate) fn compact(&self, collections: Vec<Arc<Collection>>) {
        let mut sequencer = lock(&self.sequencer);
        if self.journal.is_some() && self.durability == Durability::Strict {
            // What waits in the journal is published first: its revisions are lower.
            let _ = futures::executor::block_on(self.stored(sequencer.revision));
        }
        sequencer.revision += 1;
        let publication = Publication::Compaction(collections, sequencer.revision);
        self.publish(&publication);
        if self.durability == Durability::Strict {
            // There is nothing to store of it, and nothing else waits.
            self.progress
                .send_modify(|progress| progress.stored = sequencer.revision);
        }
        drop(sequencer);
        publication.announce();
    }

    /// Stores what waits and closes the store; later writes are refused. Blocks for as long as the
    /// medium takes.
    pub(crate) fn close(&self) {
        let Some(journal) = &self.journal else { return };
        let sequencer = lock(&self.sequencer);
        // Under the lock: no write is between its admission and the queue.
        journal.refuse(sequencer.revision);
        drop(sequencer);
        journal.join();
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether no other object has what this one would get; what it has had so far it keeps.
fn may_have(collection: &Collection, key: &Key, draft: &Draft, previous: Option<&Object>) -> bool {
    let is_kept = |claim: &Claim| previous.is_some_and(|it| it.facets.claims.contains(claim));
    let mut new = draft.claims().iter().filter(|claim| !is_kept(claim));
    new.all(|claim| collection.is_free(*claim, key))
}

fn event(
    key: Key,
    revision: u64,
    change: Change,
    previous: Option<Arc<Object>>,
) -> Result<Event, CommitError> {
    let (kind, object) = match (change, &previous) {
        (Change::Put(draft), None) => {
            let kind = EventType::Added;
            (kind, draft.seal(key, revision, kind))
        }
        (Change::Put(draft), Some(_)) => {
            let kind = EventType::Modified;
            (kind, draft.seal(key, revision, kind))
        }
        (Change::Delete, Some(previous)) => (EventType::Deleted, previous.departed(revision)),
        (Change::Delete, None) => return Err(CommitError::Raced),
    };
    Ok(Event {
        kind,
        object: Arc::new(object),
        previous,
    })
}

fn record(collection: &Collection, event: &Event) -> Record {
    Record {
        revision: event.object.revision,
        collection: collection.resource.storage_path(),
        key: event.object.key.as_str().to_owned(),
        json: (event.kind != EventType::Deleted).then(|| event.object.json()),
        previous: event.previous.as_ref().map(|previous| Stored {
            revision: previous.revision,
            json: previous.json(),
        }),
    }
}
