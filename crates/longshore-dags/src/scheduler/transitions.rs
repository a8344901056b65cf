//! All ways from one state to another. The scheduler takes no other one: its tests fail on an edge that is not listed
//! here, and on a listed one that is never taken.

use longshore_store::{RunState, TaskState};

/// Why a task instance changes its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Its dependencies hold.
    DependenciesHold,
    /// Its dependencies hold, and it does nothing: it needs no worker.
    NothingToDo,
    /// Its trigger rule ends it without running it.
    TriggerRule,
    /// Its run, its task, its pool and the scheduler have a slot for it.
    SlotFree,
    /// Its pod's process runs.
    PodRuns,
    /// Its pod succeeded.
    PodSucceeded,
    /// Its pod died before its process ran; the same try gets another one.
    LaunchFailed,
    /// Its try ended badly.
    TryFailed,
    /// Its pod cannot be built.
    BuildFailed,
    /// The wait before its next try is over.
    RetryDue,
    /// The wait of a sensor before its next look is over.
    RescheduleDue,
    /// Its worker began.
    WorkerStarted,
    /// Its worker said what became of it.
    WorkerReported,
    /// The worker of a branch said that it is not taken.
    WorkerSkips,
    /// It was queued for too long, and its worker had not begun.
    StuckInQueued,
    /// Its run was interrupted, or its pod stayed behind in another cluster.
    Interrupted,
    /// Its run ended before it did.
    RunEnded,
    /// A user cleared it.
    Cleared,
    /// It was cleared, and no pod of its last try lives.
    LaunchEnded,
}

/// Why a run changes its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunCause {
    /// Its DAG runs fewer than `max_active_runs`.
    Started,
    /// All its tasks are finished.
    TasksDone,
    /// Tasks are left of which none can ever start.
    Deadlocked,
    /// It took longer than `dagrun_timeout`.
    TimedOut,
    /// A user cancelled it.
    Cancelled,
    /// The objects that its pods share cannot be created.
    PrepareRefused,
    /// A user interrupted it.
    Interrupted,
    /// A user cleared tasks of it after it was over.
    Cleared,
}

/// From, to and why.
pub type Transition = (Option<TaskState>, Option<TaskState>, Cause);
/// From, to and why.
pub type RunTransition = (RunState, RunState, RunCause);

/// The edges between the states of a task instance.
pub const TRANSITIONS: &[Transition] = {
    use TaskState::{
        AwaitingInput, Deferred, Failed, Queued, Removed, Restarting, Running, Scheduled, Skipped,
        Success, UpForReschedule, UpForRetry, UpstreamFailed,
    };
    &[
        (None, Some(Scheduled), Cause::DependenciesHold),
        (None, Some(Success), Cause::NothingToDo),
        (None, Some(Skipped), Cause::TriggerRule),
        (None, Some(UpstreamFailed), Cause::TriggerRule),
        (None, Some(Skipped), Cause::RunEnded),
        (Some(Scheduled), Some(Queued), Cause::SlotFree),
        (Some(Scheduled), Some(Success), Cause::PodSucceeded),
        (Some(Scheduled), Some(Skipped), Cause::RunEnded),
        (Some(Queued), Some(Running), Cause::PodRuns),
        (Some(Queued), Some(Success), Cause::PodSucceeded),
        (Some(Queued), Some(Queued), Cause::LaunchFailed),
        (Some(Queued), Some(UpForRetry), Cause::TryFailed),
        (Some(Queued), Some(Failed), Cause::TryFailed),
        (Some(Queued), Some(Failed), Cause::BuildFailed),
        (Some(Queued), Some(Scheduled), Cause::Interrupted),
        (Some(Queued), Some(Skipped), Cause::RunEnded),
        (Some(Running), Some(Success), Cause::PodSucceeded),
        (Some(Running), Some(UpForRetry), Cause::TryFailed),
        (Some(Running), Some(Failed), Cause::TryFailed),
        (Some(Running), Some(Scheduled), Cause::Interrupted),
        (Some(Running), Some(Failed), Cause::RunEnded),
        (Some(Running), Some(Skipped), Cause::RunEnded),
        (Some(UpForRetry), Some(Scheduled), Cause::RetryDue),
        (Some(UpForRetry), Some(Skipped), Cause::TriggerRule),
        (Some(UpForRetry), Some(UpstreamFailed), Cause::TriggerRule),
        (Some(UpForRetry), Some(Skipped), Cause::RunEnded),
        (Some(Queued), Some(Running), Cause::WorkerStarted),
        (Some(Running), Some(Success), Cause::WorkerReported),
        (Some(Running), Some(Failed), Cause::WorkerReported),
        (Some(Running), Some(Skipped), Cause::WorkerReported),
        (Some(Running), Some(Removed), Cause::WorkerReported),
        (Some(Running), Some(UpstreamFailed), Cause::WorkerReported),
        (Some(Running), Some(UpForRetry), Cause::WorkerReported),
        (Some(Running), Some(UpForReschedule), Cause::WorkerReported),
        (Some(Running), Some(Deferred), Cause::WorkerReported),
        (Some(Running), Some(AwaitingInput), Cause::WorkerReported),
        (Some(UpForReschedule), Some(Scheduled), Cause::RescheduleDue),
        (Some(UpForReschedule), Some(Skipped), Cause::TriggerRule),
        (
            Some(UpForReschedule),
            Some(UpstreamFailed),
            Cause::TriggerRule,
        ),
        (Some(UpForReschedule), Some(Skipped), Cause::RunEnded),
        (Some(Deferred), Some(Skipped), Cause::RunEnded),
        (Some(AwaitingInput), Some(Skipped), Cause::RunEnded),
        (None, Some(Skipped), Cause::WorkerSkips),
        (Some(Scheduled), Some(Skipped), Cause::WorkerSkips),
        (Some(Queued), Some(Skipped), Cause::WorkerSkips),
        (Some(UpForRetry), Some(Skipped), Cause::WorkerSkips),
        (Some(UpForReschedule), Some(Skipped), Cause::WorkerSkips),
        (Some(Deferred), Some(Skipped), Cause::WorkerSkips),
        (Some(AwaitingInput), Some(Skipped), Cause::WorkerSkips),
        (Some(UpstreamFailed), Some(Skipped), Cause::WorkerSkips),
        (Some(Queued), Some(Scheduled), Cause::StuckInQueued),
        (Some(Queued), Some(Failed), Cause::StuckInQueued),
        // A try that was launched restarts: its pod may live. The pod of a success does not.
        (Some(Scheduled), Some(Restarting), Cause::Cleared),
        (Some(Queued), Some(Restarting), Cause::Cleared),
        (Some(Running), Some(Restarting), Cause::Cleared),
        (Some(UpForReschedule), Some(Restarting), Cause::Cleared),
        (Some(Deferred), Some(Restarting), Cause::Cleared),
        (Some(AwaitingInput), Some(Restarting), Cause::Cleared),
        (Some(Failed), Some(Restarting), Cause::Cleared),
        (Some(Skipped), Some(Restarting), Cause::Cleared),
        (Some(Scheduled), None, Cause::Cleared),
        (Some(Success), None, Cause::Cleared),
        (Some(UpForRetry), None, Cause::Cleared),
        (Some(UpstreamFailed), None, Cause::Cleared),
        (Some(Skipped), None, Cause::Cleared),
        (Some(Restarting), None, Cause::LaunchEnded),
        (Some(Restarting), Some(Failed), Cause::RunEnded),
        (Some(Restarting), Some(Skipped), Cause::RunEnded),
    ]
};

