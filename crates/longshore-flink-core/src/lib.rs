//! The rules of Flink on Kubernetes, as pure functions.
//!
//! This crate knows the resources of the group `flink.apache.org/v1beta1` as the Apache Flink Kubernetes Operator reads
//! and writes them, and what follows from them. Everything in it is data and pure functions: no clock, no client, no
//! async. It must not know how a fact was observed, or how an effect is made.
//!
//! Read [`spec`] first, then [`status`].

pub mod conf;
pub mod cron;
pub mod diff;
pub mod health;
mod jackson;
pub mod json;
pub mod memory;
pub mod resources;
pub mod spec;
pub mod status;
pub mod triggers;
pub mod upgrade;
pub mod validate;
