//! What is done about a TaskAction. One round is about one action.
//!
//! The status is the write-ahead log, and one successful action costs six requests:
//!
//! | Request | What it records |
//! |---|---|
//! | finalizer | the intent: from now on a resource of the attempt in the status may exist |
//! | create | – |
//! | status `Queued` | the resource existed: if it is not there any more, it was deleted from outside |
//! | status `Executing` | |
//! | status `Completed` | the end |
//! | labels | for the collector |
//!
//! What else is published on the way is one more status, if it does not go with one of these: see [`merge`]. After a
//! write of its own the controller has no round because of it; a plan says itself when to go on.
//!
//! A crash between the create and the status leaves an attempt that is not started, and a resource with the name and
//! the annotation of its launch ([`LaunchId`](crate::model::LaunchId)). The next round finds it in the cache, or
//! creates it again and meets it, and goes on with it: there is one resource for each launch. The next attempt, and
//! the next launch of an attempt after a system failure, are in the status before their resource is created.
//!
//! One case cannot be told from here: the process ended between create and status, *and* a client deleted the resource
//! before the next start. It is created again. `plugins.k8s.inject-finalizer` keeps resources from going unseen.
//!
//! The kit sends the questions to stores, the catalog, connectors and the run service, beside the rounds
//! ([`TaskQuestion`]). A round whose question is under way changes nothing that depends on the answer; the answer leads to
//! the next round, and is used up after the record of what it means. What only the next round needs, the plan notes in
//! the memory of the controller ([`Note`]).
//!
//! Each file has a part: [`cached`] looks into the cache first, [`attempt`] launches and checks, [`failure`] retries or
//! gives up, [`merge`] says when a change is written, [`publish`] writes it, [`outcome`] is about what attempts leave
//! behind, [`remote`] is for tasks without a resource, [`report`] sends events before the status is written, [`hold`]
//! writes what holds the action, [`undone`] has the words for what the API server does not do, [`too_large`] is about
//! statuses that are too large, [`timeout`] limits how long an attempt runs, and [`delete`], [`condition`] and [`ended`]
//! are for actions that are being deleted, wait for a person, or have ended. [`abort`] is for plugins whose resources are
//! not just deleted with their action.

mod abort;
mod attempt;
mod cached;
mod condition;
mod delete;
mod ended;
mod failure;
mod hold;
mod merge;
mod outcome;
mod publish;
mod remote;
mod report;
mod timeout;
mod too_large;
pub(crate) mod undone;

pub(crate) use cached::may_begin;
pub(crate) use merge::pending;
pub(crate) use outcome::owes;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_api::flyte::TaskActionStatus;
use longshore_core::{
    Action as Do, Announcement, Delete, EventType, Next, ObjectRef, Plan, Resource, Seen,
};
use longshore_plugins::{ErrorKind, K8sConfig, Paths, PhaseInfo};
use serde_json::Value;

use self::cached::Attempt;
use crate::{
    config::Policy,
    model::{Action, Child, Fact, InForm, Invalid, Note, Task, Work},
    questions::{CREATE, TaskQuestion, fingerprint, spent},
    status,
};

/// The next round after a read that failed, if no change comes before.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// All that a round is decided upon.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The clock.
    pub now: Timestamp,
    /// The action.
    pub action: Seen<Action>,
}

/// A status to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The action.
    pub target: ObjectRef,
    /// The action as it was decided upon.
    pub seen: Arc<Value>,
    /// Its new status.
    pub status: TaskActionStatus,
    /// Whether its task makes no resource: such a plugin has to know which states this process has written.
    pub is_remote: bool,
}

/// The plan of a round about an action.
pub type ActionPlan = Plan<Record, Note, TaskQuestion>;

/// One action of such a plan.
type Step = Do<Record, Note, TaskQuestion>;

/// Decides one round.
pub fn decide(policy: &Policy, config: &K8sConfig, observed: &Observed) -> ActionPlan {
    let plan = of_observed(policy, config, observed);
    match &observed.action {
        Seen::Present(action) => hold::look_again(action, plan),
        Seen::Absent | Seen::Unknown(_) => plan,
    }
}

