//! The backend without durability: the hub's own maps are the only copy.

use super::{Loaded, OpenError, Record, Store, StoreError};

/// Keeps nothing; every cluster starts empty.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore;

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Loaded, OpenError> {
        Ok(Loaded::default())
    }

    fn append(&mut self, _batch: &[Record]) -> Result<(), StoreError> {
        Ok(())
    }

    fn close(&mut self, _revision: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_durable(&self) -> bool {
        false
    }
}
