//! The executor on the embedded cluster, with a scripted node and in simulated time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy sees as a test only what is in a test function"
)]

mod laws;
mod plugin;
mod real_server;
mod stories;
mod tests;
mod world;
