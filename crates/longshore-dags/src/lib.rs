//! Airflow's scheduler and KubernetesExecutor: DAG files, runs, task instances, a pod per task instance.
//!
//! The way through: a file becomes a [`model::Dag`] ([`document`]), a run and its task instances are rows of
//! `longshore-store`, [`scheduler`] moves them (which task may start, what became of a pod), [`launch`] makes and removes
//! what the rows ask for: [`pods`], or [`actions`] for tasks with a plugin. `runs` does so for what all pods of a run
//! share. [`timetable`] says when a DAG runs by itself, `catalog` which DAGs are known; [`parsing`], [`versions`],
//! [`secrets`] and [`workers`] are what DAGs from Python need beside that; [`execution`] answers their workers. `base` is
//! what all of them stand on, and [`service`] runs it all.

pub mod actions;
pub mod airflow;
mod base;
mod catalog;
pub mod document;
pub mod execution;
pub mod folder;
pub mod launch;
pub mod logs;
mod measures;
pub mod model;
pub mod parsing;
pub mod pods;
mod rules;
mod runs;
pub mod scheduler;
pub mod secrets;
pub mod service;
#[cfg(test)]
mod test_rows;
pub mod timetable;
pub mod versions;
pub mod workers;

pub use base::change::{Change, StateChange};
pub use catalog::KnownDag;
pub use measures::DagMeasures;
pub use rules::RULES;
pub use service::{
    Dags, DagsConfig, LeftRuns, RequestError, StartError, catalog::UnknownDag, clear::ClearError,
    pools::PoolError, workers::ReportError,
};
