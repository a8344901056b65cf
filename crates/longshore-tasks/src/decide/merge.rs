//! Which changes are written at once, and which wait a moment for the next one: a status can carry several.
//!
//! | Change | Written |
//! |---|---|
//! | the first of an attempt; it runs; it waits for resources; it ended | at once, with everything that waits |
//! | a step between the create and the start (`Queued`, `Initializing`) | within a second, by then with what followed |
//! | another reason, or Events, within a phase | likewise |
//!
//! Each change that was observed is published and stays in the history, also where one status carries them all. Until it is
//! written, the memory of the controller holds it; after a restart, what is there then is written.

use std::time::Duration;

use jiff::Timestamp;
use longshore_plugins::{K8sState, Launch, NOTHING_KNOWN, Phase, PhaseInfo};

use crate::model::{LaunchId, PendingChange, PendingChanges, Task};

/// How long a change waits for company.
const COMPANY: Duration = Duration::from_secs(1);

/// When the changes of an attempt are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing is new.
    Never,
    /// After this time: another change may come until then.
    In(Duration),
    /// Now.
    Now,
}

/// The pending changes of an attempt that looks like `info` now, which is the last of them if it waits itself.
/// `remembered` are those of the round before: they count for the same launch, until another state is on record.
pub(crate) fn pending(
    remembered: &PendingChanges,
    launch: &LaunchId,
    stored: &K8sState,
    info: &PhaseInfo,
    now: Timestamp,
) -> PendingChanges {
    let launch = launch.to_string();
    let mut changes = remembered.changes.clone();
    if remembered.launch != launch || remembered.stored != *stored {
        changes.clear();
    }
    // That nothing is known is no news.
    let has_news = info.reason != stored.reason && info.reason != NOTHING_KNOWN;
    let is_as_stored = info.phase == stored.phase && !has_news;
    if waits(stored.phase, info.phase) && !(is_as_stored && changes.is_empty()) {
        let before = changes.iter().position(|it| it.info.phase == info.phase);
        let at = before.map_or(now, |before| changes.remove(before).at);
        let info = info.clone();
        changes.push(PendingChange { info, at });
    }
    if changes.is_empty() {
        return PendingChanges::default();
    }
    PendingChanges {
        launch,
        stored: stored.clone(),
        changes,
    }
}

/// Whether a change is followed by another one so often that it waits for it.
fn waits(stored: Phase, phase: Phase) -> bool {
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
    let changed = task.pending.iter().map(|change| change.at);
    let events = task.pod_events.iter().map(|event| event.recorded_at);
    let since = changed.chain(events).min().unwrap_or(now);
    if !is_news && task.pending.is_empty() {
        return Due::Never;
    }
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match COMPANY.checked_sub(waited).filter(|left| !left.is_zero()) {
        Some(left) => Due::In(left),
        None => Due::Now,
    }
}

/// The pending changes before `phase`, oldest first.
pub(super) fn earlier(stored: &K8sState, task: &Task, phase: Phase) -> Vec<PendingChange> {
    let before = task
        .pending
        .iter()
        .filter(|change| change.info.phase != phase);
    before
        .map(|change| PendingChange {
            info: change.info.clone().ordered_after(stored),
            at: change.at,
        })
        .filter(|change| change.info.to_k8s_state() != *stored)
        .collect()
}

#[cfg(test)]
mod tests {
    use longshore_test::EPOCH;

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
            // The kubelet started the container again.
            (Running, Initializing, false),
        ];
        for (stored, phase, expected) in table {
            assert_eq!(waits(stored, phase), expected, "{stored:?} -> {phase:?}");
        }
    }

    fn launch(attempt: u32) -> LaunchId {
        LaunchId {
            uid: "u".to_owned(),
            attempt,
            n_failures: 0,
        }
    }

    fn stored(phase: Phase, reason: &str) -> K8sState {
        PhaseInfo::of(phase, reason).to_k8s_state()
    }

    /// What waits after these were seen, one per second: phase and second.
    fn seen(stored: &K8sState, changes: &[(Phase, &str)]) -> Vec<(Phase, String, i64)> {
        let mut waiting = PendingChanges::default();
        for (second, (phase, reason)) in (0..).zip(changes) {
            let info = PhaseInfo::of(*phase, *reason);
            let now = EPOCH + Duration::from_secs(second);
            waiting = pending(&waiting, &launch(1), stored, &info, now);
        }
        let second = |at: Timestamp| at.as_second() - EPOCH.as_second();
        let waiting = waiting.changes.into_iter();
        waiting
            .map(|it| (it.info.phase, it.info.reason, second(it.at)))
            .collect()
    }

    #[test]
    fn each_phase_waits_once_since_it_was_first_seen() {
        use Phase::*;
        let queued = stored(Queued, "submitted");
        assert_eq!(seen(&queued, &[(Queued, "submitted")]), []);
        assert_eq!(seen(&queued, &[(Queued, NOTHING_KNOWN)]), []);
        assert_eq!(
            seen(
                &queued,
                &[
                    (Queued, "no cpu"),
                    (Initializing, "pulling"),
                    (Initializing, "pulled")
                ]
            ),
            [
                (Queued, "no cpu".to_owned(), 0),
                (Initializing, "pulled".to_owned(), 1)
            ]
        );
        let to_the_start = [(Initializing, "pulling"), (Running, "")];
        assert_eq!(
            seen(&queued, &to_the_start),
            [(Initializing, "pulling".to_owned(), 0)],
            "what does not wait is not kept"
        );
        let there_and_back = [(Initializing, "pulling"), (Queued, "submitted")];
        assert_eq!(seen(&queued, &there_and_back).len(), 2);
    }

    #[test]
    fn what_was_written_waits_no_more() {
        let queued = stored(Phase::Queued, "submitted");
        let pulling = PhaseInfo::of(Phase::Initializing, "pulling");
        let see = |before: &PendingChanges, attempt: u32, stored: &K8sState| {
            pending(before, &launch(attempt), stored, &pulling, EPOCH)
        };
        let first = see(&PendingChanges::default(), 1, &queued);
        assert_eq!(first.changes.len(), 1);
        let nothing = PendingChanges::default();
        assert_eq!(see(&first, 1, &pulling.to_k8s_state()), nothing);
        let next = see(&first, 2, &stored(Phase::Undefined, ""));
        assert_eq!(next, nothing, "nothing is kept of it");
    }
}
