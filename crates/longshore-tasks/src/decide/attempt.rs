//! The current attempt: launched once, then checked until it ends (task action spec §9.1).

use std::time::Duration;

use jiff::Timestamp;
use longshore_core::{Action as Do, Asked, Plan, Resource};
use longshore_plugins::{
    BAD_TASK_SPECIFICATION, BuildError, ErrorKind, Launch, NOTHING_KNOWN, Phase, PhaseInfo,
};

use super::{
    ActionPlan, LOOK_AGAIN, Round, Step, cached, failure,
    merge::{self, Due},
    outcome,
    publish::{self, Published},
    release, timeout,
};
use crate::{
    build,
    data::Outcome,
    model::{Belongs, Blocked, Child, CreateFailure, InForm, LaunchId, Task},
};

/// Between two looks at a name that is taken: at least, and at most.
const NAME_TAKEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The reason of a phase right after the create.
pub(super) const REASON_SUBMITTED: &str = "task submitted to K8s";

/// Decides upon an attempt whose action has its finalizer.
pub(super) fn decide(round: &Round<'_>, task: &Task) -> ActionPlan {
    let child = round.action.children.current.present();
    match (&task.state, child) {
        (Ok(state), None) if state.launch == Launch::NotStarted => launch(round, task),
        (Ok(state), Some(child)) if state.launch == Launch::NotStarted => match child.belongs {
            Belongs::ToThisLaunch => check(round, task, child),
            // What is left of the launch before.
            Belongs::ToThisAttempt => Plan {
                actions: release(child),
                ..Plan::after(round.policy.requeue)
            },
            Belongs::ToThisAction | Belongs::ToOthers => wait_for_name(round, task, child),
        },
        (Ok(_) | Err(_), Some(child)) if child.is_of_attempt() => check(round, task, child),
        (Ok(_), _) => failure::decide(round, task, deleted_externally(task)),
        (Err(error), _) => {
            let code = "CorruptedPluginState";
            let lost = PhaseInfo::retryable(ErrorKind::System, code, error.to_string());
            failure::decide(round, task, lost)
        }
    }
}

fn deleted_externally(task: &Task) -> PhaseInfo {
    let name = address(task);
    PhaseInfo::retryable(
        ErrorKind::System,
        "ResourceDeletedExternally",
        format!("resource not found, name [{name}]. reason: it was deleted before the task ended"),
    )
}

fn address(task: &Task) -> String {
    let name = task.plugin.resource_name(&task.context);
    format!("{}/{name}", task.context.namespace)
}

/// Creates the resource, or says why it cannot be.
fn launch(round: &Round<'_>, task: &Task) -> ActionPlan {
    let left = task.not_before.map(|at| round.until(at));
    if let Some(left) = left.filter(|left| !left.is_zero()) {
        return Plan::after(left);
    }
    let blocked = task.blocked.as_ref().map(|blocked| &blocked.kind);
    match blocked {
        Some(CreateFailure::Refused { code, message }) => {
            failure::decide(round, task, refused(*code, message))
        }
        // Told once; then it is tried again after each back-off.
        Some(CreateFailure::OverQuota(message)) if !is_waiting(round) => {
            let info = PhaseInfo::of(Phase::WaitingForResources, message);
            publish::plan(round, task, Published::waiting(round, info))
        }
        Some(CreateFailure::NotServed(definition)) => {
            let reason = format!(
                "the API server does not serve {definition}: waiting for it; install the operator that brings it"
            );
            let info = PhaseInfo::of(Phase::WaitingForResources, reason);
            publish::plan(round, task, Published::waiting(round, info))
        }
        Some(CreateFailure::OverQuota(_) | CreateFailure::NameTaken | CreateFailure::Failed(_))
        | None => create(round, task),
    }
}

fn create(round: &Round<'_>, task: &Task) -> ActionPlan {
    if let Some(plan) = outcome::read_inputs(round, task) {
        return plan;
    }
    let id = LaunchId::of(&round.action.target, &round.action.status);
    let create = match build::create(&round.action.target, task, &id, round.config) {
        Ok(create) => create,
        Err(error) => return failure::decide(round, task, cannot_be_built(&error)),
    };
    let earlier = round.action.children.earlier.iter();
    let mut earlier = earlier.filter(|child| child.belongs != Belongs::ToOthers);
    // Pods of operators may run on where the resource says that it failed, and so does a pod that ran for too long.
    if earlier.any(|child| child.target.resource != Resource::POD || !child.is_over) {
        return Plan {
            actions: let_go_of_earlier(round),
            ..Plan::after(round.policy.requeue)
        };
    }
    if let Some(plan) = outcome::make_directory(round, task) {
        return plan;
    }
    let mut actions = let_go_of_earlier(round);
    actions.push(Do::Create(create));
    let info = PhaseInfo::of(Phase::Queued, REASON_SUBMITTED);
    let published = publish::plan(round, task, Published::started(round, info));
    actions.extend(published.actions);
    Plan {
        actions,
        next: published.next,
    }
}

/// The removal of what earlier attempts left.
pub(super) fn let_go_of_earlier(round: &Round<'_>) -> Vec<Step> {
    let earlier = round.action.children.earlier.iter();
    earlier
        .filter(|child| child.belongs != Belongs::ToOthers)
        .flat_map(release)
        .collect()
}

fn cannot_be_built(error: &BuildError) -> PhaseInfo {
    if error.code == BAD_TASK_SPECIFICATION {
        return PhaseInfo::permanent(ErrorKind::User, error.code, &error.message);
    }
    let message = format!("Failed to build resource, caused by: {}", error.message);
    PhaseInfo::permanent(ErrorKind::User, "BadTaskDefinition", message)
}

