//! A TaskAction as its commands show it.

use jiff::Timestamp;
use longshore_api::flyte::{
    CONDITION_FAILED, CONDITION_PROGRESSING, Condition, TaskActionSpec, TaskActionStatus,
};
use serde::Serialize;
use serde_json::Value;

/// A TaskAction, short. Field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Action {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) run: String,
    pub(super) action: String,
    pub(super) task_type: String,
    /// The reason of the condition Progressing, as `kubectl get taskactions` shows it; absent before the first status.
    pub(super) phase: Option<String>,
    /// Whether it has ended.
    pub(super) is_over: bool,
    /// Whether it ended otherwise than well.
    pub(super) is_failed: bool,
    /// Whether it is being deleted.
    pub(super) is_deleting: bool,
    /// From 1.
    pub(super) attempt: u32,
    pub(super) system_failures: u32,
    /// What was last said about it.
    pub(super) message: Option<String>,
    /// Code and kind of the last failure.
    pub(super) error: Option<Failure>,
    pub(super) created_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) history: Vec<Entry>,
}

/// The last failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Failure {
    pub(super) code: String,
    pub(super) kind: String,
    pub(super) message: String,
}

/// A phase that it entered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Entry {
    pub(super) phase: String,
    pub(super) at: Timestamp,
    pub(super) message: String,
}

impl Action {
    /// The view of an object. What cannot be read looks like what is not there.
    pub(super) fn of(object: &Value) -> Self {
        let spec = TaskActionSpec::of(object).unwrap_or_default();
        let status = TaskActionStatus::of(object).unwrap_or_default();
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let progressing = status.condition(CONDITION_PROGRESSING);
        let failed = status
            .condition(CONDITION_FAILED)
            .filter(|failed| failed.is_true());
        let is_over = status.is_terminal();
        let last = status.phase_history.last().map(|entry| &entry.message);
        let message = failed
            .map(|failed| &failed.message)
            .or(last)
            .or_else(|| progressing.map(|progressing| &progressing.message))
            .filter(|message| !message.is_empty());
        Self {
            namespace: text("namespace"),
            name: text("name"),
            run: spec.run_name,
            action: spec.action_name,
            task_type: spec.task_type,
            phase: progressing.map(|condition| condition.reason.clone()),
            is_over,
            is_failed: failed.is_some(),
            is_deleting: metadata["deletionTimestamp"].is_string(),
            attempt: status.attempts.max(1),
            system_failures: status.system_failures,
            message: message.cloned(),
            error: status.error_state.map(|error| Failure {
                code: error.code,
                kind: error.kind,
                message: error.message,
            }),
            created_at: text("creationTimestamp").parse().ok(),
            ended_at: ended_at(&status.conditions).filter(|_| is_over),
            history: status
                .phase_history
                .into_iter()
                .map(|entry| Entry {
                    phase: entry.phase,
                    at: entry.occurred_at,
                    message: entry.message,
                })
                .collect(),
        }
    }
}

/// When Succeeded or Failed became true.
fn ended_at(conditions: &[Condition]) -> Option<Timestamp> {
    conditions
        .iter()
        .filter(|condition| condition.kind != CONDITION_PROGRESSING && condition.is_true())
        .map(|condition| condition.last_transition_time)
        .max()
}
