//! What was last observed and reconciled: the statuses of the kinds (spec 2).
//!
//! The status is the write-ahead log of this subsystem, and upstream must be able to go on from it, as this crate goes on
//! from upstream's. Fields that are not known survive.

mod condition;
mod error;
mod kinds;
mod labels;
mod lifecycle;
mod reconciled;
#[cfg(test)]
mod tests;
mod transitions;

pub use condition::{Condition, running_condition};
pub use error::{
    Cause, ErrorLimits, ErrorType, InvalidLabelMapper, JOB_NOT_FOUND, LabelMapper, error_report,
};
pub use kinds::{
    BlueGreenState, CLUSTER_INFO_CPU, CLUSTER_INFO_MEMORY, CLUSTER_INFO_REVISION,
    CLUSTER_INFO_STATE_SIZE, CLUSTER_INFO_VERSION, FlinkBlueGreenDeploymentStatus,
    FlinkDeploymentStatus, FlinkSessionJobStatus, FlinkStateSnapshotStatus, JobManagerStatus,
    SnapshotState, TaskManagerInfo, UnreadableStatus, n_task_managers, read_status,
};
pub use labels::snapshot_labels;
pub use lifecycle::{
    LifecycleState, MESSAGE_HA_METADATA_NOT_AVAILABLE, MESSAGE_JOB_FINISHED_OR_DELETED,
    MESSAGE_MANUAL_RESTORE_REQUIRED,
};
pub use reconciled::{ReconciledSpec, ReconciliationMetadata, UnreadableSpec};
pub use transitions::{SnapshotKind, Target};

use serde::{Deserialize, Serialize};

use crate::{
    json::Object,
    spec::{SavepointFormat, null_is_default},
};

/// The savepoint path that is recorded where a job was restored from the metadata of high availability: no path. It keeps
/// a job from starting empty when these metadata have disappeared.
pub const LAST_STATE_PATH: &str = "KUBERNETES_OPERATOR_LAST_STATE";

/// What the statuses of FlinkDeployments and FlinkSessionJobs have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommonStatus {
    /// The job as it was last observed.
    #[serde(deserialize_with = "null_is_default")]
    pub job_status: JobStatus,
    /// The last error: JSON of [`error_report`], or a plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The generation of the spec that was last reconciled, or whose deployment was last attempted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// A summary for users, computed from the other fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle_state: Option<LifecycleState>,
    /// What was deployed.
    #[serde(deserialize_with = "null_is_default")]
    pub reconciliation_status: ReconciliationStatus,
}

/// What was deployed, and how far the deployment of another spec is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReconciliationStatus {
    /// When it last changed, in milliseconds since 1970.
    #[serde(deserialize_with = "null_is_default")]
    pub reconciliation_timestamp: i64,
    /// Text of a [`ReconciledSpec`]: what was last deployed, or is being deployed. None before the first deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reconciled_spec: Option<String>,
    /// The text of the last one that is known to run: what a rollback returns to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_stable_spec: Option<String>,
    /// How far it is.
    #[serde(deserialize_with = "null_is_default")]
    pub state: ReconciliationState,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// How far the deployment of a spec is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReconciliationState {
    /// The last reconciled spec is deployed.
    Deployed,
    /// It is to be deployed; whether it is, the cluster shows.
    #[default]
    Upgrading,
    /// The last stable spec is to be deployed again.
    RollingBack,
    /// The last stable spec is deployed again.
    RolledBack,
}

/// A job as it was last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// Its id, 32 hexadecimal digits. Recorded before the job is submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// Its state; none before anything is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// When it started, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// When its state last changed, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_time: Option<String>,
    /// What the next deployment restores, or [`LAST_STATE_PATH`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_savepoint_path: Option<String>,
    /// Savepoints without resources of their own. Deprecated upstream.
    #[serde(deserialize_with = "null_is_default")]
    pub savepoint_info: SavepointInfo,
    /// Checkpoints without resources of their own. Deprecated upstream.
    #[serde(deserialize_with = "null_is_default")]
    pub checkpoint_info: CheckpointInfo,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

impl JobStatus {
    /// The path of the state that the job left: that of the last stop, else that of the last savepoint of the history.
    pub fn last_savepoint(&self) -> Option<&str> {
        let in_history = self.savepoint_info.last_savepoint.as_ref();
        let in_history = in_history.and_then(|it| it.location.as_deref());
        self.upgrade_savepoint_path.as_deref().or(in_history)
    }

    /// When the job started, in milliseconds since 1970.
    pub fn started_at_ms(&self) -> Option<i64> {
        self.start_time.as_deref()?.parse().ok()
    }
}

