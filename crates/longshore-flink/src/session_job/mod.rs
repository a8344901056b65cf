//! FlinkSessionJobs: jobs on the session cluster of a FlinkDeployment.
//!
//! [`decide`] is the controller as a pure function. A job is only ever submitted out of the reconciliation state
//! `UPGRADING`, under an id that the status has before: a JobManager takes no second job of that id, so that a submission
//! may be repeated.

mod controller;
mod decide;
mod model;
mod observe;
mod status;

pub(crate) use controller::SessionJobs;
pub use decide::decide;
pub use model::{Desired, Observed};
