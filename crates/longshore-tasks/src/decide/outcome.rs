//! What an attempt leaves behind, and what it needs of a store before: its inputs and a place for its outputs. A store
//! that refuses is waited for. Nothing is lost meanwhile, and the status says why.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::flyte::CONDITION_PROGRESSING;
use longshore_core::{Action as Do, Asked, Next, Plan};
use longshore_plugins::{ErrorKind, Phase, PhaseInfo, TaskError};
use longshore_proto::flyteidl2::core::TaskTemplate;

use super::{
    ActionPlan, Round, Step, failure,
    publish::{self, Published},
};
use crate::{
    data::{Outcome, Owed},
    model::{Child, Task},
    questions::TaskQuestion,
};

/// Between two looks into a store that does not answer: at least, and at most.
const LOOKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What the status says of an attempt whose store does not tell what it left behind; then why.
const ENDED: &str = "the attempt has ended, and waits for what it left behind: ";

/// What an attempt owes that looks like this: nothing is looked for before it has ended by itself.
pub(crate) fn owes(info: &PhaseInfo, template: &TaskTemplate) -> Option<Owed> {
    match info.phase {
        Phase::Success => Some(owed(template)),
        Phase::RetryableFailure | Phase::PermanentFailure => {
            has_failed_itself(info).then_some(Owed::Nothing)
        }
        Phase::Undefined
        | Phase::NotReady
        | Phase::WaitingForResources
        | Phase::Queued
        | Phase::Initializing
        | Phase::Running
        | Phase::WaitingForCache
        | Phase::Aborted => None,
    }
}

/// What a task owes that has succeeded.
pub(super) fn owed(template: &TaskTemplate) -> Owed {
    let interface = template.interface.as_ref();
    let outputs = interface.and_then(|interface| interface.outputs.as_ref());
    if outputs.is_some_and(|outputs| !outputs.variables.is_empty()) {
        Owed::Outputs
    } else {
        Owed::Nothing
    }
}

/// Whether a failure is that of its code, which may have said why, and neither the cluster's nor that of a resource
/// whose code never ran.
fn has_failed_itself(info: &PhaseInfo) -> bool {
    let kind = info.error.as_ref().map(|error| error.kind);
    kind == Some(ErrorKind::User) && !info.cleanup_on_failure
}

/// Looks for what an attempt left behind that has ended by itself; `None` where that is known, or is not looked for.
pub(super) fn look(round: &Round<'_>, task: &Task, child: &Child) -> Option<ActionPlan> {
    task.owed?;
    match &task.outcome {
        Asked::Answered { .. } => None,
        Asked::UnderWay { .. } => Some(Plan::await_change()),
        Asked::NotAsked | Asked::AskedByAnother => Some(look_again(task, child)),
        Asked::Failed { at, message, .. } => {
            let mut plan = wait(round, task, *at, message);
            if plan.next == Next::After(Duration::ZERO) {
                let again = look_again(task, child);
                plan.actions.extend(again.actions);
                plan.next = again.next;
            }
            Some(plan)
        }
    }
}

/// Asks its store what an attempt left behind.
pub(super) fn look_again(task: &Task, child: &Child) -> ActionPlan {
    Plan::of(vec![Do::Ask(TaskQuestion::Outcome {
        of: child.target.uid.clone().unwrap_or_default(),
        prefix: task.context.paths.output_prefix.clone(),
        owed: task.owed.unwrap_or(Owed::Nothing),
    })])
}

/// The attempt failed by itself. It may have written down why, which says more than an exit code.
pub(super) fn fail(round: &Round<'_>, task: &Task) -> ActionPlan {
    match task.outcome.answer() {
        Some(Outcome::Failed {
            error,
            is_recoverable,
        }) => fail_as_written(round, task, error, *is_recoverable),
        Some(Outcome::Complete | Outcome::Incomplete(_)) | None => {
            failure::decide(round, task, task.info.clone())
        }
    }
}

/// The attempt ended, and wrote down why it failed.
pub(super) fn fail_as_written(
    round: &Round<'_>,
    task: &Task,
    error: &TaskError,
    is_recoverable: bool,
) -> ActionPlan {
    let info = written_failure(&task.info, error, is_recoverable);
    failure::decide(round, task, info)
}

