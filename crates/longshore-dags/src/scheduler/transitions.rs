//! All ways from one state to another. The scheduler takes no other one: its tests fail on an edge that is not listed
//! here, and on a listed one that is never taken.

use longshore_store::{RunState, TaskState};

/// Why a task instance changes its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Its dependencies hold.
    DependenciesHold,
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
    /// Its run was interrupted, or its pod stayed behind in another cluster.
    Interrupted,
    /// Its run ended before it did.
    RunEnded,
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
    /// Somebody cancelled it.
    Cancelled,
    /// The objects that its pods share cannot be created.
    PrepareRefused,
    /// Somebody interrupted it.
    Interrupted,
}

/// From, to and why.
pub type Transition = (Option<TaskState>, TaskState, Cause);
/// From, to and why.
pub type RunTransition = (RunState, RunState, RunCause);

/// The edges between the states of a task instance.
pub const TRANSITIONS: &[Transition] = {
    use TaskState::{
        Failed, Queued, Running, Scheduled, Skipped, Success, UpForRetry, UpstreamFailed,
    };
    &[
        (None, Scheduled, Cause::DependenciesHold),
        (None, Skipped, Cause::TriggerRule),
        (None, UpstreamFailed, Cause::TriggerRule),
        (None, Skipped, Cause::RunEnded),
        (Some(Scheduled), Queued, Cause::SlotFree),
        (Some(Scheduled), Success, Cause::PodSucceeded),
        (Some(Scheduled), Skipped, Cause::RunEnded),
        (Some(Queued), Running, Cause::PodRuns),
        (Some(Queued), Success, Cause::PodSucceeded),
        (Some(Queued), Queued, Cause::LaunchFailed),
        (Some(Queued), UpForRetry, Cause::TryFailed),
        (Some(Queued), Failed, Cause::TryFailed),
        (Some(Queued), Failed, Cause::BuildFailed),
        (Some(Queued), Scheduled, Cause::Interrupted),
        (Some(Queued), Skipped, Cause::RunEnded),
        (Some(Running), Success, Cause::PodSucceeded),
        (Some(Running), UpForRetry, Cause::TryFailed),
        (Some(Running), Failed, Cause::TryFailed),
        (Some(Running), Scheduled, Cause::Interrupted),
        (Some(Running), Failed, Cause::RunEnded),
        (Some(UpForRetry), Scheduled, Cause::RetryDue),
        (Some(UpForRetry), Skipped, Cause::RunEnded),
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