fn of_observed(policy: &Policy, config: &K8sConfig, observed: &Observed) -> ActionPlan {
    let action = match &observed.action {
        Seen::Present(action) => action,
        Seen::Absent => return Plan::await_change(),
        Seen::Unknown(_) => return Plan::after(LOOK_AGAIN),
    };
    let round = Round {
        policy,
        config,
        // A status has whole seconds.
        now: Timestamp::from_second(observed.now.as_second()).unwrap_or(observed.now),
        exactly: observed.now,
        action,
    };
    let children = &action.children;
    if let Seen::Unknown(why) = &children.current {
        return hold::blind(&round, why);
    }
    if let Some(Seen::Unknown(why)) = children.abort.as_ref().map(|abort| &abort.object) {
        return hold::blind(&round, why);
    }
    let mut plan = too_large::say(&round, hold::say(&round, of_action(&round)));
    let gone = action.children.newly_gone.clone().map(Fact::Gone);
    let is_seen_again = action.undone.unread_since.is_some();
    let seen = is_seen_again.then_some(Fact::Unread(None));
    let waits = matches!(&action.work, Work::Remote(task) if task.unlisted.is_some());
    let is_known = waits == action.unlisted_since.is_some();
    let listed = (!is_known).then(|| Fact::Unlisted(waits.then_some(round.exactly)));
    let notes = gone.into_iter().chain(seen).chain(listed);
    let notes = notes.map(|fact| round.note(fact));
    plan.actions.splice(0..0, notes);
    plan
}

fn of_action(round: &Round<'_>) -> ActionPlan {
    let action = round.action;
    // What its connector is about to begin is not known before it answers.
    if let Work::Remote(task) = &action.work
        && task.is_under_way
    {
        return Plan::await_change();
    }
    // The next round takes the step, once it is known whether there is a slot.
    if let Work::Remote(task) = &action.work
        && let Some(change) = &task.slot
    {
        return Plan {
            actions: vec![round.note(Fact::Slot(change.clone()))],
            ..Plan::after(Duration::ZERO)
        };
    }
    // Before anything that may wait for a foreign system, and also where the action is being deleted.
    if let Work::Remote(task) = &action.work
        && let Some(plan) = remote::record_job(round, task)
    {
        return plan;
    }
    if action.is_deleting {
        return cancel_reads(round, report::first(round, delete::decide(round)));
    }
    if action.status.is_terminal() {
        return ended::decide(round);
    }
    match &action.work {
        Work::Condition => condition::decide(round),
        Work::Invalid(invalid) => report::first(round, round.refuse(invalid)),
        Work::Nothing => Plan::await_change(),
        Work::Task(task) if action.has_finalizer => {
            let plan = report::first(round, cached::decide(round, &**task));
            remember(round, task, use_up(round, &**task, plan))
        }
        Work::Remote(task) if action.has_finalizer => {
            let plan = report::first(round, cached::decide(round, &**task));
            use_up(round, &**task, plan)
        }
        // The cache learns from the answer: there is nothing to wait for.
        Work::Task(_) | Work::Remote(_) => Plan {
            actions: vec![Do::EnsureFinalizer {
                target: action.target.clone(),
                finalizer: longshore_api::flyte::FINALIZER_PLUGIN,
            }],
            ..Plan::after(Duration::ZERO)
        },
    }
}

/// The same plan, which first leaves for the next round what that needs.
fn remember(round: &Round<'_>, task: &Task, mut plan: ActionPlan) -> ActionPlan {
    if task.new_head.is_some() {
        // Its changes lead to rounds from now on: a change before now is found by another look.
        plan.next = Next::After(Duration::ZERO);
    }
    let head = task.new_head.clone().map(Fact::Head);
    let pending = task.to_remember.clone().map(Fact::Pending);
    let notes = head.into_iter().chain(pending);
    let notes = notes.map(|fact| round.note(fact));
    plan.actions.splice(0..0, notes);
    plan
}

/// The same plan of an action that is being deleted, which also cancels the questions whose answers the action does not
/// need: none of these questions delays it.
///
/// They are cancelled last, because an answer outlives each record that may fail.
fn cancel_reads(round: &Round<'_>, mut plan: ActionPlan) -> ActionPlan {
    let state = fingerprint(&round.action.status.plugin_state);
    // A job whose request waits for its turn is not begun any more.
    let is_unsent = |id: &longshore_core::QuestionId| id.kind == CREATE && id.about != state;
    let asked = round.action.asked.iter();
    let unneeded = asked.filter(|id| TaskQuestion::only_reads(id.kind) || is_unsent(id));
    plan.actions.extend(unneeded.cloned().map(Do::Used));
    plan
}

/// The same plan, which also uses up the answers that no later round needs: all of them at the end of the action.
///
/// They are used up last: whatever of the plan fails, it is decided again upon the same answers.
fn use_up(round: &Round<'_>, task: &impl Attempt, mut plan: ActionPlan) -> ActionPlan {
    let ends = |step: &Step| matches!(step, Do::Persist(record) if record.status.is_terminal());
    let is_end = plan.actions.iter().any(ends);
    let (ended, announced) = (task.ended(round), task.announced());
    let stage = spent::Stage {
        is_launched: task.is_launched(round),
        needs_inputs: task.needs_inputs(round),
        prefix: &task.context().paths.output_prefix,
        of: ended.as_deref(),
        state: &fingerprint(&round.action.status.plugin_state),
        announced: announced.as_deref(),
    };
    let asked = round.action.asked.iter();
    let used = asked.filter(|id| is_end || spent::is_spent(id, stage));
    plan.actions.extend(used.cloned().map(Do::Used));
    plan
}

