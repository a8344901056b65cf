//! When a run is over, by the states of its tasks (section 6.2.6 of the DAG scheduler spec).

use std::time::Duration;

use jiff::Timestamp;
use longshore_store::{Run, RunState, TaskState};

/// `Run::reason` of a run that took longer than its DAG's `dagrun_timeout`; upstream's word.
pub const REASON_TIMED_OUT: &str = "timed_out";
/// `Run::reason` of a run with tasks left of which none can ever start; upstream's word.
pub const REASON_DEADLOCKED: &str = "all_tasks_deadlocked";
/// `Run::reason` of a run that a user cancelled.
pub const REASON_CANCELLED: &str = "cancelled";
/// `Run::reason` of a run that is `Queued` because a user interrupted it; it starts again only when resumed.
pub const REASON_INTERRUPTED: &str = "interrupted";

/// Begins the `Run::reason` of a run whose shared objects cannot be created; the API server's words follow.
pub const REASON_NOT_PREPARED: &str = "not_prepared";

/// Whether the run was interrupted and not resumed yet.
pub fn is_interrupted(run: &Run) -> bool {
    run.state == RunState::Queued && run.reason.as_deref() == Some(REASON_INTERRUPTED)
}

/// How long the instant that the run is about is still to come; `None` where it is not.
pub fn until_logical_date(run: &Run, now: Timestamp) -> Option<Duration> {
    let left = run.logical_date?.duration_since(now);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

/// Whether the run was ended before its tasks were: cancelled, timed out, without a way on, or refused.
pub fn is_ended_early(run: &Run) -> bool {
    run.state == RunState::Failed && run.reason.is_some()
}

/// Whether pods of the run may be made.
pub fn may_launch(run: &Run) -> bool {
    run.state == RunState::Running && run.is_prepared
}

/// How a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Every leaf succeeded or was skipped.
    Success,
    /// A leaf failed, itself or because of something before it.
    Failed,
    /// Tasks are left, and none of them can ever start.
    Deadlocked,
}

/// Whether and how a run is over. `tasks` are the states of its tasks with whether each is a leaf, after all that
/// their trigger rules say was done.
pub fn end_of(tasks: impl IntoIterator<Item = (Option<TaskState>, IsLeaf)>) -> Option<RunEnd> {
    let (mut is_waiting, mut is_leaf_failed) = (false, false);
    for (state, is_leaf) in tasks {
        match state {
            None => is_waiting = true,
            Some(
                TaskState::Scheduled
                | TaskState::Queued
                | TaskState::Running
                | TaskState::Restarting
                | TaskState::UpForRetry
                | TaskState::UpForReschedule
                | TaskState::Deferred
                | TaskState::AwaitingInput,
            ) => return None,
            Some(TaskState::Failed | TaskState::UpstreamFailed) => {
                is_leaf_failed |= is_leaf == IsLeaf::Yes;
            }
            Some(TaskState::Success | TaskState::Skipped | TaskState::Removed) => {}
        }
    }
    Some(match (is_waiting, is_leaf_failed) {
        (true, _) => RunEnd::Deadlocked,
        (false, true) => RunEnd::Failed,
        (false, false) => RunEnd::Success,
    })
}

/// Whether no task waits for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsLeaf {
    /// None does: its state decides upon the run.
    Yes,
    /// One does.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_over_when_its_tasks_are_and_its_leaves_decide() {
        use IsLeaf::{No, Yes};
        use TaskState::{
            AwaitingInput, Deferred, Failed, Queued, Removed, Restarting, Running, Scheduled,
            Skipped, Success, UpForReschedule, UpForRetry, UpstreamFailed,
        };
        for (tasks, expected) in [
            (&[][..], Some(RunEnd::Success)),
            (&[(Some(Success), Yes)], Some(RunEnd::Success)),
            (
                &[(Some(Failed), No), (Some(Success), Yes)],
                Some(RunEnd::Success),
            ),
            (
                &[(Some(Success), Yes), (Some(Skipped), Yes)],
                Some(RunEnd::Success),
            ),
            (&[(Some(Removed), Yes)], Some(RunEnd::Success)),
            (
                &[(Some(Success), Yes), (Some(Failed), Yes)],
                Some(RunEnd::Failed),
            ),
            (
                &[(Some(Failed), No), (Some(UpstreamFailed), Yes)],
                Some(RunEnd::Failed),
            ),
            (&[(Some(Failed), Yes), (Some(Running), Yes)], None),
            (&[(Some(Failed), Yes), (Some(Restarting), Yes)], None),
            (
                &[(Some(Failed), Yes), (None, No), (Some(Queued), Yes)],
                None,
            ),
            (&[(None, Yes), (Some(Scheduled), Yes)], None),
            (&[(None, Yes), (Some(UpForRetry), No)], None),
            (&[(None, Yes), (Some(UpForReschedule), No)], None),
            (&[(None, Yes), (Some(Deferred), No)], None),
            (&[(None, Yes), (Some(AwaitingInput), No)], None),
            (
                &[(None, Yes), (Some(Failed), Yes)],
                Some(RunEnd::Deadlocked),
            ),
        ] {
            assert_eq!(end_of(tasks.iter().copied()), expected, "{tasks:?}");
        }
    }
}
