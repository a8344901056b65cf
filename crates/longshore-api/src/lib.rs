//! Wire types and every label, annotation, finalizer, condition and reason, by API group.

pub mod airflow;
pub mod dags;
pub mod flink;
pub mod flyte;
pub mod node;
pub mod podops;
pub mod tasks;
pub mod uninstall;

/// The `reportingController` of an Event is this and the role that published it: `longshore.dev/dags`.
pub const REPORTING_CONTROLLER_PREFIX: &str = "longshore.dev/";
