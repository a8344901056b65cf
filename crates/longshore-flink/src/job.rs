//! How a job is observed (spec 6.4, 10.3), of application clusters and of session clusters.
//!
//! A state that is final is recorded together with the path of the state that the job left: whoever finds such a record
//! knows that nothing newer exists.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::flink::{
    REASON_CHECKPOINT_NOT_FOUND, REASON_ERROR, REASON_JOB_STATUS_CHANGED, REASON_MISSING,
    REASON_SPEC_CHANGED, REASON_SUSPENDED,
};
use longshore_core::EventType;
use longshore_flink_core::{
    spec::{Spec, UpgradeMode},
    status::{
        Cause, CommonStatus, ErrorType, JOB_NOT_FOUND, JobState, ReconciliationState, error_report,
    },
    upgrade::{CheckpointAge, CheckpointTimes, LastSnapshot, Suspend},
};

use crate::{
    draft::{Draft, Reply, RunsJob},
    record::Trouble,
    rest::{Checkpoints, FailureCause, JobOverview, RestAnswer, RestCall},
    settings::Settings,
};

/// From one request to cancel a job to the next, while the job does not end.
const CANCEL_AGAIN: Duration = Duration::from_secs(10);

/// The spec, its job restored in this way.
pub(crate) fn restored_by<S: Spec>(spec: &S, mode: UpgradeMode) -> S {
    let mut spec = spec.clone();
    if let Some(job) = spec.job_mut() {
        job.upgrade_mode = mode;
    }
    spec
}

/// Events about an upgrade that begins.
pub(crate) fn announce_upgrade<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    changes: Option<String>,
    suspend: Suspend,
) {
    if let Some(changes) = changes {
        draft.announce(EventType::Normal, REASON_SPEC_CHANGED, changes);
    }
    if suspend != Suspend::Noop {
        let note = "Suspending existing deployment.";
        draft.announce(EventType::Normal, REASON_SUSPENDED, note);
    }
}

/// What came of a look at a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The JobManager has not answered yet.
    Pending,
    /// The job was seen.
    Seen,
    /// The JobManager does not know the job.
    Missing,
    /// The JobManager does not answer.
    Dark,
}

/// What is known of the state that a job left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastState {
    /// The path of the status leads to it.
    Path,
    /// There is none: the job started without state, and completed no snapshot.
    Empty,
    /// Where it is, is not known.
    Unknown,
}

/// Looks at the job of the status, so long after the last look.
pub(crate) fn observe<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    again: Duration,
) -> Result<Sight, Trouble> {
    let Some(id) = draft.common().job_status.job_id.clone() else {
        return Ok(Sight::Dark);
    };
    let jobs = match draft.consult(RestCall::Jobs, Some(again))? {
        Reply::Said(RestAnswer::Jobs(jobs), _) => jobs,
        Reply::Pending | Reply::Said(..) => return Ok(Sight::Pending),
        Reply::Failed { .. } => {
            lose_sight(draft);
            return Ok(Sight::Dark);
        }
    };
    match jobs.iter().find(|it| it.id == id) {
        Some(job) => see(draft, job),
        None => {
            miss(draft);
            Ok(Sight::Missing)
        }
    }
}

/// Nothing is known of a job any more, unless it is over or about to be.
pub(crate) fn lose_sight<S: RunsJob>(draft: &mut Draft<'_, S>) {
    let job = &mut draft.status.common_mut().job_status;
    let is_final = |it: JobState| it.is_globally_terminal() || it == JobState::Cancelling;
    if !job.state.is_some_and(is_final) {
        job.state = Some(JobState::Reconciling);
    }
}

fn miss<S: RunsJob>(draft: &mut Draft<'_, S>) {
    // A JobManager forgets jobs some time after their end.
    if draft.common().is_job_terminal() {
        return;
    }
    draft.status.common_mut().job_status.state = Some(JobState::Reconciling);
    draft.fail_as(JOB_NOT_FOUND.to_owned(), REASON_MISSING, JOB_NOT_FOUND);
}

