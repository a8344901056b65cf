//! How long an attempt may run: `timeout` of its template.
//!
//! The time counts from the record that the launch runs, so that neither a queue nor the pull of an image counts; a
//! launch that follows a system failure begins anew. The plan of a round has a time to look again: nobody polls.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::flyte::{REASON_EXECUTING, REASON_QUEUED, TaskActionStatus};
use longshore_core::{Next, Resource};
use longshore_plugins::{ErrorKind, Launch, PhaseInfo, TaskContext};

use super::{ActionPlan, Round, condition::in_words};
use crate::model::{RemoteTask, Task};

/// The code of an attempt that ran for too long.
const TIMEOUT_EXCEEDED: &str = "TimeoutExceeded";
/// A status has whole seconds: what is on record began up to so much later.
const PRECISION: Duration = Duration::from_secs(1);

/// What is left to an attempt whose resource runs; `None` where it has no timeout.
pub(super) fn of_resource(round: &Round<'_>, task: &Task) -> Option<Duration> {
    let is_on_record = matches!(&task.state, Ok(state) if state.launch == Launch::Started);
    // A container says itself since when it runs, also where nobody looked.
    let is_pod = task.plugin.resource() == Resource::POD;
    let started_at = task.info.occurred_at.filter(|_| is_pod);
    left(round, &task.context, is_on_record, started_at)
}

/// The same of an attempt that makes no resource.
pub(super) fn of_remote(round: &Round<'_>, task: &RemoteTask) -> Option<Duration> {
    let is_on_record = !round.action.status.plugin_state.is_empty();
    left(round, &task.context, is_on_record, None)
}

fn left(
    round: &Round<'_>,
    context: &TaskContext,
    is_on_record: bool,
    started_at: Option<Timestamp>,
) -> Option<Duration> {
    let timeout = context.timeout()?;
    let since = is_on_record.then(|| recorded(&round.action.status));
    let began = since.flatten().into_iter().chain(started_at).min();
    let runs_for = round.since(began.unwrap_or(round.now));
    Some(timeout.saturating_add(PRECISION).saturating_sub(runs_for))
}

/// Since when the launch runs, by the history: each launch begins with a phase of waiting.
fn recorded(status: &TaskActionStatus) -> Option<Timestamp> {
    let newest_first = status.phase_history.iter().rev();
    let of_launch = newest_first.take_while(|entry| entry.phase != REASON_QUEUED);
    let runs = of_launch.filter(|entry| entry.phase == REASON_EXECUTING);
    runs.map(|entry| entry.occurred_at).min()
}

/// The plan of an attempt that runs, of whose time so much is left: it goes on, and the plan looks again when nothing is
/// left; or it fails.
pub(super) fn limit(
    left: Option<Duration>,
    context: &TaskContext,
    go_on: impl FnOnce() -> ActionPlan,
    fail: impl FnOnce(PhaseInfo) -> ActionPlan,
) -> ActionPlan {
    match left {
        None => go_on(),
        Some(Duration::ZERO) => fail(exceeded(context)),
        Some(left) => {
            let mut plan = go_on();
            plan.next = plan.next.min(Next::After(left));
            plan
        }
    }
}

/// The failure of an attempt that ran for too long. Its resource would go on running.
fn exceeded(context: &TaskContext) -> PhaseInfo {
    let timeout = context.timeout().unwrap_or_default();
    let words = if timeout.subsec_nanos() == 0 {
        in_words(timeout)
    } else {
        format!("{timeout:?}")
    };
    let message = format!("the attempt ran for longer than its timeout of {words}");
    PhaseInfo {
        cleanup_on_failure: true,
        ..PhaseInfo::retryable(ErrorKind::User, TIMEOUT_EXCEEDED, message)
    }
}

/// Whether an action has ended because its last attempt ran for too long.
pub(super) fn is_over(status: &TaskActionStatus, context: &TaskContext) -> bool {
    let Some(error) = &status.error_state else {
        return false;
    };
    let exceeded = exceeded(context).error;
    exceeded.is_some_and(|it| it.code == error.code && it.message == error.message)
}
