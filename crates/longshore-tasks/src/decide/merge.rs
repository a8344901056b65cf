//! Which changes are written at once, and which wait a moment for the next one: a status can carry several.
//!
//! | Change | Written |
//! |---|---|
//! | the first of an attempt; it runs; it waits for resources; it ended | at once, with everything that waits |
//! | a step between the create and the start (`Queued`, `Initializing`) | within a second, by then with what followed |
//! | another reason, or Events, within a phase | likewise |
//!
//! Whatever was seen is told and stays in the history, also where one status carries it all.

use std::time::Duration;

use jiff::Timestamp;
use longshore_plugins::{K8sState, Launch, Phase, PhaseInfo};

use crate::model::{Noticed, Task};

/// How long a change waits for company.
const COMPANY: Duration = Duration::from_secs(1);

/// When changes are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing is new.
    Never,
    /// Something else may come until then.
    In(Duration),
    /// Now.
    Now,
}

/// Whether a change is followed by another one so often that it waits for it.
pub(crate) fn waits(stored: Phase, phase: Phase) -> bool {
    let is_on_its_way = matches!(phase, Phase::Queued | Phase::Initializing);
    let has_begun = matches!(stored, Phase::Queued | Phase::Initializing);
    is_on_its_way && has_begun || phase == stored && phase == Phase::Running
}

/// When `info`, the newest change of an attempt, is to be written.
pub(super) fn due(stored: &K8sState, task: &Task, info: &PhaseInfo, now: Timestamp) -> Due {
    let is_started = task
        .state
        .as_ref()
        .is_ok_and(|state| state.launch == Launch::Started);
    if !is_started || !waits(stored.phase, info.phase) {
        return Due::Now;
    }
    let is_news = info.to_k8s_state() != *stored;
    let noticed = task.noticed.iter().map(|noticed| noticed.at);
    let happened = task.happened.iter().map(|happened| happened.recorded_at);
    let since = noticed.chain(happened).min().unwrap_or(now);
    if !is_news && task.noticed.is_empty() {
        return Due::Never;
    }
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match COMPANY.checked_sub(waited).filter(|left| !left.is_zero()) {
        Some(left) => Due::In(left),
        None => Due::Now,
    }
}

/// What was noticed before `phase` and nobody was told of yet, oldest first.
pub(super) fn earlier(stored: &K8sState, task: &Task, phase: Phase) -> Vec<Noticed> {
    let before = task
        .noticed
        .iter()
        .filter(|noticed| noticed.info.phase != phase);
    before
        .map(|noticed| Noticed {
            info: noticed.info.clone().ordered_after(stored),
            at: noticed.at,
        })
        .filter(|noticed| noticed.info.to_k8s_state() != *stored)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_often_followed_by_something_waits_for_it() {
        use Phase::*;
        let table = [
            (Undefined, Queued, false),
            (Queued, Queued, true),
            (Queued, Initializing, true),
            (Initializing, Initializing, true),
            (Initializing, Queued, true),
            (Queued, Running, false),
            (Initializing, Running, false),
            (Running, Running, true),
            (Running, Success, false),
            (Queued, Success, false),
            (Queued, RetryableFailure, false),
            (Queued, WaitingForResources, false),
            (WaitingForResources, Queued, false),
            (WaitingForCache, Queued, false),
            // Somebody started the container again.
            (Running, Initializing, false),
        ];
        for (stored, phase, expected) in table {
            assert_eq!(waits(stored, phase), expected, "{stored:?} -> {phase:?}");
        }
    }
}