fn see<S: RunsJob>(draft: &mut Draft<'_, S>, job: &JobOverview) -> Result<Sight, Trouble> {
    let before = draft.common().job_status.state;
    let is_over = job.state.is_globally_terminal();
    let is_cancelled = before == Some(JobState::Cancelling);
    if is_cancelled && !is_over {
        let job = job.id.clone();
        draft.consult(RestCall::Cancel { job }, Some(CANCEL_AGAIN))?;
        return Ok(Sight::Seen);
    }
    let is_news = before != Some(job.state);
    let mut last = None;
    if is_over && is_news {
        // Everything is known before anything of it is recorded.
        if !is_told(draft, job)? {
            return Ok(Sight::Pending);
        }
        last = last_state(draft, &job.id)?;
        if last.is_none() {
            return Ok(Sight::Pending);
        }
        explain(draft, job)?;
    }
    update(draft, job, before);
    if let Some(last) = last
        && (is_cancelled || job.state == JobState::Canceled)
    {
        let common = suspended::<S::Spec>(draft.common(), last)?;
        draft.set_common(common);
    }
    let common = draft.common().after_job_observed::<S::Spec>()?;
    draft.set_common(common);
    Ok(Sight::Seen)
}

fn update<S: RunsJob>(draft: &mut Draft<'_, S>, job: &JobOverview, before: Option<JobState>) {
    let now_ms = draft.now().as_millisecond();
    let status = &mut draft.status.common_mut().job_status;
    status.job_name = Some(job.name.clone());
    status.start_time = Some(job.start_time_ms.to_string());
    if before == Some(job.state) {
        return;
    }
    status.state = Some(job.state);
    status.update_time = Some(now_ms.to_string());
    let before = before.unwrap_or(JobState::Reconciling).as_str();
    let after = job.state.as_str();
    let note = format!("Job status changed from {before} to {after}");
    draft.announce(EventType::Normal, REASON_JOB_STATUS_CHANGED, note);
}

/// A job that was cancelled, by this operator or by somebody else: what was reconciled is suspended, and the next
/// deployment restores what the job left.
fn suspended<T: Spec>(common: &CommonStatus, last: LastState) -> Result<CommonStatus, Trouble> {
    let restore = match last {
        LastState::Path | LastState::Unknown => UpgradeMode::Savepoint,
        LastState::Empty => UpgradeMode::Stateless,
    };
    let state: ReconciliationState = common.reconciliation_status.state;
    let mut next = common.cancelling::<T>(restore)?.job_suspended::<T>()?;
    next.reconciliation_status.state = state;
    Ok(next)
}

/// Where the state is that a job left; `None` where that is not known yet. The path goes into the status.
pub(crate) fn last_state<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    job: &str,
) -> Result<Option<LastState>, Trouble> {
    let job = job.to_owned();
    let found = match draft.consult(RestCall::Checkpoints { job }, None)? {
        Reply::Said(RestAnswer::Checkpoints(found), _) => found,
        Reply::Pending | Reply::Said(..) => return Ok(None),
        Reply::Failed { message, .. } => {
            let what = format!("the job is over, and its checkpoints are not known: {message}");
            draft.standing.blocked = Some(what);
            return Ok(None);
        }
    };
    let known = &mut draft.status.common_mut().job_status;
    let last = classify(found, known.last_savepoint().is_some());
    match (last, found.newest().and_then(|it| it.path.as_ref())) {
        (LastState::Path, Some(path)) => known.upgrade_savepoint_path = Some(path.clone()),
        // What the job was to restore is still the newest.
        (LastState::Path, None) => {}
        (LastState::Empty | LastState::Unknown, _) => known.upgrade_savepoint_path = None,
    }
    if last == LastState::Unknown {
        let message = "The newest checkpoint of the job has no external path: expected \
                       execution.checkpointing.dir to be set";
        draft.fail(
            ErrorType::UpgradeFailure,
            REASON_CHECKPOINT_NOT_FOUND,
            message,
        );
    }
    Ok(Some(last))
}

/// What checkpoints of a job say about the state that it left. `has_start` is whether it was to restore something.
fn classify(found: &Checkpoints, has_start: bool) -> LastState {
    match found.newest() {
        Some(newest) if newest.path.is_some() => LastState::Path,
        Some(_) => LastState::Unknown,
        None if found.n_completed > 0 => LastState::Unknown,
        None if has_start => LastState::Path,
        None => LastState::Empty,
    }
}

/// What is known of the state that the job left, for an upgrade; `None` where an answer is missing. `is_reachable` is
/// whether the JobManager can be asked.
pub(crate) fn last_snapshot<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    is_reachable: bool,
) -> Result<Option<LastSnapshot>, Trouble> {
    let status = &draft.common().job_status;
    let is_known = !draft.common().is_job_terminal() || status.last_savepoint().is_some();
    let job = status.job_id.clone().filter(|_| is_reachable && !is_known);
    let Some(job) = job else {
        return Ok(Some(LastSnapshot::of(&draft.common().job_status, false)));
    };
    let last = last_state(draft, &job)?;
    let is_empty = last == Some(LastState::Empty);
    Ok(last.map(|_| LastSnapshot::of(&draft.common().job_status, is_empty)))
}

