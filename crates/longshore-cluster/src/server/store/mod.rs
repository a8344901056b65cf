//! Where committed writes go: the one seam between the sequencer and durable media.
//!
//! Reads never come here: the hub answers them from memory. A backend only has to give back at start what it was
//! handed before, so that a file behind this trait needs no range queries and no watches.

mod memory;

use bytes::Bytes;

pub(crate) use memory::MemoryStore;

/// One committed write, in the order of its revision.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// Global revision of this write.
    pub(crate) revision: u64,
    /// `group/plural`, the same for every version of a resource.
    pub(crate) collection: String,
    /// `namespace/name`, or `name` for objects of the whole cluster.
    pub(crate) key: String,
    /// The stored JSON; `None` when the object was deleted.
    pub(crate) json: Option<Bytes>,
}

/// What a backend gives back when the cluster starts.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Revision of the last committed write, zero for a new cluster.
    pub(crate) revision: u64,
    /// The newest record of every object that still exists.
    pub(crate) objects: Vec<Record>,
}

/// A write could not be made durable; nothing of it is visible.
#[derive(Debug, thiserror::Error)]
#[error("the store refused revision {revision}: {message}")]
pub(crate) struct StoreError {
    /// The revision that was not taken.
    pub(crate) revision: u64,
    /// What the medium said.
    pub(crate) message: String,
}

/// A log of committed writes.
pub(crate) trait Store: Send + 'static {
    /// Everything that was appended before, folded to the newest state.
    fn load(&mut self) -> Result<Loaded, StoreError>;

    /// Takes one write; it is as durable as this backend promises when the call returns.
    fn append(&mut self, record: Record) -> Result<(), StoreError>;

    /// Whether `append` wants the record at all; memory does not, and then nobody builds one.
    fn is_durable(&self) -> bool;
}
