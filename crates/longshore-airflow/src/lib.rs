//! Airflow's words, read and written exactly as Airflow 3.3 does.
//!
//! Everything in this crate is data and pure functions: no clock, no rows, no client, no async. Who schedules, stores or
//! serves these values is in other crates. What upstream makes of each value is recorded in `testdata`.

pub mod api;
pub mod config;
pub mod fernet;
pub mod pointer;
pub mod token;
pub mod worker;

pub use pointer::Pointer;
