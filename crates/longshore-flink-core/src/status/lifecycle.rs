//! The summary of a status for users.

use serde::{Deserialize, Serialize};

use super::{
    CommonStatus, FlinkDeploymentStatus, FlinkSessionJobStatus, JobManagerStatus, JobState,
    ReconciliationState, UnreadableSpec,
};
use crate::spec::{DesiredState, FlinkDeploymentSpec, FlinkSessionJobSpec, Spec};

/// Part of the error of an upgrade that nobody but a user can finish.
pub const MESSAGE_MANUAL_RESTORE_REQUIRED: &str = "Manual restore required.";
/// Part of the error of an upgrade without any state to restore.
pub const MESSAGE_JOB_FINISHED_OR_DELETED: &str = "It is possible that the job has finished or terminally failed, or the \
                                                   configmaps have been deleted.";
/// Part of the errors of deployments that need the metadata of high availability.
pub const MESSAGE_HA_METADATA_NOT_AVAILABLE: &str = "HA metadata is not available";

/// The summary of a status for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LifecycleState {
    /// Nothing was deployed yet.
    Created,
    /// The job is suspended.
    Suspended,
    /// Another spec is being deployed.
    Upgrading,
    /// The spec is deployed; it is not yet known to run.
    Deployed,
    /// The spec is deployed and ran.
    Stable,
    /// The last stable spec is being deployed again.
    RollingBack,
    /// The last stable spec is deployed again.
    RolledBack,
    /// The job failed, or cannot be deployed.
    Failed,
    /// The resource is being deleted.
    Deleting,
    /// The resource is deleted.
    Deleted,
}

impl FlinkDeploymentStatus {
    /// The summary of this status (upstream: `CommonStatus.getLifecycleState`).
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn lifecycle_state(&self) -> Result<LifecycleState, UnreadableSpec> {
        let job_manager = Some(self.job_manager_deployment_status);
        lifecycle_state::<FlinkDeploymentSpec>(&self.common, job_manager)
    }
}

impl FlinkSessionJobStatus {
    /// The summary of this status (upstream: `CommonStatus.getLifecycleState`).
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn lifecycle_state(&self) -> Result<LifecycleState, UnreadableSpec> {
        lifecycle_state::<FlinkSessionJobSpec>(&self.common, None)
    }
}

fn lifecycle_state<S: Spec>(
    status: &CommonStatus,
    job_manager: Option<JobManagerStatus>,
) -> Result<LifecycleState, UnreadableSpec> {
    // Set by the clean-up and final: everything else is computed.
    if let Some(state @ (LifecycleState::Deleting | LifecycleState::Deleted)) =
        status.lifecycle_state
    {
        return Ok(state);
    }
    let error = status.error.as_deref().unwrap_or_default();
    let Some(reconciled) = status.reconciled::<S>()? else {
        return Ok(if error.is_empty() {
            LifecycleState::Created
        } else {
            LifecycleState::Failed
        });
    };
    let is_suspended = reconciled
        .spec
        .job()
        .is_some_and(|job| job.state == DesiredState::Suspended);
    let is_job_failed = status.job_status.state == Some(JobState::Failed);
    let is_failed = is_job_failed || is_beyond_recovery(job_manager, error);
    Ok(match status.reconciliation_status.state {
        ReconciliationState::Upgrading => LifecycleState::Upgrading,
        ReconciliationState::RollingBack => LifecycleState::RollingBack,
        ReconciliationState::Deployed | ReconciliationState::RolledBack if is_suspended => {
            LifecycleState::Suspended
        }
        ReconciliationState::Deployed | ReconciliationState::RolledBack if is_failed => {
            LifecycleState::Failed
        }
        ReconciliationState::RolledBack => LifecycleState::RolledBack,
        ReconciliationState::Deployed if status.is_stable() => LifecycleState::Stable,
        ReconciliationState::Deployed => LifecycleState::Deployed,
    })
}

/// Whether a cluster is gone and its error says that nothing brings it back.
fn is_beyond_recovery(job_manager: Option<JobManagerStatus>, error: &str) -> bool {
    let is_gone = match job_manager {
        Some(JobManagerStatus::Missing | JobManagerStatus::Error) => true,
        Some(
            JobManagerStatus::Ready
            | JobManagerStatus::DeployedNotReady
            | JobManagerStatus::Deploying,
        )
        | None => false,
    };
    let messages = [
        MESSAGE_MANUAL_RESTORE_REQUIRED,
        MESSAGE_JOB_FINISHED_OR_DELETED,
        MESSAGE_HA_METADATA_NOT_AVAILABLE,
    ];
    is_gone && messages.iter().any(|message| error.contains(message))
}