/// What every part of a decision needs.
#[derive(Clone, Copy)]
struct Round<'a> {
    policy: &'a Policy,
    config: &'a K8sConfig,
    /// By the second.
    now: Timestamp,
    /// The same, as the clock has it.
    exactly: Timestamp,
    action: &'a Action,
}

impl Round<'_> {
    /// The time since then; zero where that is yet to come.
    fn since(&self, then: Timestamp) -> Duration {
        Duration::try_from(self.exactly.duration_since(then)).unwrap_or_default()
    }

    /// The time until then; zero where that is over.
    fn until(&self, then: Timestamp) -> Duration {
        Duration::try_from(then.duration_since(self.exactly)).unwrap_or_default()
    }

    /// An action that cannot be run.
    fn refuse(&self, invalid: &Invalid) -> ActionPlan {
        let action = self.action;
        let mut status = action.status.clone();
        status::fail(&mut status, invalid.reason, &invalid.message, self.now);
        let failed = PhaseInfo::permanent(ErrorKind::User, invalid.reason, &invalid.message);
        status.error_state = failed.error.as_ref().map(status::error_state);
        let mut steps = Vec::new();
        // What was told of it must not be the last word. Of a spec that cannot be read, nobody knows the run.
        if !action.status.plugin_phase.is_empty() && !action.spec.run_name.is_empty() {
            let (target, attempt) = (&action.target, action.attempt());
            let paths = Paths::of_action(&target.namespace, &target.name, &action.spec, attempt);
            let event = publish::event(self, &paths.output_prefix, &failed, &action.status);
            steps.push(report::step(self, event));
        }
        steps.extend(self.finish(status));
        steps.extend(self.action.children.ours().flat_map(release));
        let reason = if invalid.reason == longshore_api::flyte::REASON_PLUGIN_NOT_FOUND {
            longshore_api::flyte::REASON_FAILED_PLUGIN_RESOLVE
        } else {
            longshore_api::flyte::REASON_FAILED_VALIDATION
        };
        steps.push(self.warn(reason, invalid.message.clone()));
        Plan::of(steps)
    }

    /// The record of a terminal status, and the labels that follow.
    fn finish(&self, status: TaskActionStatus) -> Vec<Step> {
        let labels = ended::labels(self.action, &status, self.now);
        let mut steps = vec![self.record(status)];
        steps.extend(labels);
        steps
    }

    fn record(&self, status: TaskActionStatus) -> Step {
        let status = self.action.form.status(status);
        #[cfg(test)]
        crate::transitions::recorder::note(self.action, &status);
        Do::Persist(Record {
            target: self.action.target.clone(),
            seen: Arc::clone(&self.action.object),
            status,
            is_remote: matches!(self.action.work, Work::Remote(_)),
        })
    }

    fn note(&self, fact: Fact) -> Step {
        let of = self.action.incarnation();
        Do::Call(Note { of, fact })
    }

    fn warn(&self, reason: &'static str, note: String) -> Step {
        Do::Announce(Announcement {
            regarding: self.action.target.clone(),
            event_type: EventType::Warning,
            reason,
            note,
        })
    }

    /// Whether the resource of a task that ended is of no use any more. One that failed before its code ran would go
    /// on trying, and one that ran for too long would go on running.
    fn is_left_over(&self, task: &Task) -> bool {
        let goes_on =
            task.info.cleanup_on_failure || timeout::is_over(&self.action.status, &task.context);
        goes_on || self.is_deleted_at_the_end(task)
    }

    /// Whether the resource of a task is deleted when the task has ended, whatever its end.
    fn is_deleted_at_the_end(&self, task: &Task) -> bool {
        let properties = task.plugin.properties();
        properties.is_deleted_at_the_end(self.config)
    }
}

/// Lets a resource of ours go: deletes it, and takes our finalizer away once nothing of it runs.
fn release(child: &Child) -> Vec<Step> {
    if !child.is_deleting {
        return vec![Do::Delete(Delete {
            target: child.target.clone(),
            grace_period_seconds: None,
            // The pods of an operator go with what they were made for; without it, nothing tells that they are gone.
            resource_version: None,
            waits_for_dependents: child.target.resource != Resource::POD,
        })];
    }
    if child.has_finalizer && child.is_over {
        return vec![Do::RemoveFinalizer {
            target: child.target.clone(),
            finalizer: longshore_api::flyte::FINALIZER_RESOURCE,
        }];
    }
    Vec::new()
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
