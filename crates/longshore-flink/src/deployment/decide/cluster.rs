//! The JobManager's Deployment: how it is observed (spec 6.3), and how a cluster is deleted (spec 9.8).

use std::time::Duration;

use longshore_api::flink::REASON_MISSING;
use longshore_core::{Action, Delete, ObjectRef};
use longshore_flink_core::{
    spec::UpgradeMode,
    status::{ErrorType, FlinkDeploymentStatus, JobManagerStatus, JobState, ReconciliationState},
};

use super::{Case, Deciding};
use crate::{
    deployment::{model::JobManager, status},
    draft::Reply,
    job,
    record::Trouble,
    rest::RestCall,
};

/// When a round looks again at a deletion, should nothing tell of its end.
const DELETION_AGAIN: Duration = Duration::from_secs(10);

/// Whether a JobManager can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It may answer.
    Open,
    /// There is none, or it does not serve yet.
    Closed,
}

/// Whether a Deployment is the one that the status tells of.
pub(super) fn is_current(job_manager: &JobManager, status: &FlinkDeploymentStatus) -> bool {
    let attempt = status::attempt(status);
    match (&job_manager.attempt, attempt) {
        (Some(made_by), Some(counts)) => made_by == counts,
        (Some(_), None) => false,
        // Another operator made it. While it deploys, the generation tells whether the deployment has arrived.
        (None, _) => match status.common.reconciliation_status.state {
            ReconciliationState::Deployed | ReconciliationState::RolledBack => true,
            ReconciliationState::Upgrading | ReconciliationState::RollingBack => {
                let recorded = status.common.observed_generation.unwrap_or(-1);
                let is_missing = status.job_manager_deployment_status == JobManagerStatus::Missing;
                is_missing && job_manager.generation == Some(recorded)
            }
        },
    }
}

/// The JobManager's Deployment, if it belongs to this resource.
pub(super) fn owned<'a>(case: &Case<'a>) -> Result<Option<&'a JobManager>, Trouble> {
    match case.job_manager {
        Some(job_manager) if !job_manager.is_of(case.uid()) => Err(Trouble::Foreign {
            name: job_manager.target.name.clone(),
        }),
        other => Ok(other),
    }
}

/// Observes the Deployment of a cluster that is to run.
pub(super) fn observe(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<Reach, Trouble> {
    let Some(job_manager) = owned(case)? else {
        missing(case, draft);
        return Ok(Reach::Closed);
    };
    if job_manager.is_deleting {
        lose_sight(case, draft);
        draft.look_after(DELETION_AGAIN);
        return Ok(Reach::Closed);
    }
    if job_manager.n_available > 0 {
        return Ok(Reach::Open);
    }
    lose_sight(case, draft);
    let failed = case.pods.iter().find_map(|pod| pod.failure.clone());
    let failed = failed.or_else(|| {
        let message = job_manager.failure.clone()?;
        Some(("FailedCreate", message))
    });
    match failed {
        Some((reason, message)) => {
            draft.status.job_manager_deployment_status = JobManagerStatus::Error;
            draft.fail(ErrorType::DeploymentFailed, reason, &message);
        }
        None => draft.status.job_manager_deployment_status = JobManagerStatus::Deploying,
    }
    draft.look_after(case.settings.progress_interval);
    Ok(Reach::Closed)
}

/// Nothing is known of the job any more. A session cluster has none.
fn lose_sight(case: &Case<'_>, draft: &mut Deciding<'_>) {
    if case.wanted.job.is_some() {
        job::lose_sight(draft);
    }
}

fn missing(case: &Case<'_>, draft: &mut Deciding<'_>) {
    let before = draft.status.job_manager_deployment_status;
    draft.status.job_manager_deployment_status = JobManagerStatus::Missing;
    // A cancellation of a job that is gone never ends.
    if draft.common().job_status.state == Some(JobState::Cancelling) {
        draft.status.common.job_status.state = Some(JobState::Reconciling);
    }
    lose_sight(case, draft);
    let was_there = match before {
        JobManagerStatus::Missing | JobManagerStatus::Error => false,
        JobManagerStatus::Ready
        | JobManagerStatus::DeployedNotReady
        | JobManagerStatus::Deploying => true,
    };
    if was_there {
        let message = "Missing JobManager deployment";
        draft.fail(ErrorType::MissingJobManager, REASON_MISSING, message);
    }
}

/// Deletes the Deployment, and with it all pods of the cluster. A job whose state is given up is cancelled first, where
/// that is possible: it removes what it has written.
pub(super) fn remove(
    draft: &mut Deciding<'_>,
    job_manager: &JobManager,
    mode: UpgradeMode,
) -> Result<(), Trouble> {
    draft.look_after(DELETION_AGAIN);
    if job_manager.is_deleting {
        return Ok(());
    }
    let is_served = job_manager.n_available > 0;
    if mode == UpgradeMode::Stateless && is_served && !is_cancelled(draft)? {
        return Ok(());
    }
    draft.act(Action::Delete(delete(job_manager.target.clone(), true)))
}

/// Whether the job was asked to cancel, or cannot be.
fn is_cancelled(draft: &mut Deciding<'_>) -> Result<bool, Trouble> {
    let job = &draft.common().job_status;
    let is_cancellable = job.state.is_some_and(JobState::is_cancellable);
    let Some(job) = job.job_id.clone().filter(|_| is_cancellable) else {
        return Ok(true);
    };
    Ok(match draft.consult(RestCall::Cancel { job }, None)? {
        Reply::Pending => false,
        Reply::Said(..) | Reply::Failed { .. } => true,
    })
}

/// Deletes the metadata of high availability. Whether there are none any more.
pub(super) fn tidy(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<bool, Trouble> {
    let mut is_tidy = true;
    for config_map in case.config_maps.iter().filter(|it| it.is_ha()) {
        is_tidy = false;
        if !config_map.is_deleting {
            draft.act(Action::Delete(delete(config_map.target.clone(), false)))?;
        }
    }
    if !is_tidy {
        draft.look_after(DELETION_AGAIN);
    }
    Ok(is_tidy)
}

fn delete(target: ObjectRef, waits_for_dependents: bool) -> Delete {
    Delete {
        target,
        resource_version: None,
        grace_period_seconds: None,
        waits_for_dependents,
    }
}
