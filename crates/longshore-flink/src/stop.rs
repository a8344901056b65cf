//! Stops a job with a savepoint: the intent on record, the request under an id of ours, the savepoint's path.
//!
//! The record is `savepointInfo` with the trigger type `UPGRADE`, which upstream polls like any other savepoint. A repeat
//! under the same id is the same operation, so that nothing happens twice, whatever is lost on the way.

use std::time::Duration;

use longshore_core::{NoAnswer, names::hashed_uuid};
use longshore_flink_core::{
    conf::operator::SavepointFormatType,
    spec::SavepointFormat,
    status::{CommonStatus, JobState, Savepoint, SavepointInfo, TriggerType},
};

use crate::{
    draft::{Draft, Reply, RunsJob, Settle},
    record::Trouble,
    rest::{Operation, RestAnswer, RestCall, Trigger},
    settings::Settings,
};

/// From one look at a savepoint under way to the next.
const POLL: Duration = Duration::from_secs(1);
/// From a failure of the request to the next one.
const AGAIN: Duration = Duration::from_secs(5);

/// How far a stop is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is under way.
    UnderWay,
    /// The job is stopped, and this is its savepoint.
    Done(String),
    /// There is no savepoint, and the job may run on.
    Failed(String),
}

/// What happens to the sources of a job that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    /// They stop where they are.
    Kept,
    /// They end.
    Drained,
}

/// The id of an operation: the same whenever it is made of the same parts.
pub(crate) fn trigger_id(uid: &str, generation: i64, purpose: &str, attempt: i64) -> String {
    hashed_uuid(&format!("{uid}/{generation}/{purpose}/{attempt}")).replace('-', "")
}

/// Whether a stop is on record.
pub(crate) fn is_pending(common: &CommonStatus) -> bool {
    let info = &common.job_status.savepoint_info;
    info.trigger_type == Some(TriggerType::Upgrade) && info.trigger_id.is_some()
}

/// Puts a stop on record. `None` where the last one failed a moment ago: then it is to be tried again after this time.
pub(crate) fn begin<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    settings: &Settings,
    generation: i64,
) -> Option<Duration> {
    let now_ms = draft.now().as_millisecond();
    let info = &draft.common().job_status.savepoint_info;
    let last_ms = info.trigger_timestamp.unwrap_or(0);
    let pause_ms = i64::try_from(settings.progress_interval.as_millis()).unwrap_or(i64::MAX);
    let due_ms = last_ms.saturating_add(pause_ms);
    if now_ms < due_ms && last_ms <= now_ms {
        let left = u64::try_from(due_ms - now_ms).unwrap_or_default();
        return Some(Duration::from_millis(left));
    }
    let uid = draft.of.target.uid.clone().unwrap_or_default();
    let info = &mut draft.status.common_mut().job_status.savepoint_info;
    info.trigger_id = Some(trigger_id(&uid, generation, "stop", now_ms));
    info.trigger_timestamp = Some(now_ms);
    info.trigger_type = Some(TriggerType::Upgrade);
    info.format_type = Some(match settings.savepoint_format {
        SavepointFormatType::Canonical => SavepointFormat::Canonical,
        SavepointFormatType::Native => SavepointFormat::Native,
    });
    None
}

/// Goes on with the stop that is on record.
pub(crate) fn step<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    settings: &Settings,
    sources: Sources,
) -> Result<Stop, Trouble> {
    let status = &draft.common().job_status;
    let info = &status.savepoint_info;
    let (Some(job), Some(trigger_id)) = (status.job_id.clone(), info.trigger_id.clone()) else {
        return Ok(Stop::Failed("the status names no job to stop".to_owned()));
    };
    let began_ms = info.trigger_timestamp.unwrap_or_default();
    let limit_ms = i64::try_from(settings.checkpoint_timeout.as_millis()).unwrap_or(i64::MAX);
    let is_late = draft.now().as_millisecond() > began_ms.saturating_add(limit_ms);
    let late = || {
        let seconds = settings.checkpoint_timeout.as_secs();
        Stop::Failed(format!("the savepoint is not complete after {seconds} s"))
    };
    let trigger = Trigger {
        job: job.clone(),
        trigger_id: trigger_id.clone(),
        directory: settings.savepoint_directory.clone(),
        format: settings.savepoint_format,
    };
    let call = RestCall::Stop {
        trigger,
        drain: sources == Sources::Drained,
    };
    match ask_once(draft, call)? {
        Sent::Taken => {}
        Sent::Pending if is_late => return Ok(late()),
        Sent::Pending => return Ok(Stop::UnderWay),
        Sent::Refused(message) => return Ok(Stop::Failed(message)),
    }
    let poll = RestCall::Savepoint {
        job: job.clone(),
        trigger_id,
    };
    match progress(draft, poll)? {
        Some(Operation::Savepoint { path }) => Ok(Stop::Done(path)),
        Some(Operation::Failed(cause)) => {
            let first = cause.stack_trace.lines().next().unwrap_or_default();
            Ok(Stop::Failed(format!("the savepoint failed: {first}")))
        }
        Some(Operation::Unknown) => find(draft, job, began_ms),
        Some(Operation::InProgress | Operation::Checkpoint { .. }) | None if is_late => Ok(late()),
        Some(Operation::InProgress | Operation::Checkpoint { .. }) | None => Ok(Stop::UnderWay),
    }
}

