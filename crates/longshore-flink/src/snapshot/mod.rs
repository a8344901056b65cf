//! FlinkStateSnapshots: one savepoint or checkpoint each (spec 10.6).
//!
//! [`decide`] is the controller as a pure function. [`resource`] is what the controllers of jobs make of snapshots: those
//! that are due, and those that are too many.

mod controller;
mod decide;
pub(crate) mod due;
mod model;
mod observe;
mod resource;
mod status;

pub(crate) use controller::Snapshots;
pub use decide::decide;
pub use model::{Job, Observed, Wanted};
