//! Decides about a FlinkStateSnapshot.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_api::flink::{
    FINALIZER_STATE_SNAPSHOT, REASON_CHECKPOINT_ERROR, REASON_CLEANUP_FAILED,
    REASON_SAVEPOINT_ERROR, REASON_SNAPSHOT_ABANDONED, REASON_VALIDATION_ERROR,
};
use longshore_core::{Action, EventType, Patch, PatchKind, Seen};
use longshore_flink_core::{
    conf::operator::SavepointFormatType,
    spec::{FlinkStateSnapshotSpec, SavepointFormat, SavepointSpec},
    status::{ErrorType, FlinkStateSnapshotStatus, SnapshotState, snapshot_labels},
    validate::{SnapshotTarget, validate_snapshot},
};
use serde_json::json;

use super::model::{Job, Observed, Wanted};
use crate::{
    draft::{Draft, Reply, Subject},
    record::{FlinkPlan, LOOK_AGAIN, OTHERS_AGAIN, Trouble, announced},
    rest::{Operation, RestAnswer, RestCall, Trigger},
    settings::Wording,
    stop::{self, Sent, trigger_id},
};

/// From a failure to the next try, which doubles from one to the next.
const RETRY: Duration = Duration::from_secs(10);
/// The longest time between two tries.
const MAX_RETRY: Duration = Duration::from_hours(1);

type Deciding<'a> = Draft<'a, FlinkStateSnapshotStatus>;

/// A snapshot and its job.
struct Case<'a> {
    wanted: &'a Wanted,
    spec: &'a FlinkStateSnapshotSpec,
    job: Option<&'a Job>,
}

/// Decides. Pure: equal observations lead to equal plans.
pub fn decide(observed: &Observed) -> FlinkPlan {
    let wanted: &Arc<Wanted> = match &observed.wanted {
        Seen::Present(wanted) => wanted,
        Seen::Absent => return FlinkPlan::await_change(),
        Seen::Unknown(_) => return FlinkPlan::after(LOOK_AGAIN),
    };
    if observed.job.is_unknown() {
        return FlinkPlan::after(LOOK_AGAIN);
    }
    let (spec, status) = match (&wanted.spec, &wanted.status) {
        (Ok(spec), Ok(status)) => (spec, status.clone()),
        (Err(message), _) | (_, Err(message)) => return announced(&wanted.target, message),
    };
    let wording = Wording::of(&observed.operator);
    let of = Subject::of(wanted, &observed.heard, &wording, observed.now);
    let job = observed.job.present();
    let case = Case { wanted, spec, job };
    let mut draft = Draft::new(of, status, job.map(|job| job.address.clone()));
    let decided = go(&case, &mut draft);
    match decided.and_then(|()| draft.finish()) {
        Ok(plan) => plan,
        Err(trouble) => announced(&wanted.target, &trouble.to_string()),
    }
}

fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if case.wanted.is_deleting {
        return delete(case, draft);
    }
    if !case.wanted.has_finalizer {
        draft.push(Action::EnsureFinalizer {
            target: case.wanted.target.clone(),
            finalizer: FINALIZER_STATE_SNAPSHOT,
        });
    }
    let target = if case.job.is_some() {
        SnapshotTarget::Found
    } else {
        SnapshotTarget::Missing
    };
    let has_status = case.wanted.seen.get("status").is_some();
    let state = has_status.then_some(draft.status.state);
    let namespace = &case.wanted.target.namespace;
    if let Err(invalid) = validate_snapshot(namespace, case.spec, target, state) {
        let message = invalid.to_string();
        draft.fail(ErrorType::Validation, REASON_VALIDATION_ERROR, &message);
        draft.look_after(OTHERS_AGAIN);
        return Ok(());
    }
    match draft.status.state {
        SnapshotState::TriggerPending => pending(case, draft)?,
        SnapshotState::InProgress => in_progress(case, draft)?,
        SnapshotState::Completed | SnapshotState::Failed | SnapshotState::Abandoned => {}
    }
    label(case, draft)
}

