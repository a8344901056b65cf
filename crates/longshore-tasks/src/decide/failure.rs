//! An attempt that failed: the next attempt, another launch of it, or the end (task action spec §5, steps 11
//! to 13, and §5.1).

use std::time::Duration;

use longshore_api::flyte::TaskActionStatus;
use longshore_core::Plan;
use longshore_k8s::Backoff;
use longshore_plugins::{ErrorKind, Phase, PhaseInfo, TaskError};

use super::{
    ActionPlan, Round, Step,
    publish::{self, Published},
    release,
};
use crate::model::{Fact, LaunchId, Task};

/// Between a system failure and the next launch of the attempt.
const RELAUNCH: Backoff = Backoff {
    first: Duration::from_secs(1),
    max: Duration::from_mins(5),
};

/// Decides upon a failure. Whatever is to be repeated is first on record as something that has not started.
pub(super) fn decide(round: &Round<'_>, task: &Task, info: PhaseInfo) -> ActionPlan {
    let kind = info.error.as_ref().map(|error| error.kind);
    match info.phase {
        Phase::RetryableFailure if kind == Some(ErrorKind::System) => {
            let error = info.error.as_ref();
            let text = error.map_or_else(String::new, words);
            system_failure(round, task, &text, Afterwards::LaunchAgain)
        }
        Phase::RetryableFailure if round.action.attempt() < task.context.max_attempts => {
            let info = PhaseInfo::of(Phase::Queued, "restarting task");
            publish::plan(round, task, Published::restarting(round, info))
        }
        Phase::RetryableFailure => {
            let info = exhausted(round, info);
            publish::plan(round, task, Published::started(round, info))
        }
        Phase::Undefined
        | Phase::NotReady
        | Phase::WaitingForResources
        | Phase::Queued
        | Phase::Initializing
        | Phase::Running
        | Phase::Success
        | Phase::PermanentFailure
        | Phase::WaitingForCache
        | Phase::Aborted => publish::plan(round, task, Published::started(round, info)),
    }
}

/// An error in one line.
pub(super) fn words(error: &TaskError) -> String {
    format!("[{}] {}", error.code, error.message)
}

/// What an attempt left behind is not what it owes; the attempt itself stays as it is.
pub(super) fn look_failed(round: &Round<'_>, task: &Task, why: &str) -> ActionPlan {
    system_failure(round, task, why, Afterwards::LookAgain)
}

/// What is done after a system failure that is not the last one.
enum Afterwards {
    LaunchAgain,
    LookAgain,
}

fn system_failure(
    round: &Round<'_>,
    task: &Task,
    text: &str,
    afterwards: Afterwards,
) -> ActionPlan {
    let id = task.plugin.id();
    let n = round.action.status.system_failures.saturating_add(1);
    if let Some(info) = too_many(round, id, text) {
        let published = Published {
            system_failures: n,
            ..Published::started(round, info)
        };
        return publish::plan(round, task, published);
    }
    let mut status = TaskActionStatus {
        system_failures: n,
        ..round.action.status.clone()
    };
    let (mut actions, mut released) = (Vec::new(), Vec::new());
    let next = match afterwards {
        Afterwards::LaunchAgain => {
            status.plugin_state.clear();
            status.plugin_state_version = 0;
            let child = round.action.children.current.present();
            let ours = child.filter(|child| is_ours(child));
            released = ours.map(release).unwrap_or_default();
            let wait = RELAUNCH.wait(n);
            let launch = LaunchId::of(&round.action.target, &status);
            let next = Fact::NextLaunch(launch, round.exactly + wait);
            actions.push(round.note(next));
            Plan::after(wait)
        }
        Afterwards::LookAgain => Plan::after(round.policy.requeue),
    };
    actions.push(round.record(status));
    actions.extend(released);
    actions.push(warning(round, id, text));
    Plan { actions, ..next }
}

/// How the attempt ends where this system failure is one too many.
pub(super) fn too_many(round: &Round<'_>, id: &str, text: &str) -> Option<PhaseInfo> {
    let n = round.action.status.system_failures.saturating_add(1);
    let message = format!("plugin {id:?} failed with system error {n} times: {text}");
    let code = "MaxSystemFailuresExceeded";
    let info = PhaseInfo::permanent(ErrorKind::System, code, message);
    (n > round.policy.max_system_failures).then_some(info)
}

/// The warning about a system failure.
pub(super) fn warning(round: &Round<'_>, id: &str, text: &str) -> Step {
    let note = format!("Plugin {id:?} system error: {text}");
    round.warn(longshore_api::flyte::REASON_FAILED_PLUGIN_HANDLE, note)
}

fn is_ours(child: &crate::model::Child) -> bool {
    child.belongs != crate::model::Belongs::ToOthers
}

/// The last attempt failed.
pub(super) fn exhausted(round: &Round<'_>, info: PhaseInfo) -> PhaseInfo {
    let n = round.action.attempt();
    let error = info.error.unwrap_or_else(|| TaskError {
        code: "MaxRetriesExceeded".to_owned(),
        message: format!("task failed after {n} attempt(s)"),
        kind: ErrorKind::User,
    });
    PhaseInfo {
        phase: Phase::PermanentFailure,
        error: Some(error),
        ..info
    }
}
