//! The backend that forgets: the hub's own maps are the only copy.

use super::{Loaded, Record, Store, StoreError};

/// Keeps nothing; every cluster starts empty.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore;

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        Ok(Loaded::default())
    }

    fn append(&mut self, _record: Record) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_durable(&self) -> bool {
        false
    }
}
