//! A FlinkSessionJob that is being deleted: its job ends first.

use longshore_api::flink::{REASON_CLEANUP, REASON_CLEANUP_FAILED};
use longshore_core::EventType;
use longshore_flink_core::{
    conf::options,
    spec::{DesiredState, Spec, UpgradeMode},
    status::{ErrorType, JOB_NOT_FOUND, JobState, LifecycleState},
};

use super::{Case, Deciding, remove_finalizer, settled};
use crate::{
    job::{self, Sight},
    record::Trouble,
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
            "Cleaning up FlinkSessionJob",
        );
        draft.status.common.lifecycle_state = Some(LifecycleState::Deleting);
    }
    let is_over = is_over(case, draft)? || (case.cluster.is_some() && ends(case, draft)?);
    if is_over {
        return draft.act(remove_finalizer(case.desired));
    }
    draft.look_after(case.settings.progress_interval);
    Ok(())
}

/// Whether there is no job that could be ended.
fn is_over(case: &Case<'_>, draft: &Deciding<'_>) -> Result<bool, Trouble> {
    let common = draft.common();
    let job = case.reconciled.as_ref().and_then(|it| it.spec.job());
    let is_suspended = job.is_some_and(|job| job.state == DesiredState::Suspended);
    // A job that is being submitted is suspended in the record, and may run.
    let is_submitting = common.job_status.state == Some(JobState::Reconciling)
        && common.job_status.job_id.is_some();
    let is_lost = case.cluster.is_none() && !options::is_highly_available(&case.config)?;
    Ok(common.is_before_first_deployment()
        || common.is_job_terminal()
        || (is_suspended && !is_submitting)
        || common.error.as_deref() == Some(JOB_NOT_FOUND)
        || common.job_status.job_id.is_none()
        || case.cluster_spec.is_none()
        || is_lost)
}

/// Whether the job has ended.
fn ends(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<bool, Trouble> {
    if stop::is_pending(draft.common()) {
        return stops(case, draft);
    }
    match job::observe(draft, case.settings.progress_interval)? {
        Sight::Pending | Sight::Dark => return Ok(false),
        Sight::Missing => return Ok(true),
        Sight::Seen => {}
    }
    let state = draft.common().job_status.state;
    if draft.common().is_job_terminal() {
        return Ok(true);
    }
    let has_directory = case.settings.savepoint_directory.is_some();
    let is_wanted = case.settings.savepoint_on_deletion && has_directory;
    if is_wanted && state == Some(JobState::Running) {
        if let Some(wait) = stop::begin(draft, &case.settings, case.generation) {
            draft.look_after(wait);
            return Ok(false);
        }
        return stops(case, draft);
    }
    if state != Some(JobState::Cancelling) {
        settled::cancel(draft, UpgradeMode::Stateless)?;
    }
    Ok(false)
}

fn stops(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<bool, Trouble> {
    let sources = if case.settings.drains {
        Sources::Drained
    } else {
        Sources::Kept
    };
    let ended = stop::step(draft, &case.settings, sources)?;
    match &ended {
        Stop::UnderWay => Ok(false),
        Stop::Done(path) => {
            stop::stopped(draft, &case.settings, path);
            stop::clear(&mut draft.status.common, &ended);
            Ok(true)
        }
        Stop::Failed(message) => {
            stop::clear(&mut draft.status.common, &ended);
            draft.fail(ErrorType::Reconciliation, REASON_CLEANUP_FAILED, message);
            Ok(false)
        }
    }
}
