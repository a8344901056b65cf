//! What a round about a FlinkStateSnapshot sees.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flink::{
    FINALIZER_STATE_SNAPSHOT, KIND_STATE_SNAPSHOT, LABEL_SNAPSHOT_TRIGGER_TYPE,
};
use longshore_core::{ObjectRef, Seen};
use longshore_flink_core::{
    conf::{
        layers::OperatorConfig,
        operator::{CheckpointType, SavepointFormatType},
    },
    spec::{FlinkStateSnapshotSpec, FlinkVersion, read_spec},
    status::{FlinkStateSnapshotStatus, JobState, read_status},
};
use longshore_k8s::metadata::is_deleting;
use serde_json::Value;

use crate::{
    deployment::model::{has_finalizer, instant, label, reference},
    kinds::FLINK_STATE_SNAPSHOT,
    rest::Heard,
};

/// A snapshot of all reads of one round.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Now.
    pub now: Timestamp,
    /// The FlinkStateSnapshot.
    pub wanted: Seen<Arc<Wanted>>,
    /// The job that it is of.
    pub job: Seen<Job>,
    /// What the JobManager has answered.
    pub heard: Heard,
    /// The configuration of the operator.
    pub operator: Arc<OperatorConfig>,
}

/// A FlinkStateSnapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
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
    /// What triggered it, where a label says so.
    pub trigger: Option<String>,
    /// The spec, or why it cannot be read.
    pub spec: Result<FlinkStateSnapshotSpec, String>,
    /// The status, or why it cannot be read.
    pub status: Result<FlinkStateSnapshotStatus, String>,
}

impl Wanted {
    /// Reads a FlinkStateSnapshot.
    pub fn of(object: Value) -> Self {
        let spec = read_spec(KIND_STATE_SNAPSHOT, object.get("spec"));
        let status = read_status(KIND_STATE_SNAPSHOT, object.get("status"));
        Self {
            target: reference(FLINK_STATE_SNAPSHOT, &object),
            generation: object["metadata"]["generation"].as_i64().unwrap_or(1),
            created_at: instant(&object["metadata"]["creationTimestamp"]),
            is_deleting: is_deleting(&object),
            has_finalizer: has_finalizer(&object, FINALIZER_STATE_SNAPSHOT),
            trigger: label(&object, LABEL_SNAPSHOT_TRIGGER_TYPE).map(str::to_owned),
            spec: spec.map_err(|error| longshore_core::error::chain(&error)),
            status: status.map_err(|error| longshore_core::error::chain(&error)),
            seen: Arc::new(object),
        }
    }
}

/// The job of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Host and port of the JobManager.
    pub address: String,
    /// The id of the job.
    pub id: Option<String>,
    /// The state of the job.
    pub state: Option<JobState>,
    /// The version of Flink.
    pub version: Option<FlinkVersion>,
    /// Where savepoints are written by default.
    pub savepoint_directory: Option<String>,
    /// The format of savepoints whose resource names none.
    pub savepoint_format: SavepointFormatType,
    /// What checkpoints hold.
    pub checkpoint_type: CheckpointType,
}

impl Job {
    /// Whether the job can be told to take a snapshot.
    pub fn is_running(&self) -> bool {
        self.state == Some(JobState::Running) && self.id.is_some()
    }
}
