//! A condition action: it waits for a person (task action spec §6).

use std::time::Duration;

use longshore_api::flyte::{
    self, CONDITION_PROGRESSING, CONDITION_SUCCEEDED, ERROR_KIND_USER, ErrorState,
};
use longshore_core::{Next, Plan};
use longshore_proto::flyteidl2::workflow::ConditionAction;
use prost::Message;

use super::{ActionPlan, Round};
use crate::status;

/// Decides upon an action that waits for its signal. The run service is not told: it has the signal first.
pub(super) fn decide(round: &Round<'_>) -> ActionPlan {
    if !round.action.status.signal_value.is_empty() {
        return signalled(round);
    }
    let bytes = round.action.spec.condition_spec.as_slice();
    if bytes.is_empty() {
        return invalid(round, "conditionSpec is empty".to_owned());
    }
    let condition = match ConditionAction::decode(bytes) {
        Ok(condition) => condition,
        Err(error) => {
            let message =
                format!("conditionSpec is no flyteidl2.workflow.ConditionAction: {error}");
            return invalid(round, message);
        }
    };
    let timeout = condition
        .timeout
        .and_then(|timeout| Duration::try_from(timeout).ok())
        .filter(|timeout| !timeout.is_zero());
    let created_at = round.action.created_at().unwrap_or(round.now);
    let waited = Duration::try_from(round.now.duration_since(created_at)).unwrap_or_default();
    match timeout.map(|timeout| (timeout, timeout.saturating_sub(waited))) {
        Some((timeout, Duration::ZERO)) => timed_out(round, timeout),
        Some((_, left)) => paused(round, Next::After(left)),
        None => paused(round, Next::AwaitChange),
    }
}

fn signalled(round: &Round<'_>) -> ActionPlan {
    let mut status = round.action.status.clone();
    let message = format!("condition signalled by {:?}", status.signalled_by);
    let reason = flyte::REASON_SIGNALED;
    status::set(
        &mut status,
        CONDITION_PROGRESSING,
        false,
        reason,
        &message,
        round.now,
    );
    status::set(
        &mut status,
        CONDITION_SUCCEEDED,
        true,
        reason,
        &message,
        round.now,
    );
    status::remember(&mut status, reason, &message, round.now);
    Plan::of(round.finish(status))
}

fn invalid(round: &Round<'_>, message: String) -> ActionPlan {
    let mut status = round.action.status.clone();
    let reason = flyte::REASON_INVALID_SPEC;
    status::fail(&mut status, reason, &message, round.now);
    status.error_state = Some(by_user(reason, message));
    Plan::of(round.finish(status))
}

fn timed_out(round: &Round<'_>, timeout: Duration) -> ActionPlan {
    let mut status = round.action.status.clone();
    let message = format!(
        "condition timed out after {} without a signal",
        in_words(timeout)
    );
    let reason = flyte::REASON_TIMED_OUT;
    status::fail(&mut status, reason, &message, round.now);
    status::remember(&mut status, reason, &message, round.now);
    status.error_state = Some(by_user("ConditionTimedOut", message));
    Plan::of(round.finish(status))
}

fn paused(round: &Round<'_>, next: Next) -> ActionPlan {
    let mut status = round.action.status.clone();
    status::progress(
        &mut status,
        flyte::REASON_PAUSED,
        "waiting for signal",
        round.now,
    );
    let is_news = status::is_news(&round.action.status, &status);
    Plan {
        actions: is_news.then(|| round.record(status)).into_iter().collect(),
        next,
    }
}

fn by_user(code: &str, message: String) -> ErrorState {
    ErrorState {
        code: code.to_owned(),
        kind: ERROR_KIND_USER.to_owned(),
        message,
    }
}

/// As Go writes durations, by the second: `1h0m0s`.
pub(super) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}
