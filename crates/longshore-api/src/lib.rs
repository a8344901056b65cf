//! Wire types and every label, annotation, finalizer, condition and reason, by API group.

pub mod airflow;
pub mod dags;
