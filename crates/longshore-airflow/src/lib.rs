//! Airflow's words, read and written exactly as Airflow 3.3 does.
//!
//! Everything in this crate is data and pure functions: no clock, no rows, no client, no async. Who schedules, stores or
//! serves these values is in other crates. What upstream makes of each value is recorded in `testdata`.
//!
//! * [`serialized`]: the document that Airflow's parser makes of a DAG file.
//! * [`serde`]: values of XCom and of triggers, as far as a scheduler reads them.
//! * [`api`]: requests and answers of the Task Execution API, by version; [`token`]: what workers prove themselves with.
//! * [`parser`]: what the parser of DAG files is told, asks, and finds.
//! * [`worker`]: the workload of a worker, and its pod with labels and name.
//! * [`config`]: `airflow.cfg` and `AIRFLOW__*`; [`fernet`]: secrets of Airflow's database.
//! * [`pointer`]: where in a document something is, for errors.

pub mod api;
pub mod config;
pub mod fernet;
pub mod parser;
pub mod pointer;
pub mod serde;
pub mod serialized;
pub mod token;
pub mod worker;

pub use pointer::{Place, Pointer};
