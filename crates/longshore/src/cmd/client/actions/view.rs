//! A TaskAction as its commands show it.

use jiff::Timestamp;
use longshore_api::flyte::{
    CONDITION_FAILED, CONDITION_PROGRESSING, CONDITION_SUCCEEDED, Condition, TaskActionSpec,
    TaskActionStatus,
};
use longshore_k8s::metadata::is_deleting;
use longshore_plugins::Paths;
use longshore_tasks::{catalog::CatalogCacheStatus, events::LoggedEvent};
use serde::Serialize;
use serde_json::Value;

use super::waiting;

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
    /// Whether the action has ended.
    pub(super) is_over: bool,
    /// Whether the action ended without success.
    pub(super) is_failed: bool,
    /// Whether the action is being deleted.
    pub(super) is_deleting: bool,
    /// The number of the attempt, from 1.
    pub(super) attempt: u32,
    pub(super) system_failures: u32,
    /// What the action waits for: in a list, as far as its status says who holds it; in the view of a single action also
    /// what the rest of the cluster says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waits_for: Option<String>,
    /// What the cache did for the action, as `CACHE_HIT`; absent where the action is not cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_status: Option<&'static str>,
    /// URL of its inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inputs: Option<String>,
    /// URL of the directory with the outputs, or the error, of the current attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outputs: Option<String>,
    /// The last message about the action.
    pub(super) message: Option<String>,
    /// Code and kind of the last failure.
    pub(super) error: Option<Failure>,
    pub(super) created_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) history: Vec<Entry>,
    /// The events of the action, where the event log is on this machine; oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<LoggedEvent>,
}

/// The last failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Failure {
    pub(super) code: String,
    pub(super) kind: String,
    pub(super) message: String,
}

/// A phase that the action entered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Entry {
    pub(super) phase: String,
    pub(super) at: Timestamp,
    pub(super) message: String,
}

impl Action {
    /// The view of an object. A field that cannot be read counts as absent.
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
        let waits = !is_over || is_deleting(object);
        let waits_for = waiting::held(object).filter(|_| waits).map(str::to_owned);
        let (namespace, name) = (text("namespace"), text("name"));
        let attempt = status.attempts.max(1);
        let paths = Paths::of_action(&namespace, &name, &spec, attempt);
        let has_data = !spec.run_output_base.is_empty();
        let cache = CatalogCacheStatus::try_from(status.cache_status).ok();
        let cache = cache.filter(|it| *it != CatalogCacheStatus::CacheDisabled);
        Self {
            namespace,
            name,
            waits_for,
            cache_status: cache.map(|it| it.as_str_name()),
            inputs: (!spec.input_uri.is_empty()).then_some(paths.input),
            outputs: has_data.then_some(paths.output_prefix),
            events: Vec::new(),
            run: spec.run_name,
            action: spec.action_name,
            task_type: spec.task_type,
            phase: progressing.map(|condition| condition.reason.clone()),
            is_over,
            is_failed: failed.is_some(),
            is_deleting: is_deleting(object),
            attempt,
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
        .filter(|it| {
            [CONDITION_SUCCEEDED, CONDITION_FAILED].contains(&it.kind.as_str()) && it.is_true()
        })
        .map(|condition| condition.last_transition_time)
        .max()
}
