//! The executor with a scripted node: on the embedded cluster in simulated time, and on a real API server where the
//! test run has one.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy sees as a test only what is in a test function"
)]

mod cache;
mod connectors;
mod flyte_sdk;
mod held;
mod large;
mod laws;
mod listed;
mod operators;
mod outputs;
mod plugin;
mod real_server;
mod serialized;
mod silent;
mod stories;
mod takeover;
mod tests;
mod troubled_store;
mod world;
