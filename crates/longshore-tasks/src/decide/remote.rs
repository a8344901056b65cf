//! The current attempt of a task that makes no resource: what its plugin wants remembered is written first, then done.
//!
//! A crash between the record and the question leaves a state that says that the question was about to be asked: what
//! the plugin makes of that is its own to say, and it does not ask twice what must not be asked twice.

use std::time::Duration;

use longshore_api::flyte::TaskActionStatus;
use longshore_core::{Action as Do, Next, Plan, Seen};
use longshore_plugins::{ErrorKind, K8sState, Phase, PhaseInfo, STATE_VERSION, Step, TaskContext};

use super::{
    ActionPlan, Effect, LOOK_AGAIN, Round,
    cached::{self, Attempt},
    failure,
    publish::{self},
};
use crate::{
    catalog::{Cached, CatalogCacheStatus},
    data::Outcome,
    model::RemoteTask,
};

impl Attempt for RemoteTask {
    fn context(&self) -> &TaskContext {
        &self.context
    }

    fn cached(&self) -> &Seen<Cached> {
        &self.cached
    }

    /// Whatever its plugin does is first on record.
    fn is_launched(&self, round: &Round<'_>) -> bool {
        !round.action.status.plugin_state.is_empty()
    }

    fn last(&self, _: &Round<'_>) -> K8sState {
        self.context.last.clone()
    }

    fn go_on(&self, round: &Round<'_>) -> ActionPlan {
        decide(round, self)
    }

    fn publish_unlaunched(
        &self,
        round: &Round<'_>,
        info: PhaseInfo,
        cache: CatalogCacheStatus,
    ) -> ActionPlan {
        let info = publish::told_apart(info, &self.context.last);
        let status = TaskActionStatus {
            cache_status: cache.into(),
            ..forgetting(round)
        };
        publish(round, self, status, &info)
    }

    fn publish_success(&self, round: &Round<'_>, cache: CatalogCacheStatus) -> ActionPlan {
        let Ok(step) = &self.step else {
            return Plan::after(LOOK_AGAIN);
        };
        let status = TaskActionStatus {
            system_failures: 0,
            cache_status: cache.into(),
            ..remembering(round, &step.state)
        };
        publish(round, self, status, &step.info)
    }
}

/// Decides upon an attempt whose action has its finalizer.
fn decide(round: &Round<'_>, task: &RemoteTask) -> ActionPlan {
    let step = match &task.step {
        Ok(step) => step,
        Err(error) => {
            let lost =
                PhaseInfo::retryable(ErrorKind::System, "CorruptedPluginState", error.to_string());
            return fail(round, task, lost);
        }
    };
    match step.info.phase {
        Phase::Undefined => Plan::after(round.policy.requeue),
        Phase::NotReady
        | Phase::WaitingForResources
        | Phase::Queued
        | Phase::Initializing
        | Phase::Running
        | Phase::WaitingForCache => go_on(round, task, step),
        Phase::Success => succeed(round, task, step),
        Phase::RetryableFailure | Phase::PermanentFailure | Phase::Aborted => {
            fail(round, task, step.info.clone())
        }
    }
}

/// Remembers, then asks.
fn go_on(round: &Round<'_>, task: &RemoteTask, step: &Step) -> ActionPlan {
    let mut status = remembering(round, &step.state);
    if step.info.phase >= Phase::Initializing {
        status.system_failures = 0;
    }
    let info = publish::told_apart(step.info.clone(), &task.context.last);
    let mut actions = publish(round, task, status, &info).actions;
    let next = match &step.call {
        // The answer leads to a round.
        Some(call) => {
            actions.push(Do::Call(Effect::Ask(Box::new(call.clone()))));
            Next::AwaitChange
        }
        None => step.again.map_or(Next::AwaitChange, Next::After),
    };
    Plan { actions, next }
}

