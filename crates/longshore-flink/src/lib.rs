//! The controllers of the Flink operator: FlinkDeployments in native mode, FlinkSessionJobs, FlinkStateSnapshots.
//!
//! They work on the resources of the Apache Flink Kubernetes Operator, and write the same statuses, so that either of the
//! two can go on from where the other one stopped. The rules are in `longshore-flink-core`; this crate observes, decides
//! and acts. All state is in the status of the resources, which is the write-ahead log: an intent is on record before its
//! effect, the path of a savepoint before anything is deleted, and the id of a job before the job is started.
//!
//! Read [`deployment`] first, then [`rest`], which is how JobManagers are asked. [`FlinkOperator`] runs the controllers.
//!
//! # What is missing
//! * The JobManager's REST API over TLS; jars of session jobs from anywhere but HTTP and HTTPS, and with headers.
//! * The Ingress of a cluster, and `podTemplate` configuration files of the operator itself.
//! * In-place scaling, the autoscaler, standalone mode and blue/green deployments. A FlinkDeployment that asks for one of
//!   the middle two gets a Warning and a condition.
//! * Savepoints and checkpoints without resources of their own (`snapshot.resource.enabled: false`): those that a nonce or
//!   a schedule asks for are not triggered. Upgrades work.
//! * The exceptions of a job as Events, names and counts of Events as upstream has them, `total-cpu`, `total-memory` and
//!   `state-size` in `clusterInfo`.
//! * Propagation other than foreground for the deletion of a cluster, and canaries.
//! * Webhooks, metrics of upstream's names.

mod caches;
mod controller;
pub mod deployment;
mod draft;
mod error;
mod job;
mod kinds;
mod record;
mod resource;
pub mod rest;
mod rules;
mod service;
pub mod session_job;
mod settings;
pub mod snapshot;
mod stop;

pub use error::FlinkError;
pub use kinds::{
    DEPLOYMENT, FLINK_DEPLOYMENT, FLINK_SESSION_JOB, FLINK_STATE_SNAPSHOT, FlinkKey, SERVICE,
};
pub use record::{FlinkPlan, Record};
pub use resource::FlinkResource;
pub use rules::{RULES, RULES_OF_JOBS};
pub use service::{FlinkOperator, FlinkOptions};
