//! The shell around every pure controller: rounds, plans applied in order, caches that know our own writes, Events,
//! back-off, shutdown.
//!
//! Read [`controller`] first: it is the contract between a subsystem and this crate.

pub mod clock;
pub mod controller;

pub use clock::{Clock, SystemClock};
pub use controller::{Controller, Key};