/// How old the newest checkpoint is, where a limit asks for that; `None` where an answer is missing.
pub(crate) fn checkpoint_age<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    settings: &Settings,
) -> Result<Option<CheckpointAge>, Trouble> {
    let status = &draft.common().job_status;
    let is_running = status.state == Some(JobState::Running);
    let (Some(limit), true, Some(job), Some(started_ms)) = (
        settings.last_state_max_age,
        is_running,
        status.job_id.clone(),
        status.started_at_ms(),
    ) else {
        return Ok(Some(CheckpointAge::Young));
    };
    let again = settings.progress_interval;
    let found = match draft.consult(RestCall::Checkpoints { job }, Some(again))? {
        Reply::Said(RestAnswer::Checkpoints(found), _) => found,
        Reply::Pending | Reply::Said(..) | Reply::Failed { .. } => return Ok(None),
    };
    let instant = |ms: i64| Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    let times = CheckpointTimes {
        started_at: instant(started_ms),
        completed_at: found.completed.as_ref().map(|it| instant(it.at_ms)),
        pending_at: found.pending_at_ms.map(instant),
    };
    Ok(Some(CheckpointAge::of(&times, Some(limit), draft.now())))
}

/// Whether the JobManager has told of a job that is over what it left, and why it failed, or does not tell.
fn is_told<S: RunsJob>(draft: &mut Draft<'_, S>, job: &JobOverview) -> Result<bool, Trouble> {
    let id = job.id.clone();
    let left = draft.consult(RestCall::Checkpoints { job: id.clone() }, None)?;
    let mut is_told = !matches!(left, Reply::Pending);
    if job.state == JobState::Failed {
        let cause = draft.consult(RestCall::FailureCause { job: id }, None)?;
        is_told &= !matches!(cause, Reply::Pending);
    }
    Ok(is_told)
}

/// The error of a job that failed.
fn explain<S: RunsJob>(draft: &mut Draft<'_, S>, job: &JobOverview) -> Result<(), Trouble> {
    if job.state != JobState::Failed {
        return Ok(());
    }
    let call = RestCall::FailureCause {
        job: job.id.clone(),
    };
    match draft.consult(call, None)? {
        Reply::Pending => {}
        Reply::Said(RestAnswer::FailureCause(Some(cause)), _) => {
            let cause = in_status(cause);
            let wording = draft.of.wording;
            let report = error_report(&cause, &[], wording.limits, &wording.labels);
            let message = cause.message.unwrap_or_default();
            draft.fail_as(report, REASON_ERROR, &message);
        }
        Reply::Said(..) | Reply::Failed { .. } => {
            let message = "The job failed, and its JobManager does not say why.";
            draft.fail(ErrorType::Reconciliation, REASON_ERROR, message);
        }
    }
    Ok(())
}

fn in_status(cause: &FailureCause) -> Cause {
    let first = cause.stack_trace.lines().next().unwrap_or_default();
    let message = first.split_once(": ").map_or(first, |(_, message)| message);
    Cause {
        class: cause.class.clone(),
        message: Some(message.to_owned()),
        stack_trace: Some(cause.stack_trace.clone()),
        ..Cause::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::Snapshot;

    fn snapshot(id: i64, path: Option<&str>) -> Option<Snapshot> {
        Some(Snapshot {
            id,
            path: path.map(str::to_owned),
            at_ms: id,
        })
    }

    #[test]
    fn a_job_is_empty_only_where_its_jobmanager_proves_it() {
        let none = Checkpoints::default();
        let unlisted = Checkpoints {
            n_completed: 1,
            ..Checkpoints::default()
        };
        let hidden = Checkpoints {
            completed: snapshot(2, None),
            restored: snapshot(1, Some("file:/r")),
            ..Checkpoints::default()
        };
        let restored = Checkpoints {
            restored: snapshot(1, Some("file:/r")),
            ..Checkpoints::default()
        };
        for (found, has_start, expected) in [
            (&none, false, LastState::Empty),
            (&none, true, LastState::Path),
            (&unlisted, false, LastState::Unknown),
            (&unlisted, true, LastState::Unknown),
            (&hidden, true, LastState::Unknown),
            (&restored, false, LastState::Path),
        ] {
            assert_eq!(classify(found, has_start), expected, "{found:?}");
        }
    }
}
