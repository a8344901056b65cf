//! Probes: what a container's health is found out by.
//!
//! [`wish`] reads them, [`health`] says what a series of outcomes means (pure), [`ask`] asks once, and
//! [`prober`] asks again and again while a container runs.

mod ask;
mod health;
mod prober;
mod wish;

pub(crate) use health::{Health, Verdict};
pub(crate) use prober::{Outcome, Probers};
pub(crate) use wish::{Kind, Probes};
