//! What a round about a FlinkSessionJob sees.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flink::FINALIZER_SESSION_JOB;
use longshore_core::Seen;
use longshore_flink_core::{
    conf::layers::OperatorConfig, spec::FlinkSessionJobSpec, status::FlinkSessionJobStatus,
};
use serde_json::Value;

use crate::{
    deployment::{self, SnapshotResource},
    kinds::FLINK_SESSION_JOB,
    resource::FlinkResource,
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
pub type Desired = FlinkResource<FlinkSessionJobSpec, FlinkSessionJobStatus>;

impl Desired {
    /// Reads a FlinkSessionJob.
    pub fn of(object: Value) -> Self {
        Self::read(object, FLINK_SESSION_JOB, FINALIZER_SESSION_JOB)
    }
}
