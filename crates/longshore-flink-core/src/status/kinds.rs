//! The statuses of the four kinds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{CommonStatus, Condition, JobStatus};
use crate::{
    json::Object,
    spec::{DesiredState, null_is_default},
};

/// A status that is not one of its kind. Nothing may be decided from it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the status of this {kind} cannot be read: expected one of flink.apache.org/v1beta1; correct the field that the cause \
     names, or run the operator that wrote it"
)]
pub struct UnreadableStatus {
    kind: &'static str,
    #[source]
    source: serde_json::Error,
}

/// Reads the status of an object of a kind; an absent one is that of a new object.
///
/// # Errors
/// A field has a value that upstream's CRD does not allow.
pub fn read_status<T: DeserializeOwned + Default>(
    kind: &'static str,
    status: Option<&Value>,
) -> Result<T, UnreadableStatus> {
    match status {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::deserialize(value).map_err(|source| UnreadableStatus { kind, source }),
    }
}

/// Key of `clusterInfo`: the version of Flink, as the JobManager says it.
pub const CLUSTER_INFO_VERSION: &str = "flink-version";
/// Key of `clusterInfo`: the commit of Flink, as the JobManager says it.
pub const CLUSTER_INFO_REVISION: &str = "flink-revision";
/// Key of `clusterInfo`: cores of the JobManager and its TaskManagers.
pub const CLUSTER_INFO_CPU: &str = "total-cpu";
/// Key of `clusterInfo`: memory of the JobManager and its TaskManagers, in bytes.
pub const CLUSTER_INFO_MEMORY: &str = "total-memory";
/// Key of `clusterInfo`: size of the job's state, in bytes.
pub const CLUSTER_INFO_STATE_SIZE: &str = "state-size";

/// The status of a FlinkDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlinkDeploymentStatus {
    /// What FlinkSessionJobs have as well.
    #[serde(flatten)]
    pub common: CommonStatus,
    /// Facts about the running cluster, for users.
    #[serde(deserialize_with = "null_is_default")]
    pub cluster_info: BTreeMap<String, String>,
    /// The JobManager's Deployment.
    #[serde(deserialize_with = "null_is_default")]
    pub job_manager_deployment_status: JobManagerStatus,
    /// For the subresource `scale`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_manager: Option<TaskManagerInfo>,
    /// None, or the one condition `Running`.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

impl FlinkDeploymentStatus {
    /// Whether the job can be cancelled: its state is known, it is not over, and the REST API serves.
    pub fn is_job_cancellable(&self) -> bool {
        let state = self.common.job_status.state;
        self.job_manager_deployment_status.is_rest_available()
            && state.is_some_and(super::JobState::is_cancellable)
    }
}

/// The status of a FlinkSessionJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlinkSessionJobStatus {
    /// What FlinkDeployments have as well.
    #[serde(flatten)]
    pub common: CommonStatus,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// The JobManager's Deployment, as it was last observed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobManagerStatus {
    /// Its REST API serves.
    Ready,
    /// It accepts connections, and gets a moment before it is asked anything.
    DeployedNotReady,
    /// It starts.
    Deploying,
    /// There is none.
    #[default]
    Missing,
    /// It cannot start.
    Error,
}

impl JobManagerStatus {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Ready,
        Self::DeployedNotReady,
        Self::Deploying,
        Self::Missing,
        Self::Error,
    ];

    /// Whether its REST API serves.
    pub const fn is_rest_available(self) -> bool {
        match self {
            Self::Ready => true,
            Self::DeployedNotReady | Self::Deploying | Self::Missing | Self::Error => false,
        }
    }

    /// The reason of the condition `Running` of a session cluster.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ready => "JobManagerReady",
            Self::DeployedNotReady => "DeployedNotReady",
            Self::Deploying => "JobManagerIsDeploying",
            Self::Missing => "JobManagerDeploymentMissing",
            Self::Error => "Error",
        }
    }

    /// The message of the condition `Running` of a session cluster.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Ready => "JobManager is running and ready to receive REST API calls",
            Self::DeployedNotReady => {
                "JobManager is running but not yet ready to receive REST API calls"
            }
            Self::Deploying => "JobManager process is starting up",
            Self::Missing => "JobManager deployment not found",
            Self::Error => "JobManager deployment failed",
        }
    }
}

/// TaskManagers for the subresource `scale`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskManagerInfo {
    /// Selects their pods; empty while the job does not run.
    #[serde(deserialize_with = "null_is_default")]
    pub label_selector: String,
    /// How many there are.
    #[serde(deserialize_with = "null_is_default")]
    pub replicas: i32,
}

impl TaskManagerInfo {
    /// Those of the cluster `name` whose job is, or is not, to run.
    pub fn of(name: &str, state: DesiredState, n_task_managers: i32) -> Self {
        match state {
            DesiredState::Running => Self {
                label_selector: format!("component=taskmanager,app={name}"),
                replicas: n_task_managers,
            },
            DesiredState::Suspended => Self::default(),
        }
    }
}

/// How many TaskManagers a parallelism needs. A number of slots below 1 counts as 1.
pub fn n_task_managers(parallelism: i32, slots: i32) -> i32 {
    let (parallelism, slots) = (i64::from(parallelism), i64::from(slots.max(1)));
    let rounded_up = -(-parallelism).div_euclid(slots);
    i32::try_from(rounded_up).unwrap_or(i32::MAX)
}

/// The status of a FlinkStateSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlinkStateSnapshotStatus {
    /// How far it is.
    #[serde(deserialize_with = "null_is_default")]
    pub state: SnapshotState,
    /// Id of the request at the JobManager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_id: Option<String>,
    /// When it was triggered (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_timestamp: Option<String>,
    /// When it ended (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_timestamp: Option<String>,
    /// Where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The last error: JSON of [`super::error_report`], or a plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How often it failed.
    #[serde(deserialize_with = "null_is_default")]
    pub failures: i32,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// How far a snapshot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SnapshotState {
    /// It is complete.
    Completed,
    /// It failed, and is tried again within its limit.
    Failed,
    /// It was triggered.
    InProgress,
    /// It is to be triggered.
    #[default]
    TriggerPending,
    /// Its job does not run.
    Abandoned,
}

impl SnapshotState {
    /// The state as the status and labels write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::InProgress => "IN_PROGRESS",
            Self::TriggerPending => "TRIGGER_PENDING",
            Self::Abandoned => "ABANDONED",
        }
    }
}

/// The status of a FlinkBlueGreenDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlinkBlueGreenDeploymentStatus {
    /// The job of both colours.
    #[serde(deserialize_with = "null_is_default")]
    pub job_status: JobStatus,
    /// How far the transition is; none before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blue_green_state: Option<BlueGreenState>,
    /// JSON of the spec, under the key `spec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reconciled_spec: Option<String>,
    /// When it was last reconciled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reconciled_timestamp: Option<String>,
    /// When the transition is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_timestamp: Option<String>,
    /// When the new colour was ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_ready_timestamp: Option<String>,
    /// Id of the request of the savepoint between the colours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub savepoint_trigger_id: Option<String>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// How far the transition between two colours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BlueGreenState {
    /// The first deployment, always of blue.
    InitializingBlue,
    /// Blue runs.
    ActiveBlue,
    /// Green runs.
    ActiveGreen,
    /// From green to blue.
    TransitioningToBlue,
    /// From blue to green.
    TransitioningToGreen,
    /// Of blue, before green starts.
    SavepointingBlue,
    /// Of green, before blue starts.
    SavepointingGreen,
}
