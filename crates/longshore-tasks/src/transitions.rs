//! All ways of a TaskAction from one phase to another. The executor writes no other one: its tests fail on an edge that
//! is not listed here, and on a listed edge that is never taken.
//!
//! The phase of a TaskAction is the reason of its newest condition, as `status.phaseHistory` has it (task action spec
//! §4). The phases of plugins are finer, and may change within one phase of the TaskAction.

use serde::Serialize;

/// A phase of a TaskAction, under its name on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ActionPhase {
    /// The current attempt waits, or its resource exists and nothing of it runs.
    Queued,
    /// Images are pulled, volumes are mounted.
    Initializing,
    /// The user's code runs.
    Executing,
    /// The attempt failed, and may be tried again. Written by the executor of Flyte only.
    RetryableFailure,
    /// The task ended well.
    Completed,
    /// The task failed for good.
    PermanentFailure,
    /// What ran the task says that the task was aborted.
    Aborted,
    /// No plugin takes the task type.
    PluginNotFound,
    /// The spec cannot be run.
    InvalidSpec,
    /// A condition action waits for its signal.
    Paused,
    /// A condition action got its signal.
    Signaled,
    /// A condition action waited too long.
    TimedOut,
}

/// Why a TaskAction changes its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The executor begins with the first attempt: it creates the resource, or waits for quota, a kind of resource or the
    /// cache.
    Begun,
    /// The resource or the connector reports another phase, or the outputs of the attempt say how it ended.
    Reported,
    /// The attempt failed, and the next one begins.
    Retried,
    /// Nothing of the attempt is left, and it is launched again.
    LaunchedAgain,
    /// The outputs are in the cache.
    CacheHit,
    /// The resource cannot be built, or the API server refuses it.
    LaunchRefused,
    /// The number of system failures is above its limit.
    SystemFailures,
    /// The executor refuses the spec.
    Refused,
    /// A person signals a condition action.
    Signaled,
    /// The timeout of a condition action is over.
    TimedOut,
}

/// From, to and why; `None` is a TaskAction without a status.
pub type Transition = (Option<ActionPhase>, ActionPhase, Cause);

/// The edges between the phases of a TaskAction.
pub const TRANSITIONS: &[Transition] = {
    use ActionPhase::{
        Aborted, Completed, Executing, Initializing, InvalidSpec, Paused, PermanentFailure,
        PluginNotFound, Queued, RetryableFailure, Signaled, TimedOut,
    };
    &[
        (None, Queued, Cause::Begun),
        (None, Initializing, Cause::Reported),
        (None, Executing, Cause::Reported),
        (Some(Queued), Initializing, Cause::Reported),
        (Some(Queued), Executing, Cause::Reported),
        (Some(Initializing), Executing, Cause::Reported),
        // The job of an operator or of a connector may go back, and so may a launch that follows a system failure.
        (Some(Executing), Initializing, Cause::Reported),
        (Some(Executing), Queued, Cause::Reported),
        (Some(Initializing), Queued, Cause::Reported),
        (Some(Executing), Queued, Cause::LaunchedAgain),
        (Some(Initializing), Queued, Cause::LaunchedAgain),
        (Some(RetryableFailure), Queued, Cause::Reported),
        (Some(RetryableFailure), Queued, Cause::LaunchedAgain),
        (Some(RetryableFailure), Initializing, Cause::Reported),
        (Some(RetryableFailure), Executing, Cause::Reported),
        // The first status of an attempt may say that this attempt has failed already.
        (None, Queued, Cause::Retried),
        (Some(Initializing), Queued, Cause::Retried),
        (Some(Executing), Queued, Cause::Retried),
        (Some(RetryableFailure), Queued, Cause::Retried),
        (None, Completed, Cause::Reported),
        (Some(Queued), Completed, Cause::Reported),
        (Some(Initializing), Completed, Cause::Reported),
        (Some(Executing), Completed, Cause::Reported),
        (Some(RetryableFailure), Completed, Cause::Reported),
        (None, Completed, Cause::CacheHit),
        (Some(Queued), Completed, Cause::CacheHit),
        (Some(Initializing), Completed, Cause::CacheHit),
        (Some(Executing), Completed, Cause::CacheHit),
        (Some(RetryableFailure), Completed, Cause::CacheHit),
        (None, PermanentFailure, Cause::Reported),
        (Some(Queued), PermanentFailure, Cause::Reported),
        (Some(Initializing), PermanentFailure, Cause::Reported),
        (Some(Executing), PermanentFailure, Cause::Reported),
        (Some(RetryableFailure), PermanentFailure, Cause::Reported),
        (None, PermanentFailure, Cause::SystemFailures),
        (Some(Queued), PermanentFailure, Cause::SystemFailures),
        (Some(Initializing), PermanentFailure, Cause::SystemFailures),
        (Some(Executing), PermanentFailure, Cause::SystemFailures),
        (
            Some(RetryableFailure),
            PermanentFailure,
            Cause::SystemFailures,
        ),
        (None, PermanentFailure, Cause::LaunchRefused),
        (Some(Queued), PermanentFailure, Cause::LaunchRefused),
        (Some(Initializing), PermanentFailure, Cause::LaunchRefused),
        (Some(Executing), PermanentFailure, Cause::LaunchRefused),
        (
            Some(RetryableFailure),
            PermanentFailure,
            Cause::LaunchRefused,
        ),
        (None, Aborted, Cause::Reported),
        (Some(Queued), Aborted, Cause::Reported),
        (Some(Initializing), Aborted, Cause::Reported),
        (Some(Executing), Aborted, Cause::Reported),
        (Some(RetryableFailure), Aborted, Cause::Reported),
        // A spec can be changed while its task runs.
        (None, PluginNotFound, Cause::Refused),
        (Some(Queued), PluginNotFound, Cause::Refused),
        (Some(Initializing), PluginNotFound, Cause::Refused),
        (Some(Executing), PluginNotFound, Cause::Refused),
        (Some(RetryableFailure), PluginNotFound, Cause::Refused),
        (None, InvalidSpec, Cause::Refused),
        (Some(Queued), InvalidSpec, Cause::Refused),
        (Some(Initializing), InvalidSpec, Cause::Refused),
        (Some(Executing), InvalidSpec, Cause::Refused),
        (Some(RetryableFailure), InvalidSpec, Cause::Refused),
        (Some(Paused), InvalidSpec, Cause::Refused),
        (None, Paused, Cause::Begun),
        (None, Signaled, Cause::Signaled),
        (Some(Paused), Signaled, Cause::Signaled),
        (None, TimedOut, Cause::TimedOut),
        (Some(Paused), TimedOut, Cause::TimedOut),
    ]
};

