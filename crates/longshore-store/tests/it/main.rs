//! The store, from outside: one suite for every engine, and what only files can show.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "these are tests, helpers included"
)]

mod conflicts;
mod crash;
mod files;
mod group;
mod model;
mod samples;
mod stores;
mod suite;
