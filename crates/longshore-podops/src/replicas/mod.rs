//! Pods that there should be and are not: a workload whose pod was deleted has yet to make the next one.
//!
//! StatefulSets and ReplicaSets say how many pods they are to have. A pod that does not exist serves no client, so that
//! a PodTransitionRule counts it as unavailable. Disruption budgets have it counted by their controller.

mod model;
mod workloads;

pub use model::{REPLICA_SET, STATEFUL_SET, Workload, missing};
pub(crate) use workloads::{Changed, Workloads};
