//! Airflow's scheduler and KubernetesExecutor: DAG files, runs, task instances, a pod per task instance.
//!
//! The way through: a file becomes a [`model::Dag`] (`document/`), a run and its task instances are rows of
//! `longshore-store`, `scheduler/` moves them (which task may start, what became of a pod), `pods/` makes and removes
//! the pods that the rows ask for.

pub mod model;
pub mod pods;
pub mod scheduler;
