//! Runs, task instances and the watch position, behind one trait; SQLite is the first engine.
//!
//! Read [`model`] for the rows and [`changes`] for the one way in which they change.

pub mod changes;
pub mod model;

pub use changes::{Changes, RunFilter, RunStore, Snapshot, StoreError};
pub use model::*;
