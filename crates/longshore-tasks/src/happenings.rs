//! Kubernetes Events about the resources of actions, until their attempts' statuses have carried them (task action
//! spec §9.4). Kept in memory; the cursor of what was told is in the plugin's state.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt, future::ready};
use kube::Resource as _;
use longshore_core::{Resource, Scope};
use longshore_kit::{Cache, Clock, RawObject, Update};
use longshore_plugins::PluginState;
use serde::Deserialize;

use crate::model::{ActionKey, Happened};

/// What is watched.
pub(crate) const EVENT: Resource = Resource {
    group: "events.k8s.io",
    version: "v1",
    kind: "Event",
    plural: "events",
    scope: Scope::Namespaced,
};
/// Events of one resource that wait to be told: beyond that the oldest are dropped.
const MAX_WAITING: usize = 32;

/// Events about this kind; those about others are not even sent.
pub(crate) fn about(resource: Resource) -> String {
    format!("regarding.kind={}", resource.kind)
}

/// Events that wait to be told, by action.
#[derive(Debug, Default)]
pub(crate) struct Happenings {
    known: Mutex<BTreeMap<ActionKey, OfResource>>,
}

/// Those of the action's newest resource.
#[derive(Debug)]
struct OfResource {
    uid: String,
    /// By the Event's own uid.
    events: Vec<(String, Happened)>,
}

impl Happenings {
    fn known(&self) -> MutexGuard<'_, BTreeMap<ActionKey, OfResource>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An Event about the resource `uid` of an action. Answers whether it is a new one.
    fn note(&self, key: &ActionKey, uid: &str, event: &str, mut happened: Happened) -> bool {
        let mut known = self.known();
        let of = known.entry(key.clone()).or_insert_with(|| OfResource {
            uid: uid.to_owned(),
            events: Vec::new(),
        });
        if of.uid != uid {
            uid.clone_into(&mut of.uid);
            of.events.clear();
        }
        if of.events.iter().any(|(known, _)| known == event) {
            return false; // It happened again, and only the first time counts.
        }
        // The cursor tells Events of one second apart by this, whatever the clock does.
        let last = of.events.iter().map(|(_, known)| known.recorded_at).max();
        let least = last.map(|last| last + Duration::from_nanos(1));
        happened.recorded_at = happened
            .recorded_at
            .max(least.unwrap_or(happened.recorded_at));
        if of.events.len() >= MAX_WAITING {
            of.events.remove(0);
        }
        of.events.push((event.to_owned(), happened));
        true
    }

    /// What happened to the resource `uid` that was not told yet, oldest first.
    pub(crate) fn untold(&self, key: &ActionKey, uid: &str, told: &PluginState) -> Vec<Happened> {
        let mut known = self.known();
        let Some(of) = known.get_mut(key).filter(|of| of.uid == uid) else {
            return Vec::new();
        };
        // Those of the cursor's own second stay, so that they are known if they come again.
        let cursor = told.last_event_created_at;
        of.events
            .retain(|(_, happened)| Some(happened.created_at) >= cursor);
        let events = of.events.iter().map(|(_, happened)| happened);
        let mut untold: Vec<Happened> = events.filter(|it| it.is_after(told)).cloned().collect();
        untold.sort_by_key(|it| (it.created_at, it.recorded_at));
        untold
    }

    /// There is no such action any more, or it ended.
    pub(crate) fn forget(&self, key: &ActionKey) {
        self.known().remove(key);
    }
}

impl Happened {
    /// Whether the cursor is before it. One that came with the first list may have been told by the process before us,
    /// which knew better in which order those of one second came.
    fn is_after(&self, told: &PluginState) -> bool {
        let created = (Some(self.created_at), told.last_event_created_at);
        let recorded = (Some(self.recorded_at), told.last_event_recorded_at);
        created.0 > created.1
            || created.0 == created.1 && !self.is_replayed && recorded.0 > recorded.1
    }
}

/// Notes the Events that `updates` tell of, and yields the actions that they are about.
///
/// Only what is about a pod that `pods` shows, and that has not ended, is noted: whoever follows this has listed the
/// pods before. Other kinds are followed likewise; when they ended, their plugins know.
pub(crate) fn follow(
    updates: impl Stream<Item = Update<RawObject>> + Send,
    happenings: Arc<Happenings>,
    pods: Arc<Cache<RawObject>>,
    clock: Arc<dyn Clock>,
    owner: fn(&RawObject) -> Option<ActionKey>,
) -> impl Stream<Item = ActionKey> + Send {
    let mut is_replayed = true;
    updates.filter_map(move |update| {
        let key = match update {
            Update::Applied(event) => {
                let about = About::of(&event);
                about.and_then(|About { regarding, note }| {
                    let pod = pods.get(&regarding.namespace, &regarding.name);
                    let pod = pod.present()?;
                    let is_of_pod = pod.meta().uid.as_ref() == Some(&regarding.uid);
                    let key = owner(pod).filter(|_| is_of_pod && !has_ended(pod))?;
                    let metadata = event.meta();
                    let happened = Happened {
                        note,
                        created_at: metadata.creation_timestamp.as_ref()?.0,
                        recorded_at: clock.now(),
                        is_replayed,
                    };
                    let id = metadata.uid.as_deref()?;
                    let is_new = happenings.note(&key, &regarding.uid, id, happened);
                    is_new.then_some(key)
                })
            }
            Update::Reached(_) => {
                is_replayed = false;
                None
            }
            Update::Deleted(_) => None,
        };
        ready(key)
    })
}

