//! What a phase makes of a status: conditions, history, error (task action spec §4). Pure.

use jiff::{Timestamp, tz::Offset};
use longshore_api::flyte::{
    self, CONDITION_FAILED, CONDITION_PROGRESSING, CONDITION_SUCCEEDED, Condition, ErrorState,
    PhaseTransition, TaskActionSpec, TaskActionStatus,
};
use longshore_core::text::shorten_to;
use longshore_plugins::{Phase, PhaseInfo, TaskError};
use serde_json::{Map, Value, json};

/// What an API server takes of a condition's message, in bytes.
const MAX_MESSAGE: usize = 32_768;
/// Entries of a history. An attempt that succeeds has three.
const MAX_HISTORY: usize = 100;
/// The longest message of such an entry, in bytes: a job may change its phase, and each time for another reason.
const MAX_PAST: usize = 2048;
/// What the second entry of a longer history says, behind a number.
const LEFT_OUT: &str = " phases before this one are left out";

/// Enters a phase.
pub(crate) fn enter(status: &mut TaskActionStatus, info: &PhaseInfo, now: Timestamp) {
    let reason = info.reason.as_str();
    let failure = info.error.as_ref().map_or(reason, |error| &error.message);
    match info.phase {
        Phase::Undefined => {}
        Phase::NotReady | Phase::Queued | Phase::WaitingForResources | Phase::WaitingForCache => {
            progress(status, flyte::REASON_QUEUED, reason, now);
        }
        Phase::Initializing => progress(status, flyte::REASON_INITIALIZING, reason, now),
        Phase::Running => progress(status, flyte::REASON_EXECUTING, reason, now),
        Phase::Success => {
            let (completed, words) = (flyte::REASON_COMPLETED, "TaskAction has completed");
            set(status, CONDITION_PROGRESSING, false, completed, words, now);
            let words = "TaskAction completed successfully";
            set(status, CONDITION_SUCCEEDED, true, completed, words, now);
            remember(status, completed, words, now);
        }
        Phase::RetryableFailure => {
            progress(status, flyte::REASON_RETRYABLE_FAILURE, failure, now);
        }
        Phase::PermanentFailure => {
            let permanent = flyte::REASON_PERMANENT_FAILURE;
            fail(status, permanent, failure, now);
            remember(status, permanent, failure, now);
        }
        Phase::Aborted => {
            let words = "TaskAction was aborted";
            fail(status, flyte::REASON_ABORTED, words, now);
            remember(status, flyte::REASON_ABORTED, words, now);
        }
    }
    if let Some(error) = &info.error {
        status.error_state = Some(error_state(error));
    }
}

/// It is on its way, this far.
pub(crate) fn progress(status: &mut TaskActionStatus, reason: &str, message: &str, now: Timestamp) {
    set(status, CONDITION_PROGRESSING, true, reason, message, now);
    remember(status, reason, message, now);
}

/// It failed for good.
pub(crate) fn fail(status: &mut TaskActionStatus, reason: &str, message: &str, now: Timestamp) {
    set(status, CONDITION_PROGRESSING, false, reason, message, now);
    set(status, CONDITION_FAILED, true, reason, message, now);
}

/// Sets a condition; the time of its last transition changes only with its status.
pub(crate) fn set(
    status: &mut TaskActionStatus,
    kind: &str,
    value: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let value = if value { "True" } else { "False" };
    let message = shorten_to(message, MAX_MESSAGE);
    let conditions = &mut status.conditions;
    if let Some(condition) = conditions.iter_mut().find(|it| it.kind == kind) {
        if condition.status != value {
            condition.last_transition_time = now;
        }
        condition.status = value.to_owned();
        condition.reason = reason.to_owned();
        condition.message = message;
    } else {
        conditions.push(Condition {
            kind: kind.to_owned(),
            status: value.to_owned(),
            observed_generation: 0,
            last_transition_time: now,
            reason: reason.to_owned(),
            message,
        });
    }
}

/// Adds a phase to the history, unless it is the last one there.
pub(crate) fn remember(status: &mut TaskActionStatus, phase: &str, message: &str, now: Timestamp) {
    let history = &mut status.phase_history;
    let last = history.last();
    if last.is_none_or(|last| last.phase != phase) {
        history.push(PhaseTransition {
            phase: phase.to_owned(),
            occurred_at: now,
            message: shorten_to(message, MAX_PAST),
        });
        while history.len() > MAX_HISTORY {
            leave_out(history);
        }
    }
}

/// Leaves the second entry of a history of at least three out; the next one says how many were.
pub(crate) fn leave_out(history: &mut Vec<PhaseTransition>) {
    let removed = history.remove(1);
    let before = removed.message.strip_suffix(LEFT_OUT);
    let before = before.and_then(|n| n.parse::<u32>().ok());
    let n = before.unwrap_or_default().saturating_add(1);
    history[1].message = format!("{n}{LEFT_OUT}");
}

/// How the status calls an error.
pub(crate) fn error_state(error: &TaskError) -> ErrorState {
    ErrorState {
        code: error.code.clone(),
        kind: error.kind.as_str().to_owned(),
        message: error.message.clone(),
    }
}

/// Whether anybody is to be told of the difference (task action spec §5.2).
pub(crate) fn is_news(old: &TaskActionStatus, new: &TaskActionStatus) -> bool {
    let said = |status: &TaskActionStatus| TaskActionStatus {
        state_json: String::new(),
        error_state: None,
        ..status.clone()
    };
    said(old) != said(new)
}

/// What observers read.
pub(crate) fn state_json(spec: &TaskActionSpec, phase: Phase, now: Timestamp) -> String {
    json!({
        "actionId": format!("{}/{}", spec.run_name, spec.action_name),
        "phase": phase.published(),
        "timestamp": now.to_string(),
    })
    .to_string()
}

/// The value of the label that says when a terminal action ended.
pub(crate) fn completed_time(status: &TaskActionStatus, now: Timestamp) -> String {
    let ended = [CONDITION_SUCCEEDED, CONDITION_FAILED]
        .into_iter()
        .filter_map(|kind| status.condition(kind))
        .find(|condition| condition.is_true());
    let at = ended.map_or(now, |condition| condition.last_transition_time);
    minute(at)
}

/// An instant as that label has it.
pub(crate) fn minute(at: Timestamp) -> String {
    let at = Offset::UTC.to_datetime(at);
    at.strftime(flyte::COMPLETED_TIME_FORMAT).to_string()
}

/// The status as it is written: `seen` with every field that we know replaced.
pub(crate) fn to_wire(seen: &Value, status: &TaskActionStatus) -> Result<Value, serde_json::Error> {
    let known = serde_json::to_value(status)?;
    let empty = Map::new();
    let mut wire = seen.as_object().unwrap_or(&empty).clone();
    for field in FIELDS {
        match known.get(field) {
            Some(value) => wire.insert(field.to_owned(), value.clone()),
            None => wire.remove(field),
        };
    }
    Ok(Value::Object(wire))
}

/// The fields that an executor writes; the signal's are others'.
const FIELDS: [&str; 11] = [
    "stateJson",
    "pluginState",
    "pluginStateVersion",
    "pluginPhase",
    "pluginPhaseVersion",
    "attempts",
    "systemFailures",
    "cacheStatus",
    "conditions",
    "phaseHistory",
    "errorState",
];

#[cfg(test)]
mod tests;
