//! A FlinkDeployment that is being deleted: its cluster goes with it.

use longshore_api::flink::{REASON_CLEANUP, REASON_CLEANUP_FAILED};
use longshore_core::EventType;
use longshore_flink_core::{
    spec::{Spec, UpgradeMode},
    status::{ErrorType, JobState, LifecycleState},
};

use super::{Case, Deciding, cluster, remove_finalizer};
use crate::{
    draft::Reply,
    job,
    record::Trouble,
    rest::{RestAnswer, RestCall},
    stop::{self, Sources, Stop},
};

pub(super) fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if !case.desired.has_finalizer {
        return Ok(());
    }
    if draft.common().lifecycle_state != Some(LifecycleState::Deleting) {
        draft.announce(
            EventType::Normal,
            REASON_CLEANUP,
            "Cleaning up FlinkDeployment",
        );
        draft.status.common.lifecycle_state = Some(LifecycleState::Deleting);
    }
    if draft.common().is_before_first_deployment() {
        return end(case, draft);
    }
    let is_session = case.wanted.job().is_none();
    let is_clear = if is_session {
        are_jobs_gone(case, draft)?
    } else {
        is_saved(case, draft)?
    };
    if !is_clear {
        draft.look_after(case.settings.progress_interval);
        return Ok(());
    }
    match case.job_manager {
        Some(job_manager) if job_manager.is_of(case.uid()) => {
            cluster::remove(draft, job_manager, UpgradeMode::Stateless)
        }
        // Another resource's Deployment is none of this one's.
        Some(_) | None => end(case, draft),
    }
}

/// Nothing of the cluster is left but, perhaps, its metadata of high availability.
fn end(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let is_ours = !draft.common().is_before_first_deployment();
    if is_ours && !cluster::tidy(case, draft)? {
        return Ok(());
    }
    draft.act(remove_finalizer(case.desired))
}

/// Whether no savepoint is to be taken before the job goes, or it is there.
fn is_saved(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<bool, Trouble> {
    if !stop::is_pending(draft.common()) {
        let is_served = case
            .job_manager
            .is_some_and(|it| it.n_available > 0 && !it.is_deleting);
        let has_directory = case.settings.savepoint_directory.is_some();
        if !(case.settings.savepoint_on_deletion && has_directory && is_served) {
            return Ok(true);
        }
        if job::observe(draft, case.settings.progress_interval)? == job::Sight::Pending {
            return Ok(false);
        }
        // A job that does not run gives no savepoint, and the deletion ends all the same.
        if draft.common().job_status.state != Some(JobState::Running) {
            return Ok(true);
        }
        if let Some(wait) = stop::begin(draft, &case.settings, case.generation) {
            draft.look_after(wait);
            return Ok(false);
        }
    }
    if case.job_manager.is_none() {
        return Ok(true);
    }
    let sources = if case.settings.drains {
        Sources::Drained
    } else {
        Sources::Kept
    };
    match stop::step(draft, &case.settings, sources)? {
        Stop::UnderWay => Ok(false),
        Stop::Done(path) => {
            stop::stopped(draft, &case.settings, &path);
            stop::clear(&mut draft.status.common, &Stop::Done(path));
            Ok(true)
        }
        Stop::Failed(message) => {
            draft.fail(ErrorType::Reconciliation, REASON_CLEANUP_FAILED, &message);
            stop::clear(&mut draft.status.common, &Stop::Failed(message));
            Ok(false)
        }
    }
}

/// Whether no job keeps the session cluster.
fn are_jobs_gone(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<bool, Trouble> {
    let names = case.session_jobs;
    if case.settings.blocks_on_session_jobs && !names.is_empty() {
        let names = names.join(", ");
        let message = format!("The session jobs [{names}] should be deleted first");
        draft.fail(ErrorType::Reconciliation, REASON_CLEANUP_FAILED, &message);
        return Ok(false);
    }
    let is_served = case
        .job_manager
        .is_some_and(|it| it.n_available > 0 && !it.is_deleting);
    if !case.settings.blocks_on_unmanaged_jobs || !is_served {
        return Ok(true);
    }
    let again = case.settings.progress_interval;
    let jobs = match draft.consult(RestCall::Jobs, Some(again))? {
        Reply::Pending => return Ok(false),
        Reply::Said(RestAnswer::Jobs(jobs), _) => jobs,
        // A JobManager that does not answer keeps nothing alive: deletion ends.
        Reply::Said(..) | Reply::Failed { .. } => return Ok(true),
    };
    let alive = jobs.iter().filter(|it| !it.state.is_globally_terminal());
    let alive: Vec<&str> = alive.map(|it| it.id.as_str()).collect();
    if alive.is_empty() {
        return Ok(true);
    }
    let alive = alive.join(", ");
    let message = format!(
        "The session cluster has non terminated jobs [{alive}] that should be cancelled first"
    );
    draft.fail(ErrorType::Reconciliation, REASON_CLEANUP_FAILED, &message);
    Ok(false)
}
