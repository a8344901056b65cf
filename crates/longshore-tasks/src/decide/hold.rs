//! What holds an action is in its status: a foreign system that has not answered or has refused, or an API server that
//! does not do what it is asked to. The condition Waiting says who, and in whose words; an Event says so once.
//!
//! The status is written upon what is on record, without a report: the events service may be what holds the action. Each
//! other write removes the condition. Where the API server takes no status, an Event alone says it.
//!
//! A request that failed holds the action if this plan sends it again: what was done meanwhile is not said.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::flyte::{
    CONDITION_PROGRESSING, CONDITION_WAITING, REASON_NAME_TAKEN, REASON_NOT_ANSWERED,
    REASON_NOT_SEEN, REASON_NOT_SENT, REASON_REFUSED, REASON_STATUS_NOT_WRITTEN, TaskActionStatus,
};
use longshore_core::{Action as Do, Next, Plan, Unknown};
use longshore_kit::{Change, WaitsFor};

use super::{
    ActionPlan, LOOK_AGAIN, Round, Step,
    cached::Attempt,
    undone::{self, SAID_AFTER, said_after},
};
use crate::{
    model::{Action, Belongs, CreateFailure, Fact, InForm, Refused, StatusForm, Unanswered, Work},
    questions::TaskQuestion,
    status,
};

/// From one change of the words to the next, at least; later half of the time that the action is held.
const SAID_AGAIN: Duration = Duration::from_secs(30);
/// By so many bytes of its beginning a text is found in another one, which may have been shortened.
const RECOGNISED: usize = 256;

/// What holds an action.
struct Hold {
    since: Timestamp,
    reason: &'static str,
    words: String,
    /// Whether no record of the plan is written before what holds it.
    is_first: bool,
    /// For how long the action is held before it says so.
    patience: Duration,
}

impl Hold {
    /// What is left until the action says so for the first time.
    fn left(&self, round: &Round<'_>) -> Duration {
        self.patience.saturating_sub(round.since(self.since))
    }

    /// From one change of the words to the next.
    fn pause(&self, round: &Round<'_>) -> Duration {
        SAID_AGAIN.max(round.since(self.since) / 2)
    }

    /// The status on record, with what holds the action.
    fn status(&self, action: &Action) -> TaskActionStatus {
        let mut status = action.status.clone();
        let (kind, words) = (CONDITION_WAITING, &self.words);
        status::set(&mut status, kind, true, self.reason, words, self.since);
        status
    }
}

/// The same plan, or first one that writes what holds the action.
pub(super) fn say(round: &Round<'_>, mut plan: ActionPlan) -> ActionPlan {
    let action = round.action;
    if is_silent(action) {
        return plan;
    }
    let hold = hold(round, &plan);
    if let Some(refused) = &action.undone.status {
        return report(round, hold, refused, plan);
    }
    if let Some(hold) = hold {
        return write(round, &hold, plan);
    }
    let is_over = action.said.condition.is_some() && !plan.actions.iter().any(leads_on);
    if is_over {
        plan.actions.insert(0, round.record(action.status.clone()));
    }
    plan
}

/// The plan where what the action has made cannot be read: nothing is done but to say so.
pub(super) fn blind(round: &Round<'_>, why: &Unknown) -> ActionPlan {
    let (action, plan) = (round.action, Plan::after(LOOK_AGAIN));
    if is_silent(action) {
        return plan;
    }
    let Some(since) = action.undone.unread_since else {
        let note = round.note(Fact::Unread(Some(round.exactly)));
        let actions = vec![note];
        return Plan { actions, ..plan };
    };
    let hold = Hold {
        since,
        reason: REASON_NOT_SEEN,
        words: action
            .form
            .text(format!("what it has made is not seen: {why}")),
        is_first: true,
        patience: SAID_AFTER,
    };
    match &action.undone.status {
        Some(refused) => report(round, Some(hold), refused, plan),
        None => write(round, &hold, plan),
    }
}

/// The same plan, after whose questions the action has a round in time to say that nobody answers.
pub(super) fn look_again(action: &Action, mut plan: ActionPlan) -> ActionPlan {
    if plan.actions.iter().any(|step| matches!(step, Do::Ask(_))) {
        plan.next = plan.next.min(Next::After(said_after(action)));
    }
    plan
}

/// Whether the status of an action says nothing more.
fn is_silent(action: &Action) -> bool {
    action.status.is_terminal() || action.form == StatusForm::Unwritable
}

