//! Whether a rollout progresses, is complete, or is stuck. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    conditions::{Conditions, Word},
    decide::{Plan, Stage},
    model::Desired,
    status::Numbers,
};

pub(super) const PROGRESSING: &str = "Progressing";
const REASON_DONE: &str = "NewReplicaSetAvailable";
const REASON_STUCK: &str = "ProgressDeadlineExceeded";
const REASON_PAUSED: &str = "DeploymentPaused";

/// Brings the condition `Progressing` up to date.
pub(super) fn update(
    conditions: &mut Conditions,
    desired: &Desired,
    plan: &Plan,
    numbers: &Numbers,
    failure: Option<&str>,
    now: Timestamp,
) {
    if desired.deadline.is_none() {
        conditions.remove(PROGRESSING);
        return;
    }
    say_pause(conditions, desired, now);
    if let Some(name) = &plan.created {
        let word = match failure {
            None => Word::new(
                "True",
                "NewReplicaSetCreated",
                format!("Created new replica set {name:?}"),
            ),
            Some(why) => {
                let text = format!("Failed to create new replica set {name:?}: {why}");
                Word::new("False", "ReplicaSetCreateError", text)
            }
        };
        conditions.say(PROGRESSING, word, now);
        return;
    }
    if let (Some(new), None) = (&plan.sets.new, conditions.get(PROGRESSING)) {
        let text = format!("Found new replica set {:?}", new.name());
        conditions.say(
            PROGRESSING,
            Word::new("True", "FoundNewReplicaSet", text),
            now,
        );
    }
    if plan.stage == Stage::RollOut {
        judge(conditions, desired, plan, numbers, now);
    }
}

fn say_pause(conditions: &mut Conditions, desired: &Desired, now: Timestamp) {
    let reason = conditions.reason(PROGRESSING);
    if reason == REASON_STUCK {
        return;
    }
    if desired.is_paused && reason != REASON_PAUSED {
        let word = Word::new("Unknown", REASON_PAUSED, "Deployment is paused".to_owned());
        conditions.say(PROGRESSING, word, now);
    } else if !desired.is_paused && reason == REASON_PAUSED {
        let word = Word::new(
            "Unknown",
            "DeploymentResumed",
            "Deployment is resumed".to_owned(),
        );
        conditions.say(PROGRESSING, word, now);
    }
}

fn judge(
    conditions: &mut Conditions,
    desired: &Desired,
    plan: &Plan,
    numbers: &Numbers,
    now: Timestamp,
) {
    let is_done_already =
        numbers.n_replicas == numbers.n_updated && conditions.reason(PROGRESSING) == REASON_DONE;
    if is_done_already {
        return;
    }
    let who = match &plan.sets.new {
        Some(new) => format!("ReplicaSet {:?}", new.name()),
        None => format!("Deployment {:?}", desired.deployment.name()),
    };
    let before = Numbers::published(desired);
    if numbers.is_complete(desired) {
        let text = format!("{who} has successfully progressed.");
        conditions.say(PROGRESSING, Word::new("True", REASON_DONE, text), now);
    } else if numbers.is_progress_from(&before) {
        let text = format!("{who} is progressing.");
        conditions.say_again(
            PROGRESSING,
            Word::new("True", "ReplicaSetUpdated", text),
            now,
        );
    } else if time_left(conditions, desired, now) == Some(Duration::ZERO) {
        let text = format!("{who} has timed out progressing.");
        conditions.say(PROGRESSING, Word::new("False", REASON_STUCK, text), now);
    }
}

/// How long the rollout may go without progress; `None` when it is done, stuck or has no deadline.
pub(super) fn time_left(
    conditions: &Conditions,
    desired: &Desired,
    now: Timestamp,
) -> Option<Duration> {
    let deadline = desired.deadline.filter(|_| !desired.is_paused)?;
    let condition = conditions.get(PROGRESSING)?;
    if [REASON_DONE, REASON_STUCK, REASON_PAUSED].contains(&conditions.reason(PROGRESSING)) {
        return None;
    }
    let since: Timestamp = condition["lastUpdateTime"].as_str()?.parse().ok()?;
    let until = since.checked_add(deadline).ok()?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or(Duration::ZERO))
}
