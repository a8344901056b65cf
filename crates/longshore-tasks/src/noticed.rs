//! Changes of attempts that were seen and wait to be written. Kept in memory: after a restart what is there then is
//! written.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use longshore_plugins::{K8sState, NOTHING_KNOWN, PhaseInfo};

use crate::{
    decide::waits,
    model::{ActionKey, LaunchId, Noticed},
};

/// Changes that wait to be written, by action.
#[derive(Debug, Default)]
pub(crate) struct NoticedChanges {
    known: Mutex<BTreeMap<ActionKey, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    /// Of this launch.
    launch: String,
    /// Since this was written.
    stored: K8sState,
    /// Oldest first, one of each phase.
    changes: Vec<Noticed>,
}

impl NoticedChanges {
    fn known(&self) -> MutexGuard<'_, BTreeMap<ActionKey, Waiting>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The attempt looks like this now. Answers what waits: this one is the last, if it waits itself.
    pub(crate) fn see(
        &self,
        key: &ActionKey,
        launch: &LaunchId,
        stored: &K8sState,
        info: &PhaseInfo,
        now: Timestamp,
    ) -> Vec<Noticed> {
        let launch = launch.to_string();
        let mut known = self.known();
        let mut changes = match known.remove(key) {
            Some(waiting) if waiting.launch == launch && waiting.stored == *stored => {
                waiting.changes
            }
            Some(_) | None => Vec::new(),
        };
        // That nothing is known is no news.
        let has_news = info.reason != stored.reason && info.reason != NOTHING_KNOWN;
        let is_as_stored = info.phase == stored.phase && !has_news;
        let is_waiting = waits(stored.phase, info.phase);
        if is_waiting && !(is_as_stored && changes.is_empty()) {
            let before = changes.iter().position(|it| it.info.phase == info.phase);
            let at = before.map_or(now, |before| changes.remove(before).at);
            let info = info.clone();
            changes.push(Noticed { info, at });
        }
        if !changes.is_empty() {
            let waiting = Waiting {
                launch,
                stored: stored.clone(),
                changes: changes.clone(),
            };
            known.insert(key.clone(), waiting);
        }
        changes
    }

    /// Everything was written, or nobody is interested any more.
    pub(crate) fn forget(&self, key: &ActionKey) {
        self.known().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longshore_plugins::Phase;
    use longshore_test::EPOCH;

    use super::*;

    fn key() -> ActionKey {
        ActionKey {
            namespace: "flyte".to_owned(),
            name: "r-a".to_owned(),
        }
    }

    fn stored(phase: Phase, reason: &str) -> K8sState {
        PhaseInfo::of(phase, reason).to_k8s_state()
    }

    /// What waits after these were seen, one per second: phase and second.
    fn seen(stored: &K8sState, changes: &[(Phase, &str)]) -> Vec<(Phase, String, i64)> {
        let noticed = NoticedChanges::default();
        let launch = LaunchId {
            uid: "u".to_owned(),
            attempt: 1,
            n_failures: 0,
        };
        let mut waiting = Vec::new();
        for (second, (phase, reason)) in (0..).zip(changes) {
            let info = PhaseInfo::of(*phase, *reason);
            let now = EPOCH + Duration::from_secs(second);
            waiting = noticed.see(&key(), &launch, stored, &info, now);
        }
        let second = |at: Timestamp| at.as_second() - EPOCH.as_second();
        let waiting = waiting.into_iter();
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
        let noticed = NoticedChanges::default();
        let launch = LaunchId {
            uid: "u".to_owned(),
            attempt: 1,
            n_failures: 0,
        };
        let queued = stored(Phase::Queued, "submitted");
        let pulling = PhaseInfo::of(Phase::Initializing, "pulling");
        let see = |launch: &LaunchId, stored: &K8sState| {
            noticed.see(&key(), launch, stored, &pulling, EPOCH).len()
        };
        assert_eq!(see(&launch, &queued), 1);
        assert_eq!(see(&launch, &pulling.to_k8s_state()), 0);
        assert_eq!(see(&launch, &queued), 1);
        let next = LaunchId {
            attempt: 2,
            ..launch
        };
        assert_eq!(see(&next, &stored(Phase::Undefined, "")), 0);
        assert!(noticed.known().is_empty(), "nothing is kept of it");
    }
}