/// Which edges the plans of this thread have taken.
#[cfg(test)]
pub(crate) mod recorder {
    use std::{cell::RefCell, collections::BTreeSet};

    use longshore_api::flyte::{
        CONDITION_FAILED, CONDITION_PROGRESSING, CONDITION_SUCCEEDED, Condition, TaskActionStatus,
    };
    use serde_json::json;

    use super::{ActionPhase, Cause, TRANSITIONS, Transition};
    use crate::{catalog::CatalogCacheStatus, model::Action};

    const PHASES: [ActionPhase; 12] = {
        use ActionPhase::*;
        [
            Queued,
            Initializing,
            Executing,
            RetryableFailure,
            Completed,
            PermanentFailure,
            Aborted,
            PluginNotFound,
            InvalidSpec,
            Paused,
            Signaled,
            TimedOut,
        ]
    };

    thread_local! {
        static TAKEN: RefCell<BTreeSet<Transition>> = RefCell::default();
    }

    /// A plan about this action writes the status `new`.
    ///
    /// # Panics
    /// On an edge that is not listed.
    pub(crate) fn note(action: &Action, new: &TaskActionStatus) {
        let (from, to) = (phase_of(&action.status), phase_of(new));
        let Some(to) = to.filter(|to| from != Some(*to)) else {
            return;
        };
        let transition = (from, to, cause(action, new, from, to));
        assert!(
            TRANSITIONS.contains(&transition),
            "{transition:?} is not listed\nbefore: {:#?}\nafter: {new:#?}",
            action.status
        );
        TAKEN.with_borrow_mut(|taken| taken.insert(transition));
    }

    /// The listed edges that this thread has not taken.
    pub(crate) fn untaken() -> Vec<Transition> {
        TAKEN.with_borrow(|taken| {
            let edges = TRANSITIONS.iter();
            let untaken = edges.filter(|edge| !taken.contains(edge));
            untaken.copied().collect()
        })
    }

    fn phase_of(status: &TaskActionStatus) -> Option<ActionPhase> {
        let conditions = [CONDITION_SUCCEEDED, CONDITION_FAILED, CONDITION_PROGRESSING]
            .into_iter()
            .filter_map(|kind| status.condition(kind));
        let newest = conditions.into_iter().find(|it| Condition::is_true(it))?;
        let mut phases = PHASES.into_iter();
        let phase = phases.find(|phase| json!(phase) == newest.reason);
        Some(phase.unwrap_or_else(|| panic!("{newest:?} is no phase")))
    }

    fn cause(
        action: &Action,
        new: &TaskActionStatus,
        from: Option<ActionPhase>,
        to: ActionPhase,
    ) -> Cause {
        use ActionPhase::{
            InvalidSpec, Paused, PermanentFailure, PluginNotFound, Queued, Signaled, TimedOut,
        };
        let code = new.error_state.as_ref().map(|error| error.code.as_str());
        let is_launched = action.children.current.present().is_some();
        let is_hit = new.cache_status == CatalogCacheStatus::CacheHit as i32;
        let is_next_attempt = new.attempts > action.attempt();
        let mut causes = [
            (matches!(to, PluginNotFound | InvalidSpec), Cause::Refused),
            (to == Signaled, Cause::Signaled),
            (to == TimedOut, Cause::TimedOut),
            (is_hit, Cause::CacheHit),
            (
                code == Some("MaxSystemFailuresExceeded"),
                Cause::SystemFailures,
            ),
            (to == Queued && is_next_attempt, Cause::Retried),
            (
                from.is_none() && matches!(to, Queued | Paused),
                Cause::Begun,
            ),
            (to == Queued && !is_launched, Cause::LaunchedAgain),
            (to == PermanentFailure && !is_launched, Cause::LaunchRefused),
        ]
        .into_iter();
        causes
            .find(|(is_it, _)| *is_it)
            .map_or(Cause::Reported, |(_, cause)| cause)
    }
}