/// What follows from a create that the API server refused for good.
fn refused(code: u16, message: &str) -> PhaseInfo {
    let user = ErrorKind::User;
    match code {
        400 => PhaseInfo::permanent(user, "BadRequest", message),
        403 => PhaseInfo::retryable(user, "RuntimeFailure", message),
        413 => PhaseInfo::permanent(user, "EntityTooLarge", message),
        422 => PhaseInfo::permanent(user, "InvalidResource", message),
        _ => {
            let message = format!("failed to create resource: {message}");
            PhaseInfo::retryable(ErrorKind::System, "FailedToCreateResource", message)
        }
    }
}

fn is_waiting(round: &Round<'_>) -> bool {
    let phase = Phase::parse(&round.action.status.plugin_phase);
    phase == Some(Phase::WaitingForResources)
}

/// An object that is not ours has the name.
fn wait_for_name(round: &Round<'_>, task: &Task, child: &Child) -> ActionPlan {
    let (shortest, longest) = NAME_TAKEN;
    let wait = task.blocked.as_ref().map_or(shortest, |blocked: &Blocked| {
        let since = round.now.duration_since(blocked.since);
        Duration::try_from(since).unwrap_or_default()
    });
    let next = Plan::after(wait.clamp(shortest, longest));
    if child.is_deleting || is_waiting(round) {
        return next;
    }
    let reason = format!(
        "{} exists and is not of this action: waiting for it to go; delete it or rename the action",
        child.target
    );
    let info = PhaseInfo::of(Phase::WaitingForResources, reason);
    Plan {
        actions: publish::plan(round, task, Published::waiting(round, info)).actions,
        ..next
    }
}

/// Looks at the resource.
fn check(round: &Round<'_>, task: &Task, child: &Child) -> ActionPlan {
    if let Some(plan) = outcome::look(round, task, child) {
        return plan;
    }
    let info = &task.info;
    match info.phase {
        // Its state is not known: its node does not answer, for example.
        Phase::Undefined => Plan::after(round.policy.requeue),
        Phase::NotReady
        | Phase::WaitingForResources
        | Phase::Queued
        | Phase::Initializing
        | Phase::Running
        | Phase::WaitingForCache
            if child.is_deleting =>
        {
            let message = format!(
                "object [{}] terminated unexpectedly in the background",
                address(task)
            );
            let code = "UnexpectedObjectDeletion";
            let lost = PhaseInfo::retryable(ErrorKind::System, code, message);
            failure::decide(round, task, lost)
        }
        Phase::NotReady
        | Phase::WaitingForResources
        | Phase::Queued
        | Phase::Initializing
        | Phase::WaitingForCache => go_on(round, task),
        Phase::Running => run_on(round, task),
        Phase::Success => succeed(round, task, child),
        Phase::RetryableFailure | Phase::PermanentFailure | Phase::Aborted => {
            outcome::fail(round, task)
        }
    }
}

/// Follows an attempt that runs for as long as it may.
fn run_on(round: &Round<'_>, task: &Task) -> ActionPlan {
    timeout::limit(
        timeout::of_resource(round, task),
        &task.context,
        || go_on(round, task),
        |exceeded| failure::decide(round, task, exceeded),
    )
}

/// Publishes how far it is, at once or together with what follows.
fn go_on(round: &Round<'_>, task: &Task) -> ActionPlan {
    let stored = publish::stored(round, task);
    let mut info = round.action.form.info(task.info.clone());
    // That nothing is known of a pod yet is no news.
    if info.phase == Phase::Queued && info.reason == NOTHING_KNOWN {
        let known = Some(&stored.reason).filter(|_| stored.phase == Phase::Queued);
        info.reason = known.map_or_else(|| REASON_SUBMITTED.to_owned(), Clone::clone);
    }
    let happened = task.pod_events.iter().map(Into::into).collect();
    let info = info.ordered_after(&stored).with_reasons(happened, &stored);
    match merge::due(&stored, task, &info, round.exactly) {
        Due::Never => publish::nothing(round, &info),
        Due::In(time) => Plan::after(time),
        Due::Now => publish::plan(round, task, Published::started(round, info)),
    }
}

fn succeed(round: &Round<'_>, task: &Task, child: &Child) -> ActionPlan {
    let Asked::Answered { at, answer } = &task.outcome else {
        return Plan::after(LOOK_AGAIN);
    };
    match answer {
        Outcome::Complete => cached::succeed(round, task),
        Outcome::Failed {
            error,
            is_recoverable,
        } => outcome::fail_as_written(round, task, error, *is_recoverable),
        Outcome::Incomplete(why) => incomplete(round, task, child, *at, why),
    }
}

/// Stores can be slow to show what was written: the attempt is given some looks, one per `requeue` from its end on, so
/// that none is counted twice.
fn incomplete(
    round: &Round<'_>,
    task: &Task,
    child: &Child,
    looked_at: Timestamp,
    why: &str,
) -> ActionPlan {
    let ended_at = task.info.occurred_at.unwrap_or(round.now);
    let looks = round.policy.requeue * round.action.status.system_failures;
    let left = |at: Timestamp| {
        let since = Duration::try_from(at.duration_since(ended_at)).unwrap_or_default();
        looks.checked_sub(since).filter(|left| !left.is_zero())
    };
    if let Some(left) = left(round.now) {
        return Plan::after(left);
    }
    // By the second, as the end of the attempt is.
    let looked_at = Timestamp::from_second(looked_at.as_second()).unwrap_or(looked_at);
    if left(looked_at).is_some() {
        return outcome::look_again(task, child);
    }
    failure::look_failed(round, task, why)
}
