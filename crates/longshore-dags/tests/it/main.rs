//! The scheduler with a scripted node: on the embedded cluster in simulated time, and on a real API server where the
//! test run has one.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy sees as a test only what is in a test function"
)]

mod airflow_files;
mod desk;
mod execution;
mod executor;
mod failed_pods;
mod laws;
mod logs;
mod memory_store;
mod pending;
mod plugins;
mod pools;
mod real_server;
mod recorded;
mod restart;
mod results;
mod scale;
mod scenarios;
mod schedules;
mod surroundings;
mod workers;
mod world;