/// How far a request is that starts an operation.
pub(crate) enum Sent {
    /// The JobManager has it.
    Taken,
    /// There is no answer yet.
    Pending,
    /// The JobManager refuses it.
    Refused(String),
}

/// Sends a request until it is answered.
pub(crate) fn ask_once<S: Settle>(
    draft: &mut Draft<'_, S>,
    call: RestCall,
) -> Result<Sent, Trouble> {
    // A success is not sent again: only a failure is due again.
    Ok(match draft.consult(call.clone(), None)? {
        Reply::Said(..) => Sent::Taken,
        Reply::Pending => Sent::Pending,
        Reply::Failed {
            why: NoAnswer::Refused,
            message,
        } => Sent::Refused(message.to_owned()),
        // It may have arrived: the same request again tells.
        Reply::Failed {
            why:
                NoAnswer::TimedOut | NoAnswer::Unreachable | NoAnswer::NotUnderstood | NoAnswer::NoRoom,
            ..
        } => {
            draft.look_after(AGAIN);
            Sent::Pending
        }
    })
}

/// How far an operation is; `None` where that is not known yet.
pub(crate) fn progress<S: Settle>(
    draft: &mut Draft<'_, S>,
    poll: RestCall,
) -> Result<Option<Operation>, Trouble> {
    // What is under way is looked at again soon, and what is over is not.
    let under_way = draft.consult(poll.clone(), None)?;
    match under_way {
        Reply::Said(RestAnswer::Operation(Operation::InProgress), _) => {
            draft.consult(poll, Some(POLL))?;
            Ok(Some(Operation::InProgress))
        }
        Reply::Said(RestAnswer::Operation(operation), _) => Ok(Some(operation.clone())),
        Reply::Pending | Reply::Said(..) | Reply::Failed { .. } => Ok(None),
    }
}

/// The savepoint of an operation that the JobManager has forgotten.
fn find<S: RunsJob>(draft: &mut Draft<'_, S>, job: String, began_ms: i64) -> Result<Stop, Trouble> {
    let found = match draft.consult(RestCall::Checkpoints { job }, None)? {
        Reply::Said(RestAnswer::Checkpoints(found), _) => found,
        Reply::Pending | Reply::Said(..) => return Ok(Stop::UnderWay),
        Reply::Failed { message, .. } => return Ok(Stop::Failed(message.to_owned())),
    };
    let ours = found.savepoint.as_ref().filter(|it| it.at_ms >= began_ms);
    Ok(match ours.and_then(|it| it.path.clone()) {
        Some(path) => Stop::Done(path),
        None => Stop::Failed(
            "the JobManager has forgotten the stop, and the job has no newer savepoint".to_owned(),
        ),
    })
}

/// The stop is over. The time of a stop that failed stays: the next one is not begun at once.
pub(crate) fn clear(common: &mut CommonStatus, outcome: &Stop) {
    let info: &mut SavepointInfo = &mut common.job_status.savepoint_info;
    info.trigger_id = None;
    info.trigger_type = None;
    info.format_type = None;
    match outcome {
        Stop::Failed(_) | Stop::UnderWay => {}
        Stop::Done(_) => info.trigger_timestamp = None,
    }
}

/// The savepoint is the state of the job from now on.
pub(crate) fn stopped<S: RunsJob>(draft: &mut Draft<'_, S>, settings: &Settings, path: &str) {
    let now_ms = draft.now().as_millisecond();
    let common = draft.status.common_mut();
    if !settings.has_snapshot_resources {
        remember(common, path, now_ms);
    }
    common.job_status.upgrade_savepoint_path = Some(path.to_owned());
    common.job_status.state = Some(JobState::Finished);
    common.job_status.update_time = Some(now_ms.to_string());
    common.error = None;
}

/// Adds a savepoint to the history of the status, where savepoints have no resources of their own.
fn remember(common: &mut CommonStatus, path: &str, now_ms: i64) {
    let info = &mut common.job_status.savepoint_info;
    let savepoint = Savepoint {
        time_stamp: now_ms,
        location: Some(path.to_owned()),
        trigger_type: TriggerType::Upgrade,
        format_type: info.format_type.unwrap_or_default(),
        ..Savepoint::default()
    };
    info.last_savepoint = Some(savepoint.clone());
    info.savepoint_history.push(savepoint);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_id_is_of_its_attempt() {
        let id = trigger_id("u", 1, "stop", 7);
        assert_eq!((id.len(), &id), (32, &trigger_id("u", 1, "stop", 7)));
        assert!(id.bytes().all(|it| it.is_ascii_hexdigit()));
        for other in [
            trigger_id("v", 1, "stop", 7),
            trigger_id("u", 2, "stop", 7),
            trigger_id("u", 1, "savepoint", 7),
            trigger_id("u", 1, "stop", 8),
        ] {
            assert_ne!(id, other);
        }
    }
}
