//! Probes: they determine the health of a container.
//!
//! [`wish`] parses them, [`health`] says what a series of outcomes means (pure), [`ask`] runs one
//! probe once ([`http`] and [`grpc`] speak the protocols), and [`prober`] repeats that while a container runs.

mod ask;
mod grpc;
mod health;
mod http;
mod prober;
mod wish;

pub(crate) use ask::{Accepted, ask};
pub(crate) use health::{Health, Verdict};
pub(crate) use prober::{Outcome, Probers};
pub(crate) use wish::{Kind, Probes, Question};