/// The edges between the states of a run.
pub const RUN_TRANSITIONS: &[RunTransition] = {
    use RunState::{Failed, Queued, Running, Success};
    &[
        (Queued, Running, RunCause::Started),
        (Queued, Queued, RunCause::Interrupted),
        (Queued, Failed, RunCause::Cancelled),
        (Queued, Failed, RunCause::PrepareRefused),
        (Running, Success, RunCause::TasksDone),
        (Running, Failed, RunCause::TasksDone),
        (Running, Failed, RunCause::Deadlocked),
        (Running, Failed, RunCause::TimedOut),
        (Running, Failed, RunCause::Cancelled),
        (Running, Failed, RunCause::PrepareRefused),
        (Running, Queued, RunCause::Interrupted),
        (Success, Queued, RunCause::Cleared),
        (Failed, Queued, RunCause::Cleared),
    ]
};

/// Called for each transition of a task instance; tests listen here.
pub(crate) fn note(transition: Transition) {
    #[cfg(test)]
    recorder::note(transition);
    let _ = transition;
}

/// Called for each transition of a run; tests listen here.
pub(crate) fn note_run(transition: RunTransition) {
    #[cfg(test)]
    recorder::note_run(transition);
    let _ = transition;
}

/// Which edges this thread has taken.
#[cfg(test)]
pub(crate) mod recorder {
    use std::{cell::RefCell, collections::BTreeSet};

    use super::{RUN_TRANSITIONS, RunTransition, TRANSITIONS, Transition};

    thread_local! {
        static TAKEN: RefCell<(BTreeSet<Transition>, BTreeSet<RunTransition>)> = RefCell::default();
    }

    pub(super) fn note(transition: Transition) {
        assert!(
            TRANSITIONS.contains(&transition),
            "{transition:?} is not listed"
        );
        TAKEN.with_borrow_mut(|taken| taken.0.insert(transition));
    }

    pub(super) fn note_run(transition: RunTransition) {
        assert!(
            RUN_TRANSITIONS.contains(&transition),
            "{transition:?} is not listed"
        );
        TAKEN.with_borrow_mut(|taken| taken.1.insert(transition));
    }

    /// The listed edges that this thread has not taken.
    pub(crate) fn untaken() -> (Vec<Transition>, Vec<RunTransition>) {
        TAKEN.with_borrow(|(tasks, runs)| {
            (
                TRANSITIONS
                    .iter()
                    .filter(|edge| !tasks.contains(edge))
                    .copied()
                    .collect(),
                RUN_TRANSITIONS
                    .iter()
                    .filter(|edge| !runs.contains(edge))
                    .copied()
                    .collect(),
            )
        })
    }
}
