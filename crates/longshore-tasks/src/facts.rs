//! What this process remembers of an action between rounds. Nothing of it is durable: after a restart each fact is found out
//! again, or does not hold any more.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_api::flyte::TaskActionStatus;
use longshore_plugins::{CacheKey, HeadPod, PluginState};

use crate::{
    model::{AbortRefused, Blocked, CreateFailure, LaunchId, PendingChanges, StatusForm, Undone},
    pod_events::PodEvents,
    remote::{OwnStates, Slot},
};

/// Failures are of one trouble where they are not further apart than this, which is more than the longest back-off.
const ONE_TROUBLE: Duration = Duration::from_secs(60);

/// Facts about an action that no cache shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    /// The changes of its attempt that are not on record yet.
    pub(crate) pending: PendingChanges,
    /// The pod of an operator whose changes lead to a round.
    pub(crate) head: Option<HeadPod>,
    /// The Kubernetes Events about its resource.
    pub(crate) pod_events: PodEvents,
    /// Its slot of the quota of jobs, or its place among those that wait for one.
    pub(crate) slot: Option<Arc<Slot>>,
    /// Why the last create failed, and the launch that it was for.
    blocked: Option<(String, Blocked)>,
    /// The launch whose resource a round has read to be gone for good.
    pub(crate) gone: Option<LaunchId>,
    /// The next launch of an attempt, and when it may begin.
    pub(crate) next_launch: Option<(LaunchId, Timestamp)>,
    /// The states of a plugin without a resource that this process has written.
    pub(crate) own_states: OwnStates,
    /// The reservation that the action waits for.
    pub(crate) waiting: Waiting,
    /// When this process wrote into the status what holds the action, where the status says so.
    pub(crate) said_at: Option<Timestamp>,
    /// The form in which its status is written.
    pub(crate) form: StatusForm,
    /// Why the API server refused last what an abort does.
    pub(crate) abort_refused: Option<AbortRefused>,
    /// What the API server does not do for it.
    pub(crate) undone: Undone,
    /// Since when it has waited for connectors that have not listed their task types yet.
    pub(crate) unlisted_since: Option<Timestamp>,
    /// Since when, and until when, what was written about it could not be read back.
    unsettled: Option<(Timestamp, Timestamp)>,
}

/// The reservation that an action waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The key of the reservation that it asked for and does not have, as far as it knows.
    pub(crate) key: Option<CacheKey>,
    /// Whether another action has given the reservation up since.
    pub(crate) is_freed: bool,
}

impl Facts {
    /// Drops what a status that was written has published.
    pub(crate) fn drop_published(&mut self, status: &TaskActionStatus) {
        self.pending = PendingChanges::default();
        let state = PluginState::read(status.plugin_state_version, &status.plugin_state);
        if let Ok(state) = state {
            self.pod_events.drop_published(&state);
        }
    }

    /// Whether the action has asked for news of a pod of this name.
    pub(crate) fn has_head(&self, pod: &str) -> bool {
        match &self.head {
            Some(HeadPod::Named(name)) => name == pod,
            Some(HeadPod::Beginning(start)) => pod.starts_with(start),
            None => false,
        }
    }

    /// The create of a launch failed.
    pub(crate) fn note_blocked(&mut self, launch: &str, kind: CreateFailure, now: Timestamp) {
        let same = self.blocked.as_ref();
        let is_same = |before: &CreateFailure| match (before, &kind) {
            (CreateFailure::Failed(_), CreateFailure::Failed(_)) => true,
            (before, kind) => before == kind,
        };
        let same = same.filter(|(of, blocked)| of == launch && is_same(&blocked.kind));
        let since = same.map_or(now, |(_, blocked)| blocked.since);
        self.blocked = Some((launch.to_owned(), Blocked { since, kind }));
    }

    /// What was written about the action cannot be read back. Returns since when.
    pub(crate) fn note_unsettled(&mut self, now: Timestamp) -> Timestamp {
        let is_on = |last: Timestamp| now <= last + ONE_TROUBLE;
        let before = self.unsettled.filter(|(_, last)| is_on(*last));
        let since = before.map_or(now, |(since, _)| since);
        self.unsettled = Some((since, now));
        since
    }

    /// When this launch may begin, where it has to wait.
    pub(crate) fn not_before(&self, launch: &LaunchId) -> Option<Timestamp> {
        let (of, at) = self.next_launch.as_ref()?;
        (of == launch).then_some(*at)
    }

    /// Why the last create of this launch failed.
    pub(crate) fn blocked(&self, launch: &LaunchId) -> Option<Blocked> {
        let (of, blocked) = self.blocked.as_ref()?;
        (*of == launch.to_string()).then(|| blocked.clone())
    }
}

#[cfg(test)]
mod tests {
    use longshore_test::EPOCH;

    use super::*;

    #[test]
    fn a_failed_create_blocks_one_launch_since_it_failed_so_first() {
        let launch = LaunchId {
            uid: "u".to_owned(),
            attempt: 1,
            n_failures: 0,
        };
        let later = EPOCH + Duration::from_secs(9);
        let mut facts = Facts::default();
        assert_eq!(facts.blocked(&launch), None);
        let mut note = |kind: CreateFailure, at| {
            facts.note_blocked(&launch.to_string(), kind, at);
            facts.blocked(&launch).unwrap().since
        };
        assert_eq!(note(CreateFailure::NameTaken, EPOCH), EPOCH);
        assert_eq!(note(CreateFailure::NameTaken, later), EPOCH);
        assert_eq!(note(CreateFailure::OverQuota(String::new()), later), later);
        let next = LaunchId {
            attempt: 2,
            ..launch
        };
        assert_eq!(facts.blocked(&next), None);
    }

    #[test]
    fn what_cannot_be_read_back_is_one_trouble_for_as_long_as_it_lasts() {
        let mut facts = Facts::default();
        for (now, expected) in [(0, 0), (30, 0), (90, 0), (200, 200)] {
            let at = |seconds| EPOCH + Duration::from_secs(seconds);
            assert_eq!(facts.note_unsettled(at(now)), at(expected), "{now}");
        }
    }

    #[test]
    fn a_head_pod_is_found_by_its_name_or_its_beginning() {
        let named = HeadPod::Named("a-driver".to_owned());
        let beginning = HeadPod::Beginning("b-head".to_owned());
        for (head, pod, expected) in [
            (Some(&named), "a-driver", true),
            (Some(&named), "a-driver-1", false),
            (Some(&beginning), "b-head", true),
            (Some(&beginning), "b-head-x7z", true),
            (Some(&beginning), "b-worker", false),
            (Some(&beginning), "", false),
            (None, "a-driver", false),
        ] {
            let facts = Facts {
                head: head.cloned(),
                ..Facts::default()
            };
            assert_eq!(facts.has_head(pod), expected, "{head:?} {pod}");
        }
    }
}
