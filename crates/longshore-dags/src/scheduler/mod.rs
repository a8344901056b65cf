//! The pure heart: which run and which task instance moves, and why.
//!
//! The database is the write-ahead log and there is one scheduler per database, so the loop around this module is:
//! collect [`facts`], [`decide`](decide::decide) on them and the [`board`] (the committed state in memory), commit the
//! changes in one transaction, and only then change the board. A kill at any moment loses at most a round, which the
//! next process decides again.
//!
//! Read [`board`] and [`facts`] first, then [`decide`]; what may follow from what is listed in [`transitions`].

pub mod board;
pub mod clear;
pub(crate) mod controller;
pub mod decide;
pub mod facts;
pub mod identity;
pub(crate) mod inbox;
pub mod instances;
pub mod limits;
mod observe;
pub mod retry;
pub mod run_state;
pub mod shape;
pub mod transitions;
pub mod trigger_rule;
pub mod waits;
pub mod worker;

pub use board::{ActiveRun, Board, LoadError, TaskRef};
pub use clear::{Clearing, Selection, States};
pub use decide::{Limits, Observed, decide};
pub use facts::{Fact, LaunchChange, LaunchFact, NewRun};
pub use instances::{InstanceKey, Instances};
pub use waits::{RunWait, RunWaits};
pub use worker::{Started, TryEnd, WorkerAnswer, WorkerFact, WorkerReport};

#[cfg(test)]
mod tests;
