//! The controllers on the embedded cluster in simulated time, with JobManagers that play Flink.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy sees as a test only what is in a test function"
)]

mod job_managers;
mod laws;
mod stories;
mod world;