fn has_ended(pod: &RawObject) -> bool {
    #[derive(Deserialize)]
    struct Pod {
        status: Option<Status>,
    }
    #[derive(Deserialize)]
    struct Status {
        phase: Option<String>,
    }

    let phase = pod.read::<Pod>().ok();
    let phase = phase.and_then(|pod| pod.status?.phase);
    matches!(phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// What an Event says.
#[derive(Deserialize)]
struct About {
    regarding: Regarding,
    note: String,
}

/// About what.
#[derive(Deserialize)]
struct Regarding {
    namespace: String,
    name: String,
    uid: String,
}

impl About {
    /// `None` where it says nothing, or not about what.
    fn of(event: &RawObject) -> Option<Self> {
        let about: Self = event.read().ok()?;
        (!about.note.is_empty()).then_some(about)
    }
}

#[cfg(test)]
mod tests {
    use longshore_test::EPOCH;

    use super::*;

    fn key() -> ActionKey {
        ActionKey {
            namespace: "flyte".to_owned(),
            name: "r-a".to_owned(),
        }
    }

    fn happened(note: &str, created: u64, recorded: u64) -> Happened {
        Happened {
            note: note.to_owned(),
            created_at: EPOCH + Duration::from_secs(created),
            recorded_at: EPOCH + Duration::from_secs(recorded),
            is_replayed: false,
        }
    }

    fn replayed(note: &str, created: u64) -> Happened {
        Happened {
            is_replayed: true,
            ..happened(note, created, 1)
        }
    }

    fn cursor(created: u64, recorded: u64) -> PluginState {
        PluginState {
            last_event_created_at: Some(EPOCH + Duration::from_secs(created)),
            last_event_recorded_at: Some(EPOCH + Duration::from_secs(recorded)),
            ..PluginState::default()
        }
    }

    fn notes(happenings: &Happenings, told: &PluginState) -> String {
        let untold = happenings.untold(&key(), "pod", told).into_iter();
        untold.map(|it| it.note).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_event_is_told_once_in_order_and_not_again_after_a_restart() {
        let happenings = Happenings::default();
        let events = [
            replayed("of before", 2),
            happened("scheduled", 2, 3),
            happened("pulling", 2, 4),
            happened("pulled", 4, 5),
            happened("late", 3, 6),
        ];
        for event in events {
            assert!(happenings.note(&key(), "pod", &event.note.clone(), event));
        }
        let table = [
            (
                PluginState::default(),
                "of before scheduled pulling late pulled",
            ),
            (cursor(2, 3), "pulling late pulled"),
            (cursor(2, 4), "late pulled"),
            (cursor(4, 5), ""),
        ];
        for (told, expected) in table {
            assert_eq!(notes(&happenings, &told), expected, "{told:?}");
        }
    }

    #[test]
    fn events_of_one_instant_are_told_apart() {
        let happenings = Happenings::default();
        let at_once = |note: &str| happenings.note(&key(), "pod", note, happened(note, 1, 1));
        assert!(at_once("first"));
        assert_eq!(notes(&happenings, &PluginState::default()), "first");
        assert!(at_once("second"));
        assert_eq!(notes(&happenings, &cursor(1, 1)), "second");
    }

    #[test]
    fn events_come_again_and_are_of_one_resource() {
        let happenings = Happenings::default();
        assert!(happenings.note(&key(), "pod", "1", happened("a", 1, 1)));
        assert!(!happenings.note(&key(), "pod", "1", happened("a", 1, 9)));
        assert_eq!(notes(&happenings, &cursor(1, 1)), "", "seen, and known");
        assert!(!happenings.note(&key(), "pod", "1", happened("a", 1, 9)));
        assert!(happenings.note(&key(), "next", "2", happened("b", 2, 2)));
        assert_eq!(notes(&happenings, &PluginState::default()), "");
        happenings.forget(&key());
        assert!(happenings.known().is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let happenings = Happenings::default();
        for n in 0..100 {
            let event = happened(&n.to_string(), n, n);
            assert!(happenings.note(&key(), "pod", &n.to_string(), event));
        }
        let told = PluginState::default();
        let untold = happenings.untold(&key(), "pod", &told);
        assert_eq!(untold.len(), MAX_WAITING);
        assert_eq!(untold[0].note, "68");
    }
}
