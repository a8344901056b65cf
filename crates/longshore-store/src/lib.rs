//! Runs, task instances, DAGs and the watch position, in SQLite or Postgres.
//!
//! Read [`model`] for the rows and [`changes`] for the one way in which they change; [`catalog`] is what the service
//! shows, [`asked`] what workers ask, and [`told`] what workers and users write and read beside the scheduler;
//! [`heartbeats`] is when workers were heard. [`Store`] keeps it all: `writer` commits together the changes that wait together, `work` is what it is
//! asked to write, `readers` has the connections of all reads, `apply` turns one set of changes into statements,
//! `conflict` names the row that was in the way, `query` and `listing` read, `rows` knows the columns, `open` refuses
//! what must not be opened, `server` reads a database URL, and `engine` alone knows the two engines.

mod apply;
pub mod asked;
pub mod catalog;
pub mod changes;
mod conflict;
mod engine;
pub mod heartbeats;
mod listing;
mod lock;
pub mod model;
mod off_clock;
mod open;
mod open_error;
mod query;
mod readers;
mod rows;
mod server;
mod store;
pub mod told;
mod work;
mod writer;

pub use asked::{
    AskedStore, InstanceState, InstancesWanted, KnownTry, PreviousInstance, RunsWanted,
};
pub use catalog::{Catalog, ListedRun, RunCursor, RunFilter, TaskFilter};
pub use changes::{Changes, RunStore, Snapshot, StoreError};
pub use heartbeats::{Heartbeat, Heartbeats};
pub use model::*;
pub use open_error::OpenError;
pub use store::{Counters, Store};
pub use told::{
    Event, EventFilter, FromTry, JsonText, MappedLength, Rendered, Sealed, Shared,
    StoredConnection, StoredEvent, StoredVariable, TellError, ToldStore, VariableKeys, XCom,
    XComKey,
};