/// The state of a job, as Flink's REST API names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobState {
    /// It was created, or not all of its tasks run yet.
    Created,
    /// Its JobMaster starts.
    Initializing,
    /// It runs.
    Running,
    /// It is about to fail.
    Failing,
    /// It failed and does not restart.
    Failed,
    /// It is about to be cancelled.
    Cancelling,
    /// It was cancelled.
    Canceled,
    /// It ended by itself, or stopped with a savepoint.
    Finished,
    /// It restarts after a failure.
    Restarting,
    /// Flink lost it; another JobManager may run it.
    Suspended,
    /// Its state is not known.
    Reconciling,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 11] = [
        Self::Created,
        Self::Initializing,
        Self::Running,
        Self::Failing,
        Self::Failed,
        Self::Cancelling,
        Self::Canceled,
        Self::Finished,
        Self::Restarting,
        Self::Suspended,
        Self::Reconciling,
    ];

    /// The state as the status and Events write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Initializing => "INITIALIZING",
            Self::Running => "RUNNING",
            Self::Failing => "FAILING",
            Self::Failed => "FAILED",
            Self::Cancelling => "CANCELLING",
            Self::Canceled => "CANCELED",
            Self::Finished => "FINISHED",
            Self::Restarting => "RESTARTING",
            Self::Suspended => "SUSPENDED",
            Self::Reconciling => "RECONCILING",
        }
    }

    /// Whether the job is over everywhere, so that nothing changes this state any more.
    pub const fn is_globally_terminal(self) -> bool {
        match self {
            Self::Failed | Self::Canceled | Self::Finished => true,
            Self::Created
            | Self::Initializing
            | Self::Running
            | Self::Failing
            | Self::Cancelling
            | Self::Restarting
            | Self::Suspended
            | Self::Reconciling => false,
        }
    }

    /// Whether the job can be cancelled: its state is known, and it is not over.
    pub fn is_cancellable(self) -> bool {
        !self.is_globally_terminal() && self != Self::Reconciling
    }
}

/// Savepoints that have no resources of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SavepointInfo {
    /// The last one that is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_savepoint: Option<Savepoint>,
    /// Id of the request of a pending one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_id: Option<String>,
    /// When the pending one was triggered, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_timestamp: Option<i64>,
    /// What triggered the pending one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_type: Option<TriggerType>,
    /// Format of the pending one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format_type: Option<SavepointFormat>,
    /// The complete ones, the oldest first.
    #[serde(deserialize_with = "null_is_default")]
    pub savepoint_history: Vec<Savepoint>,
    /// When the last periodic one was triggered, in milliseconds since 1970; 0 for never.
    #[serde(deserialize_with = "null_is_default")]
    pub last_periodic_savepoint_timestamp: i64,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// Checkpoints that have no resources of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckpointInfo {
    /// The last one that is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checkpoint: Option<Checkpoint>,
    /// Id of the request of a pending one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_id: Option<String>,
    /// When the pending one was triggered, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_timestamp: Option<i64>,
    /// What triggered the pending one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_type: Option<TriggerType>,
    /// Format of the pending one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format_type: Option<CheckpointFormat>,
    /// When the last periodic one was triggered, in milliseconds since 1970; 0 for never.
    #[serde(deserialize_with = "null_is_default")]
    pub last_periodic_checkpoint_timestamp: i64,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// A complete savepoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Savepoint {
    /// When it was triggered, in milliseconds since 1970.
    #[serde(deserialize_with = "null_is_default")]
    pub time_stamp: i64,
    /// Where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// What triggered it.
    #[serde(deserialize_with = "null_is_default")]
    pub trigger_type: TriggerType,
    /// Its format.
    #[serde(deserialize_with = "null_is_default")]
    pub format_type: SavepointFormat,
    /// The nonce that triggered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_nonce: Option<i64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// A complete checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Checkpoint {
    /// When it was triggered, in milliseconds since 1970.
    #[serde(deserialize_with = "null_is_default")]
    pub time_stamp: i64,
    /// What triggered it.
    #[serde(deserialize_with = "null_is_default")]
    pub trigger_type: TriggerType,
    /// Its format.
    #[serde(deserialize_with = "null_is_default")]
    pub format_type: CheckpointFormat,
    /// The nonce that triggered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_nonce: Option<i64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// What triggered a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TriggerType {
    /// A nonce, or a resource that a user created.
    Manual,
    /// An interval or a schedule.
    Periodic,
    /// An upgrade.
    Upgrade,
    /// Not recorded.
    #[default]
    Unknown,
}

impl TriggerType {
    /// The type as the status and labels write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "MANUAL",
            Self::Periodic => "PERIODIC",
            Self::Upgrade => "UPGRADE",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// The format of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CheckpointFormat {
    /// The whole state.
    Full,
    /// What changed since the last one.
    Incremental,
    /// Not recorded.
    #[default]
    Unknown,
}
