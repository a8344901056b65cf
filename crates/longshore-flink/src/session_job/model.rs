//! What a round about a FlinkSessionJob sees.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flink::{FINALIZER_SESSION_JOB, KIND_SESSION_JOB};
use longshore_core::{ObjectRef, Seen};
use longshore_flink_core::{
    conf::layers::OperatorConfig,
    spec::{FlinkSessionJobSpec, read_spec},
    status::{FlinkSessionJobStatus, read_status},
};
use longshore_k8s::metadata::is_deleting;
use serde_json::Value;

use crate::{
    deployment::{
        self, SnapshotResource,
        model::{has_finalizer, instant, reference},
    },
    kinds::FLINK_SESSION_JOB,
    rest::Heard,
};

/// A snapshot of all reads of one round.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Now.
    pub now: Timestamp,
    /// The FlinkSessionJob.
    pub desired: Seen<Arc<Desired>>,
    /// The FlinkDeployment of its session cluster.
    pub cluster: Seen<Arc<deployment::Desired>>,
    /// The FlinkStateSnapshots of the job.
    pub snapshots: Seen<Vec<Arc<SnapshotResource>>>,
    /// What the JobManager has answered.
    pub heard: Heard,
    /// The configuration of the operator.
    pub operator: Arc<OperatorConfig>,
}

/// A FlinkSessionJob.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The object.
    pub target: ObjectRef,
    /// The object as it was read.
    pub seen: Arc<Value>,
    /// The generation of the spec.
    pub generation: i64,
    /// When the object was created.
    pub created_at: Timestamp,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
    /// Whether the finalizer of this controller is there.
    pub has_finalizer: bool,
    /// The spec, or why it cannot be read.
    pub spec: Result<FlinkSessionJobSpec, String>,
    /// The status, or why it cannot be read.
    pub status: Result<FlinkSessionJobStatus, String>,
}

impl Desired {
    /// Reads a FlinkSessionJob.
    pub fn of(object: Value) -> Self {
        let spec = read_spec(KIND_SESSION_JOB, object.get("spec"));
        let status = read_status(KIND_SESSION_JOB, object.get("status"));
        Self {
            target: reference(FLINK_SESSION_JOB, &object),
            generation: object["metadata"]["generation"].as_i64().unwrap_or(1),
            created_at: instant(&object["metadata"]["creationTimestamp"]),
            is_deleting: is_deleting(&object),
            has_finalizer: has_finalizer(&object, FINALIZER_SESSION_JOB),
            spec: spec.map_err(|error| longshore_core::error::chain(&error)),
            status: status.map_err(|error| longshore_core::error::chain(&error)),
            seen: Arc::new(object),
        }
    }
}