fn pending(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let existing = case.spec.savepoint.as_ref().filter(|it| it.already_exists);
    if let Some(savepoint) = existing {
        let now = stamp(draft.now());
        draft.status.trigger_timestamp = Some(now);
        complete(draft, savepoint.path.clone().unwrap_or_default());
        return Ok(());
    }
    let Some(job) = case.job.filter(|job| job.is_running()) else {
        abandon(draft);
        return Ok(());
    };
    if let Some(left) = backs_off(draft) {
        draft.look_after(left);
        return Ok(());
    }
    let checkpoints = job.version.is_some_and(|it| it.triggers_checkpoints());
    if case.spec.checkpoint.is_some() && !checkpoints {
        failed(
            case,
            draft,
            "Checkpoints can be triggered from Flink 1.17 on",
        );
        return Ok(());
    }
    if case.spec.savepoint.is_some() && directory(case, job).is_none() {
        let message =
            "expected spec.savepoint.path, or execution.checkpointing.savepoint-dir of the job";
        failed(case, draft, message);
        return Ok(());
    }
    let uid = case.wanted.target.uid.as_deref().unwrap_or_default();
    let attempt = i64::from(draft.status.failures);
    let purpose = if case.spec.savepoint.is_some() {
        "savepoint"
    } else {
        "checkpoint"
    };
    draft.status.trigger_id = Some(trigger_id(uid, case.wanted.generation, purpose, attempt));
    draft.status.trigger_timestamp = Some(stamp(draft.now()));
    draft.status.state = SnapshotState::InProgress;
    draft.status.error = None;
    in_progress(case, draft)
}

/// What is left of the time before the next try.
fn backs_off(draft: &Deciding<'_>) -> Option<Duration> {
    let n_failures = u32::try_from(draft.status.failures)
        .ok()
        .filter(|n| *n > 0)?;
    let failed_at = draft.status.result_timestamp.as_deref()?.parse().ok()?;
    let wait = RETRY.saturating_mul(2_u32.saturating_pow(n_failures - 1));
    draft.left(failed_at, wait.min(MAX_RETRY))
}

fn in_progress(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let Some(job) = case.job.filter(|job| job.is_running()) else {
        abandon(draft);
        return Ok(());
    };
    let (Some(id), Some(trigger_id)) = (job.id.clone(), draft.status.trigger_id.clone()) else {
        draft.status.state = SnapshotState::TriggerPending;
        return Ok(());
    };
    let (trigger, poll) = match &case.spec.savepoint {
        Some(savepoint) => (
            RestCall::TriggerSavepoint(Trigger {
                job: id.clone(),
                trigger_id: trigger_id.clone(),
                directory: directory(case, job),
                format: format(savepoint, job),
            }),
            RestCall::Savepoint {
                job: id.clone(),
                trigger_id,
            },
        ),
        None => (
            RestCall::TriggerCheckpoint {
                job: id.clone(),
                trigger_id: trigger_id.clone(),
                form: job.checkpoint_type,
            },
            RestCall::Checkpoint {
                job: id.clone(),
                trigger_id,
            },
        ),
    };
    match stop::ask_once(draft, trigger)? {
        Sent::Taken => {}
        Sent::Pending => return Ok(()),
        Sent::Refused(message) => {
            failed(case, draft, &message);
            return Ok(());
        }
    }
    match stop::progress(draft, poll)? {
        None | Some(Operation::InProgress) => {}
        Some(Operation::Savepoint { path }) => complete(draft, path),
        Some(Operation::Checkpoint { id: checkpoint }) => {
            complete_checkpoint(draft, id, checkpoint)?;
        }
        Some(Operation::Failed(cause)) => {
            let first = cause.stack_trace.lines().next().unwrap_or_default();
            failed(case, draft, first);
        }
        Some(Operation::Unknown) => {
            failed(case, draft, "the JobManager has forgotten the operation");
        }
    }
    Ok(())
}

/// The checkpoint is there; its path is asked for.
fn complete_checkpoint(
    draft: &mut Deciding<'_>,
    job: String,
    checkpoint: i64,
) -> Result<(), Trouble> {
    let call = RestCall::CheckpointPath { job, checkpoint };
    let path = match draft.consult(call, None)? {
        Reply::Pending => return Ok(()),
        Reply::Said(RestAnswer::CheckpointPath(path), _) => path.clone(),
        Reply::Said(..) | Reply::Failed { .. } => None,
    };
    if path.is_none() {
        let note = "Checkpoint completed, and its path is not known.";
        draft.announce(EventType::Warning, REASON_CHECKPOINT_ERROR, note);
    }
    complete(draft, path.unwrap_or_default());
    Ok(())
}

fn directory(case: &Case<'_>, job: &Job) -> Option<String> {
    let savepoint = case.spec.savepoint.as_ref();
    let given = savepoint
        .and_then(|it| it.path.clone())
        .filter(|it| !it.is_empty());
    given.or_else(|| job.savepoint_directory.clone())
}

