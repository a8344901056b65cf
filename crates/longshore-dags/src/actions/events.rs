//! What a TaskAction's state says about its task instance.
//!
//! | TaskAction | Means |
//! |---|---|
//! | condition `Succeeded` is true | success |
//! | condition `Failed` is true | the try failed, with the code and the message of the error |
//! | the same with reason `Aborted`, while it is being deleted | nothing yet: it is stopping |
//! | condition `Progressing` with reason `Executing` or `RetryableFailure` | it runs |
//! | anything else | it is there |
//! | it is gone | it was deleted; it goes only after what it made has ended |

use std::sync::Arc;

use jiff::Timestamp;
use kube::core::DynamicObject;
use longshore_api::{
    dags::LABEL_SCHEDULER,
    flyte::{
        CONDITION_FAILED, CONDITION_PROGRESSING, CONDITION_SUCCEEDED, Condition, REASON_ABORTED,
        REASON_EXECUTING, TaskActionStatus,
    },
};
use longshore_kit::Cache;
use longshore_store::Failure;

use crate::{
    launch::{
        decide::LaunchedPhase,
        launched::{Launched, WatchedEvent},
        table::LaunchTable,
    },
    model::Launcher,
    scheduler::facts::LaunchChange,
};

/// A TaskAction as JSON: unknown fields do not matter.
pub type TaskAction = DynamicObject;

impl Launched for TaskAction {
    const LAUNCHER: Launcher = Launcher::TaskAction;

    fn selector(scheduler_id: &str) -> String {
        format!("{LABEL_SCHEDULER}={scheduler_id}")
    }

    fn cache(table: &LaunchTable) -> &Arc<Cache<Self>> {
        &table.actions
    }

    fn phase(&self) -> LaunchedPhase {
        match end(self, &status(self)) {
            None => LaunchedPhase::Live,
            Some(End::Succeeded(_)) => LaunchedPhase::Succeeded,
            Some(End::Failed(_)) => LaunchedPhase::Failed,
        }
    }

    /// Its pods are looked up when the log is read.
    fn node(&self) -> &str {
        ""
    }

    fn change(&self, event: WatchedEvent) -> LaunchChange {
        change(event, self)
    }
}

/// How an action ended.
enum End<'a> {
    Succeeded(&'a Condition),
    Failed(&'a Condition),
}

/// A status that cannot be read says nothing.
fn status(action: &TaskAction) -> TaskActionStatus {
    TaskActionStatus::of(&action.data).unwrap_or_default()
}

fn end<'a>(action: &TaskAction, status: &'a TaskActionStatus) -> Option<End<'a>> {
    let condition = |kind| status.condition(kind).filter(|it| it.is_true());
    if let Some(succeeded) = condition(CONDITION_SUCCEEDED) {
        return Some(End::Succeeded(succeeded));
    }
    let is_stopping = |it: &Condition| {
        it.reason == REASON_ABORTED && action.metadata.deletion_timestamp.is_some()
    };
    condition(CONDITION_FAILED)
        .filter(|it| !is_stopping(it))
        .map(End::Failed)
}

/// The event table.
fn change(event: WatchedEvent, action: &TaskAction) -> LaunchChange {
    let status = status(action);
    let started_at = started_at(&status);
    match (end(action, &status), event) {
        (Some(End::Succeeded(it)), _) => LaunchChange::Succeeded {
            started_at,
            ended_at: Some(it.last_transition_time),
            // One that is stopped does not succeed any more.
            was_stopped: false,
            result: None,
            note: None,
        },
        (Some(End::Failed(it)), _) => LaunchChange::Failed {
            started_at,
            ended_at: Some(it.last_transition_time),
            failure: failure(&status, it),
            // Its executor has tried again what failed before the start.
            before_start: false,
        },
        (None, WatchedEvent::Vanished) => LaunchChange::Lost,
        // Its executor had put a finalizer on it, after which its resource may exist.
        (None, WatchedEvent::Deleted) if action.metadata.deletion_timestamp.is_some() => {
            LaunchChange::Lost
        }
        (None, WatchedEvent::Deleted) => LaunchChange::Gone,
        (None, WatchedEvent::Applied) if has_started(&status) => {
            LaunchChange::Running { started_at }
        }
        (None, WatchedEvent::Applied) => LaunchChange::Exists,
    }
}

/// Between two attempts it counts as running.
fn has_started(status: &TaskActionStatus) -> bool {
    let progressing = status.condition(CONDITION_PROGRESSING);
    progressing.is_some_and(|it| it.reason == REASON_EXECUTING) || started_at(status).is_some()
}

/// When the user's code began to run in the first attempt.
fn started_at(status: &TaskActionStatus) -> Option<Timestamp> {
    let mut history = status.phase_history.iter();
    history
        .find(|entry| entry.phase == REASON_EXECUTING)
        .map(|entry| entry.occurred_at)
}

fn failure(status: &TaskActionStatus, condition: &Condition) -> Failure {
    let code = status.error_state.as_ref().map(|error| &error.code);
    let code = code.filter(|code| !code.is_empty());
    Failure {
        message: condition.message.clone(),
        reason: Some(code.unwrap_or(&condition.reason).clone()),
        exit_code: None,
        container: None,
    }
}

#[cfg(test)]
mod tests;
