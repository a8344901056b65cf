//! The shell around every pure controller: rounds, plans applied in order, caches that know our own writes, Events,
//! back-off, shutdown.
//!
//! Read [`controller`] first: it is the contract between a subsystem and this crate. [`runner`] runs it, [`apply`] does
//! its Kubernetes actions, [`ask`] asks foreign systems for it beside the rounds, [`memory`] is what it remembers of its
//! keys, [`wiring`] is the table of what it watches, [`cache`] shows it the world, and [`own_writes`] keeps it from deciding upon a world in which it
//! has not acted yet. [`lease`] lets one replica act at a time. [`metrics`] has what all of them count.

pub mod apply;
pub mod ask;
pub mod cache;
pub mod change;
pub mod clock;
mod contact;
pub mod controller;
mod count_requests;
mod events;
mod kind;
pub mod lease;
mod limit_writes;
pub mod list_watch;
pub mod memory;
pub mod metrics;
pub mod outcome;
pub mod own_writes;
pub mod parsed;
mod pause;
mod queue;
pub mod raw;
pub mod rbac;
mod repeated;
pub mod requests;
mod round;
mod round_writes;
pub mod runner;
pub mod spawn;
mod status;
pub mod tally;
pub mod wiring;

pub use apply::{Applier, ApplyError, Postponed, Refusal};
pub use ask::{Answers, AskLimits, Failures, KindLimits, RateLimit, Turn, Unanswered, WaitsFor};
pub use cache::{Cache, Update};
pub use change::{Change, NotDone, Verb};
pub use clock::{Clock, SystemClock};
pub use contact::{CUT_OFF, Contact, NoteAnswers};
pub use controller::{Controller, Key};
pub use count_requests::CountRequests;
pub use kind::api_resource;
pub use lease::{Elector, Electors, Gate, GateWrites};
pub use limit_writes::LimitWrites;
pub use list_watch::ListWatch;
pub use memory::{Memory, Notes};
pub use metrics::Metrics;
pub use outcome::{Counters, Outcome};
pub use own_writes::{CacheFeed, OwnWrites};
pub use parsed::Parsed;
pub use raw::RawObject;
pub use rbac::{Grant, Reach, Rule};
pub use repeated::Repeated;
pub use requests::{Answer, ApiError, Requests};
pub use runner::Runner;
pub use spawn::Tasks;
pub use tally::{Counted, Tally};
pub use wiring::{Definition, Kind, Namespaces, Referrers, Router, Wiring};