/// The same plan, or first one that writes what holds the action.
fn write(round: &Round<'_>, hold: &Hold, mut plan: ActionPlan) -> ActionPlan {
    let said = &round.action.said;
    let wait = match (&said.condition, said.at) {
        (Some(condition), _) if condition.message == hold.words => return plan,
        (Some(_), Some(at)) => hold.pause(round).saturating_sub(round.since(at)),
        (Some(_), None) | (None, _) => hold.left(round),
    };
    if !hold.is_first && plan.actions.iter().any(is_record) {
        plan.next = plan.next.min(Next::After(SAID_AFTER));
        return plan;
    }
    if !wait.is_zero() {
        plan.next = plan.next.min(Next::After(wait));
        return plan;
    }
    if said.is_crowded {
        plan.next = plan.next.min(Next::After(said_after(round.action)));
        return plan;
    }
    let record = round.record(hold.status(round.action));
    let is_first = said.condition.is_none();
    let warning = is_first.then(|| round.warn(hold.reason, hold.words.clone()));
    Plan {
        actions: [Some(record), warning].into_iter().flatten().collect(),
        ..Plan::after(Duration::ZERO)
    }
}

/// The same plan where the API server takes no status: it begins with an Event that says what holds the action.
fn report(
    round: &Round<'_>,
    hold: Option<Hold>,
    refused: &Refused,
    mut plan: ActionPlan,
) -> ActionPlan {
    let action = round.action;
    let has_record = plan.actions.iter().any(is_record);
    let of_status = || Hold {
        since: refused.since,
        reason: REASON_STATUS_NOT_WRITTEN,
        words: undone::of_status(&refused.why.why),
        is_first: true,
        patience: patience(refused),
    };
    let Some(hold) = hold.or_else(|| has_record.then(of_status)) else {
        return plan;
    };
    let wait = match action.undone.told_at {
        Some(at) => hold.pause(round).saturating_sub(round.since(at)),
        None => hold.left(round),
    };
    if !wait.is_zero() {
        plan.next = plan.next.min(Next::After(wait));
        return plan;
    }
    let told = round.note(Fact::Told(round.exactly));
    let warning = round.warn(hold.reason, hold.words.clone());
    if has_record || action.undone.told_at.is_none() {
        plan.actions.splice(0..0, [told, warning]);
        return plan;
    }
    // Only a status that is written shows that the API server takes one again.
    let record = round.record(hold.status(action));
    Plan {
        actions: vec![told, warning, record],
        ..Plan::after(Duration::ZERO)
    }
}

/// What is refused for good does not pass.
fn patience(refused: &Refused) -> Duration {
    if refused.why.is_final {
        Duration::ZERO
    } else {
        SAID_AFTER
    }
}

fn is_record(step: &Step) -> bool {
    matches!(step, Do::Persist(_))
}

/// Whether the next round, or another one soon, writes a status anyway.
fn leads_on(step: &Step) -> bool {
    matches!(
        step,
        Do::Persist(_)
            | Do::Ask(_)
            | Do::Create(_)
            | Do::Delete(_)
            | Do::EnsureFinalizer { .. }
            | Do::RemoveFinalizer { .. }
    )
}

/// What holds the action for the longest time, apart from its status.
fn hold(round: &Round<'_>, plan: &ActionPlan) -> Option<Hold> {
    let action = round.action;
    let is_launched = match &action.work {
        Work::Task(task) => task.is_launched(round),
        Work::Remote(task) => task.is_launched(round),
        Work::Condition | Work::Invalid(_) | Work::Nothing => false,
    };
    let is_unlisted = of_lists(round).is_some();
    let is_meant = |it: &&Unanswered| {
        // No request is sent to a connector before it is known which one.
        let is_sent = !is_unlisted || !TaskQuestion::is_of_connectors(it.kind);
        is_sent && (!is_launched || TaskQuestion::holds_what_runs(it.kind))
    };
    let unanswered = action.unanswered.iter();
    let asked = unanswered
        .filter(is_meant)
        .filter_map(|it| of_question(round, it));
    let hold = asked
        .chain(of_lists(round))
        .chain(of_create(round))
        .chain(of_change(round, plan))
        .chain(of_name(round))
        .min_by_key(|hold| hold.since)?;
    Some(Hold {
        words: action.form.text(hold.words),
        ..hold
    })
}