fn succeed(round: &Round<'_>, task: &RemoteTask, step: &Step) -> ActionPlan {
    if let Some(outputs) = &step.outputs {
        let mut plan = cached::succeed(round, task);
        let cached = task.cached.present();
        if cached.is_none_or(|cached| cached.kept.is_none()) {
            let prefix = task.context.paths.output_prefix.clone();
            let outputs = outputs.clone();
            // Whoever hears of the success finds them, and so does the cache.
            let write = Effect::WriteOutputs { prefix, outputs };
            plan.actions.insert(0, Do::Call(write));
        }
        return plan;
    }
    match &task.outcome {
        Seen::Unknown(_) | Seen::Absent => Plan::after(LOOK_AGAIN),
        Seen::Present(Outcome::Complete) => cached::succeed(round, task),
        Seen::Present(Outcome::Failed {
            error,
            is_recoverable,
        }) => {
            let phase = if *is_recoverable {
                Phase::RetryableFailure
            } else {
                Phase::PermanentFailure
            };
            let info = PhaseInfo {
                error: Some(error.clone()),
                ..PhaseInfo::of(phase, "")
            };
            fail(round, task, info)
        }
        Seen::Present(Outcome::Incomplete(why)) => system_failure(round, task, why, false),
    }
}

fn fail(round: &Round<'_>, task: &RemoteTask, info: PhaseInfo) -> ActionPlan {
    let kind = info.error.as_ref().map(|error| error.kind);
    if info.phase == Phase::RetryableFailure && kind == Some(ErrorKind::System) {
        let text = info.error.as_ref().map_or_else(String::new, failure::words);
        return system_failure(round, task, &text, true);
    }
    if info.phase == Phase::RetryableFailure && round.action.attempt() < task.context.max_attempts {
        let status = TaskActionStatus {
            attempts: round.action.attempt().saturating_add(1),
            system_failures: 0,
            ..forgetting(round)
        };
        let info = PhaseInfo::of(Phase::Queued, "restarting task");
        return Plan {
            next: Next::After(Duration::ZERO),
            ..publish(round, task, status, &info)
        };
    }
    let info = if info.phase == Phase::RetryableFailure {
        failure::exhausted(round, info)
    } else {
        info
    };
    let state = task.step.as_ref().map(|step| step.state.as_slice());
    let status = remembering(round, state.unwrap_or(&round.action.status.plugin_state));
    publish(round, task, status, &info)
}

/// Begins anew, or looks again, unless that was done too often.
fn system_failure(
    round: &Round<'_>,
    task: &RemoteTask,
    text: &str,
    begins_anew: bool,
) -> ActionPlan {
    let id = task.plugin.id();
    let n = round.action.status.system_failures.saturating_add(1);
    if let Some(info) = failure::too_many(round, id, text) {
        let status = TaskActionStatus {
            system_failures: n,
            ..remembering(round, &round.action.status.plugin_state)
        };
        return publish(round, task, status, &info);
    }
    let status = if begins_anew {
        forgetting(round)
    } else {
        round.action.status.clone()
    };
    let mut actions = Vec::new();
    // What was begun must not run beside what is begun next.
    if let Some(call) = task.abort.as_ref().filter(|_| begins_anew) {
        actions.push(Do::Call(Effect::End(Box::new(call.clone()))));
    }
    actions.push(round.record(TaskActionStatus {
        system_failures: n,
        ..status
    }));
    actions.push(failure::warning(round, id, text));
    Plan {
        actions,
        ..Plan::after(round.policy.requeue)
    }
}

/// Publishes a phase with a status that says the rest already; nothing where that is no news.
fn publish(
    round: &Round<'_>,
    task: &RemoteTask,
    status: TaskActionStatus,
    info: &PhaseInfo,
) -> ActionPlan {
    let Some(written) = publish::write(round, &task.context, status, info) else {
        return Plan::await_change();
    };
    // First, or nobody would know of it after a crash. Nothing of the attempt runs any more.
    let released = info.phase.is_terminal().then(|| cached::release(task));
    let mut actions: Vec<_> = released.flatten().into_iter().collect();
    actions.extend(written);
    Plan::of(actions)
}

/// The status with what the plugin wants remembered.
fn remembering(round: &Round<'_>, state: &[u8]) -> TaskActionStatus {
    TaskActionStatus {
        attempts: round.action.attempt(),
        plugin_state: state.to_vec(),
        plugin_state_version: if state.is_empty() { 0 } else { STATE_VERSION },
        cache_status: CatalogCacheStatus::CacheDisabled.into(),
        ..round.action.status.clone()
    }
}

/// The status of something that has not begun.
fn forgetting(round: &Round<'_>) -> TaskActionStatus {
    remembering(round, &[])
}
