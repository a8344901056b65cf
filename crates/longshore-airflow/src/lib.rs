//! Airflow's words, read and written exactly as Airflow 3.3 does.
//!
//! Everything in this crate is data and pure functions: no clock, no rows, no client, no async. Who schedules, stores or
//! serves these values is in other crates. What upstream makes of each value is recorded in `testdata`.
//!
//! * [`serialized`]: the document that Airflow's parser makes of a DAG file.
//! * [`serde`]: values of XCom and of triggers, as far as a scheduler reads them.
//! * [`pointer`]: where in a document something is, for errors.

pub mod pointer;
pub mod serde;
pub mod serialized;

pub use pointer::{Place, Pointer};
