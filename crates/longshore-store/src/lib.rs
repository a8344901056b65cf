//! Runs, task instances and the watch position, behind one trait; SQLite is the first engine.
//!
//! Read [`model`] for the rows and [`changes`] for the one way in which they change. [`Store`] keeps them: `writer`
//! takes what waits and commits it at once, `apply` turns one set of changes into statements, `query` reads, `rows`
//! knows the columns, `open` refuses what must not be opened, and `sqlite` alone knows the engine.

mod apply;
pub mod changes;
mod lock;
pub mod model;
mod off_clock;
mod open;
mod query;
mod rows;
mod sqlite;
mod store;
mod writer;

pub use changes::{Changes, RunFilter, RunStore, Snapshot, StoreError};
pub use model::*;
pub use open::OpenError;
pub use store::{Counters, Store};
