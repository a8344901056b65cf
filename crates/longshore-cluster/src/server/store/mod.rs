//! Where committed writes go: the one seam between the sequencer and durable media.
//!
//! Reads never come here: the hub answers them from memory. A backend only has to give back at
//! start what it was handed before, so that a file behind this trait needs no range queries and no
//! watches. Batches arrive from one thread, in the order of their revisions.

mod checksum;
mod file;
mod lock;
mod memory;
mod open;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;

pub use open::{Durability, OpenError};

pub(crate) use file::FileStore;
pub(crate) use memory::MemoryStore;

/// Most writes that may wait for the medium at once. A crash loses the revisions of these and no
/// others, so a store that was not closed counts on from its last write plus this.
pub(crate) const MAX_UNSTORED: u64 = 16_384;

/// One committed write, in the order of its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Global revision of this write.
    pub(crate) revision: u64,
    /// `group/plural`, the same for every version of a resource.
    pub(crate) collection: String,
    /// `namespace/name`, or `name` for objects of the whole cluster.
    pub(crate) key: String,
    /// The stored JSON; `None` when the object was deleted.
    pub(crate) json: Option<Bytes>,
    /// What was there before; `None` when the object is new.
    pub(crate) previous: Option<Stored>,
}

/// The JSON of an object, and the revision that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) revision: u64,
    pub(crate) json: Bytes,
}

/// How one write is taken back: the state of its object before it. The state after it is that
/// before the object's next write, or the current one, so an event costs no second copy of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Undo {
    pub(crate) revision: u64,
    pub(crate) key: String,
    pub(crate) previous: Option<Stored>,
}

/// What a backend has kept of one collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shelf {
    /// The objects that exist, by key.
    pub(crate) objects: BTreeMap<String, Stored>,
    /// The newest writes, oldest first.
    pub(crate) events: Vec<Undo>,
    /// Every write after this revision is in `events`.
    pub(crate) start: u64,
}

/// What a backend returns when the cluster starts.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The next write gets a revision above this; zero for a new cluster.
    pub(crate) revision: u64,
    /// No event up to this revision may be given out: some that were seen then are lost.
    pub(crate) floor: u64,
    /// By `group/plural`.
    pub(crate) shelves: BTreeMap<String, Shelf>,
}

/// Writes could not be made durable; nothing of them is visible.
#[derive(Debug, Clone, thiserror::Error)]
#[error("revision {revision} was not stored: {message}")]
pub(crate) struct StoreError {
    /// The first revision that was not taken.
    pub(crate) revision: u64,
    /// The error of the medium.
    pub(crate) message: String,
}

/// A log of committed writes.
pub(crate) trait Store: Send + 'static {
    /// Everything that was appended before, folded to the newest state.
    fn load(&mut self) -> Result<Loaded, OpenError>;

    /// Takes a batch of writes, all or none; it is on the medium when the call returns. After an
    /// error the store takes nothing any more.
    fn append(&mut self, batch: &[Record]) -> Result<(), StoreError>;

    /// Ends the store in good order; `revision` is the newest that was given out.
    fn close(&mut self, revision: u64) -> Result<(), StoreError>;

    /// Whether `append` wants records at all. The store in memory does not, and then the hub builds
    /// none.
    fn is_durable(&self) -> bool;
}