fn format(savepoint: &SavepointSpec, job: &Job) -> SavepointFormatType {
    match savepoint.format_type {
        SavepointFormat::Canonical => SavepointFormatType::Canonical,
        SavepointFormat::Native => SavepointFormatType::Native,
        SavepointFormat::Unknown => job.savepoint_format,
    }
}

fn complete(draft: &mut Deciding<'_>, path: String) {
    let now = stamp(draft.now());
    draft.status.state = SnapshotState::Completed;
    draft.status.path = Some(path);
    draft.status.result_timestamp = Some(now);
    draft.status.error = None;
}

fn abandon(draft: &mut Deciding<'_>) {
    draft.status.state = SnapshotState::Abandoned;
    draft.status.result_timestamp = Some(stamp(draft.now()));
    let note = "Job is not running";
    draft.announce(EventType::Warning, REASON_SNAPSHOT_ABANDONED, note);
}

fn failed(case: &Case<'_>, draft: &mut Deciding<'_>, message: &str) {
    let reason = if case.spec.savepoint.is_some() {
        REASON_SAVEPOINT_ERROR
    } else {
        REASON_CHECKPOINT_ERROR
    };
    draft.fail(ErrorType::Reconciliation, reason, message);
    let status = &mut draft.status;
    status.failures = status.failures.saturating_add(1);
    status.trigger_id = None;
    let limit = case.spec.backoff_limit;
    status.state = if limit >= 0 && status.failures > limit {
        SnapshotState::Failed
    } else {
        SnapshotState::TriggerPending
    };
    draft.status.result_timestamp = Some(stamp(draft.now()));
    draft.look_after(RETRY);
}

/// The labels by which people select snapshots.
fn label(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let reference = case.spec.job_reference.as_ref();
    let reference = reference.and_then(|it| Some((it.kind?, it.name.as_deref()?)));
    let trigger = case.wanted.trigger();
    let state = draft.status.state;
    let labels = snapshot_labels(case.spec, trigger, Some(state), reference);
    let there = &case.wanted.seen["metadata"]["labels"];
    if labels.iter().all(|(key, value)| there[*key] == **value) {
        return Ok(());
    }
    draft.act(Action::Patch(Patch {
        target: case.wanted.target.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        patch: json!({"metadata": {"labels": labels}}),
    }))
}

/// Deletes what the snapshot has left, where the spec says so.
fn delete(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if !case.wanted.has_finalizer {
        return Ok(());
    }
    let savepoint = case.spec.savepoint.as_ref();
    let is_disposed = savepoint.is_some_and(|it| it.dispose_on_delete);
    let path = draft.status.path.clone().filter(|it| !it.is_empty());
    match (draft.status.state, path) {
        (SnapshotState::Completed, Some(path)) if is_disposed => dispose(case, draft, path),
        (SnapshotState::InProgress, _) if case.job.is_some_and(Job::is_running) => {
            in_progress(case, draft)?;
            draft.look_after(LOOK_AGAIN);
            Ok(())
        }
        (
            SnapshotState::Completed
            | SnapshotState::InProgress
            | SnapshotState::Failed
            | SnapshotState::TriggerPending
            | SnapshotState::Abandoned,
            _,
        ) => let_go(case, draft),
    }
}

fn dispose(case: &Case<'_>, draft: &mut Deciding<'_>, path: String) -> Result<(), Trouble> {
    let Some(job) = case.job else {
        // Nobody is left who could delete the files, and the deletion ends all the same.
        let note = format!("The savepoint {path} stays: the resource of its job is gone");
        draft.announce(EventType::Warning, REASON_CLEANUP_FAILED, note);
        return let_go(case, draft);
    };
    if !job.is_running() {
        let message = "The savepoint is disposed of when its job runs again";
        draft.fail(ErrorType::Reconciliation, REASON_CLEANUP_FAILED, message);
        draft.look_after(OTHERS_AGAIN);
        return Ok(());
    }
    match draft.consult(RestCall::Dispose { path }, Some(RETRY))? {
        Reply::Pending => Ok(()),
        Reply::Said(..) => let_go(case, draft),
        Reply::Failed { message, .. } => {
            draft.fail(ErrorType::Reconciliation, REASON_CLEANUP_FAILED, message);
            Ok(())
        }
    }
}

fn let_go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    draft.act(Action::RemoveFinalizer {
        target: case.wanted.target.clone(),
        finalizer: FINALIZER_STATE_SNAPSHOT,
    })
}

fn stamp(now: Timestamp) -> String {
    format!("{now:.3}")
}

#[cfg(test)]
mod tests;
