//! The store, from outside: one suite for every engine, and what only files or only a server can show.

#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::panic,
    clippy::print_stdout,
    reason = "these are tests, helpers included"
)]

mod airflow;
mod asked;
mod catalog;
mod conflicts;
mod crash;
mod databases;
mod files;
mod group;
mod migrations;
mod model;
mod postgres;
mod samples;
mod schema;
mod server;
mod stores;
mod suite;
mod told;
