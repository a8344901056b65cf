//! What a round about a FlinkStateSnapshot sees.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flink::{FINALIZER_STATE_SNAPSHOT, LABEL_SNAPSHOT_TRIGGER_TYPE};
use longshore_core::Seen;
use longshore_flink_core::{
    conf::{
        layers::OperatorConfig,
        operator::{CheckpointType, SavepointFormatType},
    },
    spec::{FlinkStateSnapshotSpec, FlinkVersion},
    status::{FlinkStateSnapshotStatus, JobState},
};
use serde_json::Value;

use crate::{
    kinds::FLINK_STATE_SNAPSHOT,
    resource::{FlinkResource, label},
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
pub type Wanted = FlinkResource<FlinkStateSnapshotSpec, FlinkStateSnapshotStatus>;

impl Wanted {
    /// Reads a FlinkStateSnapshot.
    pub fn of(object: Value) -> Self {
        Self::read(object, FLINK_STATE_SNAPSHOT, FINALIZER_STATE_SNAPSHOT)
    }

    /// What triggered the snapshot, where a label says so.
    pub(crate) fn trigger(&self) -> Option<&str> {
        label(&self.seen, LABEL_SNAPSHOT_TRIGGER_TYPE)
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