fn of_question(round: &Round<'_>, unanswered: &Unanswered) -> Option<Hold> {
    let Unanswered {
        kind,
        whom,
        since,
        failure,
        waits_for,
    } = unanswered;
    let at = by_the_second(*since);
    let progress = round.action.status.condition(CONDITION_PROGRESSING);
    let is_published = |words: &String| {
        let beginning = &words[..words.floor_char_boundary(RECOGNISED)];
        let is_held = TaskQuestion::holds_what_has_ended(kind);
        !is_held && progress.is_some_and(|it| it.message.contains(beginning))
    };
    let (reason, words) = match failure {
        Some(failure) if TaskQuestion::is_repeated(kind) && !is_published(failure) => {
            (REASON_REFUSED, failure.clone())
        }
        Some(_) => return None,
        None => match waits_for {
            WaitsFor::Answer => {
                let words = format!("no answer from {whom} since {at}");
                (REASON_NOT_ANSWERED, words)
            }
            WaitsFor::Rate(rate) => {
                let words = format!("its request to {whom} waits for {rate} since {at}");
                (REASON_NOT_SENT, words)
            }
            WaitsFor::Turn | WaitsFor::Repeat => {
                let words = format!("its request to {whom} waits for its turn since {at}");
                (REASON_NOT_SENT, words)
            }
        },
    };
    Some(Hold {
        since: *since,
        reason,
        words,
        is_first: false,
        patience: said_after(round.action),
    })
}

/// An instant as texts of statuses have it: it stays the same for as long as the action is held.
fn by_the_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Connectors that have not listed their task types yet.
fn of_lists(round: &Round<'_>) -> Option<Hold> {
    let Work::Remote(task) = &round.action.work else {
        return None;
    };
    Some(Hold {
        since: round.action.unlisted_since?,
        reason: REASON_NOT_SENT,
        words: task.unlisted.clone()?,
        is_first: true,
        patience: said_after(round.action),
    })
}

/// The API server that does not create the resource.
fn of_create(round: &Round<'_>) -> Option<Hold> {
    let Work::Task(task) = &round.action.work else {
        return None;
    };
    let blocked = task.blocked.as_ref()?;
    let words = match &blocked.kind {
        CreateFailure::Failed(why) => format!("its resource is not created: {why}"),
        CreateFailure::Refused { .. }
        | CreateFailure::OverQuota(_)
        | CreateFailure::NameTaken
        | CreateFailure::NotServed(_) => return None,
    };
    (!task.is_launched(round) && !round.action.is_deleting).then_some(Hold {
        since: blocked.since,
        reason: REASON_REFUSED,
        words,
        is_first: true,
        patience: SAID_AFTER,
    })
}

/// The API server that does not make a change which the plan has.
fn of_change(round: &Round<'_>, plan: &ActionPlan) -> Option<Hold> {
    let (change, refused) = round.action.undone.change.as_ref()?;
    let is_it = |step: &Step| Change::of(step).as_ref() == Some(change);
    let at = plan.actions.iter().position(is_it)?;
    let record = plan.actions.iter().position(is_record);
    Some(Hold {
        since: refused.since,
        reason: REASON_REFUSED,
        words: undone::of_change(change, &refused.why.why),
        is_first: record.is_none_or(|record| at < record),
        patience: patience(refused),
    })
}

/// What has the name of the next resource, and is being deleted.
fn of_name(round: &Round<'_>) -> Option<Hold> {
    let action = round.action;
    let Work::Task(task) = &action.work else {
        return None;
    };
    let is_to_come = task.is_not_started() && action.has_finalizer && !action.is_deleting;
    let child = action.children.current.present()?;
    let is_in_the_way = is_to_come && child.belongs != Belongs::ToThisLaunch;
    let deleted_at = child.deleted_at.filter(|_| is_in_the_way)?;
    // The action has waited since its last step, but not for what was not being deleted then.
    let last = action.status.phase_history.last();
    let begun_at = last
        .map(|entry| entry.occurred_at)
        .or_else(|| action.created_at());
    let held_by = match child.finalizers.join(", ") {
        none if none.is_empty() => String::new(),
        names => format!("; its finalizers: {names}"),
    };
    Some(Hold {
        since: begun_at.map_or(deleted_at, |begun_at| begun_at.max(deleted_at)),
        reason: REASON_NAME_TAKEN,
        words: format!(
            "{} has the name of its resource and is being deleted{held_by}",
            child.target
        ),
        is_first: true,
        patience: SAID_AFTER,
    })
}
