//! What holds an action is in its status: a foreign system that has not answered or has refused, or an API server that
//! makes no resource for it. The condition Waiting says who, and in whose words; an Event says so once.
//!
//! The status is written upon what is on record, without a report: the events service may be what holds the action. Each
//! other write removes the condition.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::flyte::{
    CONDITION_PROGRESSING, CONDITION_WAITING, REASON_NOT_ANSWERED, REASON_NOT_SENT, REASON_REFUSED,
    TaskActionStatus,
};
use longshore_core::{Action as Do, Next, Plan};
use longshore_kit::WaitsFor;

use super::{ActionPlan, Round, Step, cached::Attempt};
use crate::{
    model::{CreateFailure, StatusForm, Unanswered, Work},
    questions::TaskQuestion,
    status,
};

/// An action is held for so long before its status says so.
const SAID_AFTER: Duration = Duration::from_secs(5);
/// From one change of the words to the next, at least; later half of the time that the action is held.
const SAID_AGAIN: Duration = Duration::from_secs(30);
/// By so many bytes of its beginning a text is found in another one, which may have been shortened.
const RECOGNISED: usize = 256;

/// What holds an action.
struct Hold {
    since: Timestamp,
    reason: &'static str,
    words: String,
    /// Whether it is the API server that makes no resource: what a plan does after its create is not done.
    is_create: bool,
}

/// The same plan, or first one that writes what holds the action.
pub(super) fn say(round: &Round<'_>, mut plan: ActionPlan) -> ActionPlan {
    let action = round.action;
    if action.status.is_terminal() || action.form == StatusForm::Unwritable {
        return plan;
    }
    let said = &action.said;
    let Some(hold) = hold(round) else {
        let is_over = said.condition.is_some() && !plan.actions.iter().any(leads_on);
        if is_over {
            plan.actions.insert(0, round.record(action.status.clone()));
        }
        return plan;
    };
    let held = round.since(hold.since);
    let again = SAID_AGAIN.max(held / 2);
    let wait = match (&said.condition, said.at) {
        (Some(condition), _) if condition.message == hold.words => return plan,
        (Some(_), Some(at)) => again.saturating_sub(round.since(at)),
        (Some(_), None) | (None, _) => SAID_AFTER.saturating_sub(held),
    };
    let writes = |step: &Step| matches!(step, Do::Persist(_));
    if !hold.is_create && plan.actions.iter().any(writes) {
        plan.next = plan.next.min(Next::After(SAID_AFTER));
        return plan;
    }
    if !wait.is_zero() {
        plan.next = plan.next.min(Next::After(wait));
        return plan;
    }
    let mut status: TaskActionStatus = action.status.clone();
    let (kind, words) = (CONDITION_WAITING, &hold.words);
    status::set(&mut status, kind, true, hold.reason, words, hold.since);
    let warning = round.warn(hold.reason, hold.words.clone());
    let is_first = said.condition.is_none();
    let steps = [Some(round.record(status)), is_first.then_some(warning)];
    Plan {
        actions: steps.into_iter().flatten().collect(),
        ..Plan::after(Duration::ZERO)
    }
}

/// The same plan, after whose questions the action has a round in time to say that nobody answers.
pub(super) fn look_again(mut plan: ActionPlan) -> ActionPlan {
    if plan.actions.iter().any(|step| matches!(step, Do::Ask(_))) {
        plan.next = plan.next.min(Next::After(SAID_AFTER));
    }
    plan
}

/// Whether the next round, or another one soon, writes a status anyway.
fn leads_on(step: &Step) -> bool {
    matches!(
        step,
        Do::Persist(_) | Do::Ask(_) | Do::Create(_) | Do::RemoveFinalizer { .. }
    )
}

/// What holds the action for the longest time.
fn hold(round: &Round<'_>) -> Option<Hold> {
    let action = round.action;
    let is_launched = match &action.work {
        Work::Task(task) => task.is_launched(round),
        Work::Remote(task) => task.is_launched(round),
        Work::Condition | Work::Invalid(_) | Work::Nothing => false,
    };
    let unanswered = action.unanswered.iter();
    let asked = unanswered
        .filter(|it| !is_launched || TaskQuestion::holds_what_runs(it.kind))
        .filter_map(|it| of_question(round, it));
    let hold = asked
        .chain(of_create(round))
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
    let n = round.since(*since).as_secs();
    let progress = round.action.status.condition(CONDITION_PROGRESSING);
    let is_published = |words: &String| {
        let beginning = &words[..words.floor_char_boundary(RECOGNISED)];
        progress.is_some_and(|it| it.message.contains(beginning))
    };
    let (reason, words) = match failure {
        Some(failure) if TaskQuestion::is_repeated(kind) && !is_published(failure) => {
            (REASON_REFUSED, failure.clone())
        }
        Some(_) => return None,
        None => match waits_for {
            WaitsFor::Answer => {
                let words = format!("{whom} has not answered for {n} s");
                (REASON_NOT_ANSWERED, words)
            }
            WaitsFor::Rate(rate) => {
                let words = format!("its request to {whom} has waited for {n} s for {rate}");
                (REASON_NOT_SENT, words)
            }
            WaitsFor::Turn | WaitsFor::Repeat => {
                let words = format!("its request to {whom} has waited for its turn for {n} s");
                (REASON_NOT_SENT, words)
            }
        },
    };
    Some(Hold {
        since: *since,
        reason,
        words,
        is_create: false,
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
        is_create: true,
    })
}
