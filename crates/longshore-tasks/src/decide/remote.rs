//! The current attempt of a task that makes no resource: what its plugin wants remembered is written first, then done.
//!
//! A crash between the record and the question leaves a state that says that the question was about to be asked: what
//! the plugin makes of that is its own to say, and it does not ask twice what must not be asked twice. Such a question
//! first waits for its turn, of which nothing is on record; the round that has the turn writes the record and asks. So a
//! process that ends leaves such states of those jobs only whose turn had come.
//!
//! Which job a connector has begun, nothing but its answer says. It is on record before anything is reported, because a
//! report may hang for as long as the events service does. This status and that of a turn are the only ones that are
//! written without a report: they say nothing that the run service would be told, and the next step reports the job.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::flyte::TaskActionStatus;
use longshore_core::{Action as Do, Asked, Next, NoAnswer, Plan, Question as _};
use longshore_kit::Turn;
use longshore_plugins::{ErrorKind, K8sState, Phase, PhaseInfo, STATE_VERSION, Step, TaskContext};

use super::{
    ActionPlan, LOOK_AGAIN, Round,
    cached::{self, Attempt},
    failure, outcome,
    publish::{self},
    timeout,
};
use crate::{
    catalog::{Cache, CatalogCacheStatus},
    data::Outcome,
    model::RemoteTask,
    questions::{DELETE, TaskQuestion, fingerprint},
};

/// How long a connector has for the end of a job whose attempt has failed.
const END_TIMEOUT: Duration = Duration::from_mins(1);

impl Attempt for RemoteTask {
    fn context(&self) -> &TaskContext {
        &self.context
    }

    fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Whatever its plugin does is first on record.
    fn is_launched(&self, round: &Round<'_>) -> bool {
        !round.action.status.plugin_state.is_empty()
    }

    fn needs_inputs(&self, _: &Round<'_>) -> bool {
        self.inputs.is_some()
    }

    fn ended(&self, round: &Round<'_>) -> Option<String> {
        Some(round.action.attempt().to_string())
    }

    fn announced(&self) -> Option<String> {
        let announced = self.step.as_ref().ok()?.announced.as_ref()?;
        Some(fingerprint(announced))
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
        let info = publish::with_own_version(info, &self.context.last);
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
    if let Some(plan) = await_lists(round, task) {
        return plan;
    }
    if let Some(plan) = read_inputs(round, task) {
        return plan;
    }
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
        | Phase::WaitingForCache => go_on(round, task, step),
        Phase::Running => timeout::limit(
            timeout::of_remote(round, task),
            &task.context,
            || go_on(round, task, step),
            |exceeded| fail(round, task, exceeded),
        ),
        Phase::Success => succeed(round, task, step),
        Phase::RetryableFailure | Phase::PermanentFailure | Phase::Aborted => {
            fail(round, task, step.info.clone())
        }
    }
}

/// Records the job that its connector has begun, and nothing else; `None` where none was, or the status has it.
pub(super) fn record_job(round: &Round<'_>, task: &RemoteTask) -> Option<ActionPlan> {
    let step = task.step.as_ref().ok().filter(|_| task.is_begun)?;
    Some(Plan {
        actions: vec![record_state(round, &step.state)],
        ..Plan::after(Duration::ZERO)
    })
}

/// Records what the plugin wants remembered, and nothing that anybody would be told.
fn record_state(round: &Round<'_>, state: &[u8]) -> super::Step {
    round.record(TaskActionStatus {
        plugin_state: state.to_vec(),
        plugin_state_version: STATE_VERSION,
        ..round.action.status.clone()
    })
}

/// Waits for the connectors that have to list their task types before the next step: until then it is not known which one
/// is asked, nor that there is none. `None` where that is known.
fn await_lists(round: &Round<'_>, task: &RemoteTask) -> Option<ActionPlan> {
    task.unlisted.as_ref()?;
    // A list leads to a round of the actions that are known to wait: one that came before leads to none.
    let is_known_to_wait = round.action.unlisted_since.is_some();
    Some(if is_known_to_wait {
        Plan::await_change()
    } else {
        Plan::after(LOOK_AGAIN)
    })
}

/// Reads the inputs that the next step needs; `None` where they are known, or are not needed.
fn read_inputs(round: &Round<'_>, task: &RemoteTask) -> Option<ActionPlan> {
    let url = task.context.paths.input.clone();
    answered(round, task.inputs.as_ref()?, TaskQuestion::Inputs { url })
}

/// Remembers, then asks.
fn go_on(round: &Round<'_>, task: &RemoteTask, step: &Step) -> ActionPlan {
    let status = remembering(round, &step.state);
    let info = publish::with_own_version(step.info.clone(), &task.context.last);
    let mut actions = publish(round, task, status, &info).actions;
    let Some(call) = &step.call else {
        // The step was taken upon this answer; the next one is taken upon another.
        actions.extend(task.answered.clone().map(Do::Used));
        let next = step.again.map_or(Next::AwaitChange, Next::After);
        return Plan { actions, next };
    };
    let (call, to) = (Box::new(call.clone()), task.connector.clone());
    let Some(announced) = &step.announced else {
        // The answer leads to a round.
        let of = fingerprint(on_record(round, &actions));
        actions.push(Do::Ask(TaskQuestion::Connector { of, to, call }));
        return Plan::of(actions);
    };
    let of = fingerprint(announced);
    let ask = Do::Ask(TaskQuestion::Connector { of, to, call });
    match task.turn {
        None => actions.push(ask),
        // Its turn leads to a round.
        Some(Turn::ToCome) => {}
        Some(Turn::Now) if actions.is_empty() => {
            actions.extend([record_state(round, announced), ask]);
        }
        // What is news is told first; the turn lasts for that long.
        Some(Turn::Now) => {
            let next = Next::After(Duration::ZERO);
            return Plan { actions, next };
        }
    }
    Plan::of(actions)
}