/// The phase of an attempt that wrote down why it failed.
pub(super) fn written_failure(
    info: &PhaseInfo,
    error: &TaskError,
    is_recoverable: bool,
) -> PhaseInfo {
    PhaseInfo {
        phase: if is_recoverable {
            Phase::RetryableFailure
        } else {
            Phase::PermanentFailure
        },
        error: Some(error.clone()),
        ..info.clone()
    }
}

/// The attempt ended, and the last request to its store failed. Why is published once: a store may have other words each
/// time, as the number of the request, and the condition Waiting has the last ones.
fn wait(round: &Round<'_>, task: &Task, asked_at: Timestamp, why: &str) -> ActionPlan {
    let progress = round.action.status.condition(CONDITION_PROGRESSING);
    let told = progress.filter(|it| it.message.starts_with(ENDED));
    let reason = told.map_or_else(|| format!("{ENDED}{why}"), |it| it.message.clone());
    let info = PhaseInfo::of(Phase::Running, reason).ordered_after(&publish::stored(round, task));
    let published = Published {
        system_failures: round.action.status.system_failures,
        ..Published::started(round, info)
    };
    let ended_at = task.info.occurred_at.unwrap_or(round.now);
    let since = Duration::try_from(round.now.duration_since(ended_at)).unwrap_or_default();
    let (shortest, longest) = LOOKS;
    let pause = since.clamp(shortest, longest);
    Plan {
        actions: publish::plan(round, task, published).actions,
        ..Plan::after(pause.saturating_sub(round.since(asked_at)))
    }
}

/// Reads the inputs that the resource is built from; `None` where they are known, or are not needed.
pub(super) fn read_inputs(round: &Round<'_>, task: &Task) -> Option<ActionPlan> {
    if !task.plugin.needs_inputs(&task.context) {
        return None;
    }
    let read = || {
        let url = task.context.paths.input.clone();
        Do::Ask(TaskQuestion::Inputs { url })
    };
    match &task.inputs {
        Asked::Answered { .. } => None,
        Asked::UnderWay { .. } => Some(Plan::await_change()),
        Asked::NotAsked | Asked::AskedByAnother => Some(Plan::of(vec![read()])),
        Asked::Failed { at, message, .. } => {
            let reason = format!("waiting for the inputs: {message}");
            Some(wait_for_store(round, task, reason, *at, read()))
        }
    }
}

/// Makes the directory that the attempt writes to, before its resource; `None` where it is made, or its store has no
/// directories.
pub(super) fn make_directory(round: &Round<'_>, task: &Task) -> Option<ActionPlan> {
    let make = || {
        let url = task.context.paths.output_prefix.clone();
        Do::Ask(TaskQuestion::Directory { url })
    };
    match task.directory.as_ref()? {
        Asked::Answered { .. } => None,
        Asked::UnderWay { .. } => Some(Plan::await_change()),
        Asked::NotAsked | Asked::AskedByAnother => Some(Plan::of(vec![make()])),
        Asked::Failed { at, message, .. } => {
            let reason = format!("waiting for a place for its outputs: {message}");
            let mut plan = wait_for_store(round, task, reason, *at, make());
            if plan
                .actions
                .iter()
                .any(|step| matches!(step, Do::Persist(_)))
            {
                let warning = longshore_api::flyte::REASON_NO_OUTPUT_DIRECTORY;
                plan.actions.push(round.warn(warning, message.clone()));
            }
            Some(plan)
        }
    }
}

/// The resource cannot be created yet: the status says why, and the store is asked again.
fn wait_for_store(
    round: &Round<'_>,
    task: &Task,
    reason: String,
    asked_at: Timestamp,
    again: Step,
) -> ActionPlan {
    let info = PhaseInfo::of(Phase::WaitingForResources, reason)
        .ordered_after(&publish::stored(round, task));
    let mut actions = publish::plan(round, task, Published::waiting(round, info)).actions;
    let left = round.policy.requeue.saturating_sub(round.since(asked_at));
    if !left.is_zero() {
        return Plan {
            actions,
            ..Plan::after(left)
        };
    }
    actions.push(again);
    Plan::of(actions)
}
