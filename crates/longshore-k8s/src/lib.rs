//! Values of Kubernetes, read and written exactly as kube-apiserver does.
//!
//! Every crate that reads such a value reads it here, so that two parts of Longshore never disagree about one text.
//! Everything in this crate is data and pure functions: no clock, no client, no async, no other crate of the workspace.
//! What upstream makes of each value is recorded in `testdata`.

pub mod backoff;
pub mod host_port;
pub mod int_or_percent;
pub mod metadata;
pub mod names;
pub mod quantity;
pub mod selector;

pub use backoff::Backoff;
pub use host_port::HostPort;
pub use int_or_percent::{IntOrPercent, InvalidIntOrPercent, Rounding};
pub use quantity::Quantity;
pub use selector::{InvalidSelector, Operator, Requirement, Selector};