/// The state of the plugin that is on record after these actions.
fn on_record<'a>(round: &'a Round<'_>, actions: &'a [super::Step]) -> &'a [u8] {
    let mut written = actions.iter().rev().filter_map(|step| {
        if let Do::Persist(record) = step {
            Some(record.status.plugin_state.as_slice())
        } else {
            None
        }
    });
    let written = written.next();
    written.unwrap_or(&round.action.status.plugin_state)
}

/// Has the connector end what was begun; `None` where nothing was, or it is ended.
pub(super) fn end_job(round: &Round<'_>, task: &RemoteTask) -> Option<ActionPlan> {
    let call = Box::new(task.abort.clone()?);
    let of = fingerprint(&round.action.status.plugin_state);
    let to = task.connector.clone();
    answered(
        round,
        &task.aborted,
        TaskQuestion::Connector { of, to, call },
    )
}

/// The same for a job of an attempt that has failed: a connector that does not answer in time, or refuses because the job
/// is gone, does not keep the failure.
fn try_to_end_job(round: &Round<'_>, task: &RemoteTask) -> Option<ActionPlan> {
    let mut unanswered = round.action.unanswered.iter();
    let first = unanswered.find(|it| it.kind == DELETE).map(|it| it.since);
    let left = |at: Timestamp| END_TIMEOUT.saturating_sub(round.since(first.unwrap_or(at)));
    match &task.aborted {
        Asked::NotAsked | Asked::AskedByAnother => end_job(round, task),
        Asked::UnderWay { since } => {
            let left = left(*since);
            (!left.is_zero()).then(|| Plan::after(left))
        }
        Asked::Failed {
            at,
            why: NoAnswer::Unreachable | NoAnswer::TimedOut,
            ..
        } if !left(*at).is_zero() => end_job(round, task),
        Asked::Answered { .. } | Asked::Failed { .. } => None,
    }
}

fn succeed(round: &Round<'_>, task: &RemoteTask, step: &Step) -> ActionPlan {
    let prefix = task.context.paths.output_prefix.clone();
    if let Some(outputs) = &step.outputs {
        // A client that hears of the success finds them, and so does the cache.
        let outputs = outputs.clone();
        let write = TaskQuestion::Outputs { prefix, outputs };
        let written = answered(round, &task.written, write);
        return written.unwrap_or_else(|| cached::succeed(round, task));
    }
    let look = TaskQuestion::Outcome {
        of: round.action.attempt().to_string(),
        prefix,
        owed: outcome::owed(&task.context.template),
    };
    let id = look.id();
    if let Some(plan) = answered(round, &task.outcome, look) {
        return plan;
    }
    match task.outcome.answer() {
        Some(Outcome::Complete) => cached::succeed(round, task),
        Some(Outcome::Failed {
            error,
            is_recoverable,
        }) => {
            let info = PhaseInfo::of(Phase::Undefined, "");
            fail(
                round,
                task,
                outcome::written_failure(&info, error, *is_recoverable),
            )
        }
        Some(Outcome::Incomplete(why)) => {
            let mut plan = system_failure(round, task, why, false);
            // The next look is another one.
            plan.actions.push(Do::Used(id));
            plan
        }
        None => Plan::after(LOOK_AGAIN),
    }
}

/// Asks until there is an answer; `None` where there is one.
fn answered<T>(round: &Round<'_>, asked: &Asked<T>, question: TaskQuestion) -> Option<ActionPlan> {
    match asked {
        Asked::Answered { .. } => None,
        Asked::UnderWay { .. } => Some(Plan::await_change()),
        Asked::NotAsked | Asked::AskedByAnother => Some(Plan::of(vec![Do::Ask(question)])),
        Asked::Failed { at, .. } => {
            let left = LOOK_AGAIN.saturating_sub(round.since(*at));
            Some(if left.is_zero() {
                Plan::of(vec![Do::Ask(question)])
            } else {
                Plan::after(left)
            })
        }
    }
}

fn fail(round: &Round<'_>, task: &RemoteTask, info: PhaseInfo) -> ActionPlan {
    let kind = info.error.as_ref().map(|error| error.kind);
    if info.phase == Phase::RetryableFailure && kind == Some(ErrorKind::System) {
        let text = info.error.as_ref().map_or_else(String::new, failure::words);
        return system_failure(round, task, &text, true);
    }
    let is_repeated =
        info.phase == Phase::RetryableFailure && round.action.attempt() < task.context.max_attempts;
    // Whatever the failure is: where the job has ended by itself, there is nothing to be ended.
    if let Some(plan) = try_to_end_job(round, task) {
        return plan;
    }
    if is_repeated {
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
        if let Some(plan) = try_to_end_job(round, task) {
            return plan;
        }
        let status = TaskActionStatus {
            system_failures: n,
            ..remembering(round, &round.action.status.plugin_state)
        };
        return publish(round, task, status, &info);
    }
    let status = if begins_anew {
        // What was begun must not run beside what is begun next.
        if let Some(plan) = end_job(round, task) {
            return plan;
        }
        forgetting(round)
    } else {
        round.action.status.clone()
    };
    let record = round.record(TaskActionStatus {
        system_failures: n,
        ..status
    });
    Plan {
        actions: vec![record, failure::warning(round, id, text)],
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
    // First, or a process after a crash would not know of it. Nothing of the attempt runs any more.
    if info.phase.is_terminal()
        && let Some(before) = cached::before_end(task)
    {
        return before;
    }
    Plan::of(written)
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
