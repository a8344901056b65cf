//! Kubernetes Events about the resources of actions, until a status of the attempt has carried them (task action spec
//! §9.4). The memory of the controller holds them; the cursor of what was published is in the plugin's state.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use kube::Resource as _;
use longshore_core::{Resource, Scope, text::shorten_to};
use longshore_kit::{Cache, Clock, Kind, Notes, RawObject, Update};
use longshore_plugins::PluginState;
use serde::Deserialize;

use crate::{
    facts::Facts,
    model::{ActionKey, PodEvent},
    service::owner_of,
};

/// What is watched.
const EVENT: Resource = Resource {
    group: "events.k8s.io",
    version: "v1",
    kind: "Event",
    plural: "events",
    scope: Scope::Namespaced,
};
/// Events of one resource that wait to be published: beyond that the oldest are dropped.
const MAX_WAITING: usize = 32;
/// The longest note that is kept, in bytes: that of an Event of this kind. Older kinds of Events have no limit.
const MAX_NOTE: usize = 1024;

/// Events about resources of this kind.
pub(crate) fn about(resource: Resource) -> Kind<RawObject> {
    let about = format!("regarding.kind={}", resource.kind);
    Kind::new(EVENT, Cache::passing_on()).fields(about)
}

/// Events about the newest resource of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodEvents {
    /// The uid of the resource.
    uid: String,
    /// By the Event's own uid, in the order of arrival.
    events: Vec<(String, PodEvent)>,
}

impl PodEvents {
    /// Adds an Event about the resource `uid`. Returns whether it is a new one.
    fn note(&mut self, uid: &str, id: &str, mut event: PodEvent) -> bool {
        if self.uid != uid {
            uid.clone_into(&mut self.uid);
            self.events.clear();
        }
        if self.events.iter().any(|(known, _)| known == id) {
            return false; // It happened again, and only the first time counts.
        }
        // The cursor tells Events of one second apart by this, whatever the clock does.
        let last = self.events.iter().map(|(_, known)| known.recorded_at).max();
        let least = last.map(|last| last + Duration::from_nanos(1));
        event.recorded_at = event.recorded_at.max(least.unwrap_or(event.recorded_at));
        if self.events.len() >= MAX_WAITING {
            self.events.remove(0);
        }
        self.events.push((id.to_owned(), event));
        true
    }

    /// The Events about the resource `uid` that come after the cursor in the state on record, oldest first.
    pub(crate) fn unpublished(&self, uid: &str, on_record: &PluginState) -> Vec<PodEvent> {
        let events = self.events.iter().map(|(_, event)| event);
        let is_new = |event: &&PodEvent| self.uid == uid && event.is_after(on_record);
        let mut unpublished: Vec<PodEvent> = events.filter(is_new).cloned().collect();
        unpublished.sort_by_key(|event| (event.created_at, event.recorded_at));
        unpublished
    }

    /// Drops the Events before the cursor of a state that was written. Those of the cursor's own second stay, so that
    /// they are known if a watch delivers them again.
    pub(crate) fn drop_published(&mut self, on_record: &PluginState) {
        let cursor = on_record.last_event_created_at;
        self.events
            .retain(|(_, event)| Some(event.created_at) >= cursor);
    }
}

impl PodEvent {
    /// Whether it comes after the cursor. An Event of the first list may have been published by the process before this
    /// one, which knew better in which order those of one second came.
    fn is_after(&self, on_record: &PluginState) -> bool {
        let created = (Some(self.created_at), on_record.last_event_created_at);
        let recorded = (Some(self.recorded_at), on_record.last_event_recorded_at);
        created.0 > created.1
            || created.0 == created.1 && !self.is_replayed && recorded.0 > recorded.1
    }
}

/// Notes the Events that the updates bring, and returns the actions that they are about.
///
/// Only an Event about an object that `objects` shows, and that has not ended, is noted: Events are listed after these
/// objects. Of a kind other than pods, the plugin knows what has ended.
pub(crate) fn noted(
    facts: Notes<ActionKey, Facts>,
    objects: Arc<Cache<RawObject>>,
    clock: Arc<dyn Clock>,
) -> impl Fn(Update<RawObject>) -> Option<ActionKey> + Send + Sync {
    let are_listed = AtomicBool::new(false);
    move |update| match update {
        Update::Applied(event) => {
            let is_replayed = !are_listed.load(Relaxed);
            note(&event, is_replayed, &facts, &objects, clock.as_ref())
        }
        Update::Reached(_) => {
            are_listed.store(true, Relaxed);
            None
        }
        Update::Deleted(_) => None,
    }
}

/// Notes an Event. Returns the action that it is about, where it says something new.
fn note(
    event: &RawObject,
    is_replayed: bool,
    facts: &Notes<ActionKey, Facts>,
    pods: &Cache<RawObject>,
    clock: &dyn Clock,
) -> Option<ActionKey> {
    let About { regarding, note } = About::of(event)?;
    let pod = pods.get(&regarding.namespace, &regarding.name);
    let pod = pod.present()?;
    if pod.meta().uid.as_ref() != Some(&regarding.uid) || has_ended(pod) {
        return None;
    }
    let (key, incarnation) = owner_of(pod)?;
    let metadata = event.meta();
    let id = metadata.uid.as_deref()?;
    let event = PodEvent {
        note,
        created_at: metadata.creation_timestamp.as_ref()?.0,
        recorded_at: clock.now(),
        is_replayed,
    };
    let is_new = facts.note(&key, &incarnation, |facts| {
        facts.pod_events.note(&regarding.uid, id, event)
    });
    is_new.then_some(key)
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
        let mut about: Self = event.read().ok()?;
        about.note = shorten_to(about.note, MAX_NOTE);
        (!about.note.is_empty()).then_some(about)
    }
}

#[cfg(test)]
mod tests {
    use longshore_test::EPOCH;

    use super::*;

    fn event(note: &str, created: u64, recorded: u64) -> PodEvent {
        PodEvent {
            note: note.to_owned(),
            created_at: EPOCH + Duration::from_secs(created),
            recorded_at: EPOCH + Duration::from_secs(recorded),
            is_replayed: false,
        }
    }

    fn replayed(note: &str, created: u64) -> PodEvent {
        PodEvent {
            is_replayed: true,
            ..event(note, created, 1)
        }
    }

    fn cursor(created: u64, recorded: u64) -> PluginState {
        PluginState {
            last_event_created_at: Some(EPOCH + Duration::from_secs(created)),
            last_event_recorded_at: Some(EPOCH + Duration::from_secs(recorded)),
            ..PluginState::default()
        }
    }

    fn notes(events: &PodEvents, on_record: &PluginState) -> String {
        let unpublished = events.unpublished("pod", on_record).into_iter();
        unpublished.map(|it| it.note).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_event_is_told_once_in_order_and_not_again_after_a_restart() {
        let mut known = PodEvents::default();
        let events = [
            replayed("of before", 2),
            event("scheduled", 2, 3),
            event("pulling", 2, 4),
            event("pulled", 4, 5),
            event("late", 3, 6),
        ];
        for event in events {
            assert!(known.note("pod", &event.note.clone(), event));
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
        for (on_record, expected) in table {
            assert_eq!(notes(&known, &on_record), expected, "{on_record:?}");
        }
    }

    #[test]
    fn events_of_one_instant_are_told_apart() {
        let mut known = PodEvents::default();
        assert!(known.note("pod", "first", event("first", 1, 1)));
        assert_eq!(notes(&known, &PluginState::default()), "first");
        assert!(known.note("pod", "second", event("second", 1, 1)));
        assert_eq!(notes(&known, &cursor(1, 1)), "second");
    }

    #[test]
    fn events_come_again_and_are_of_one_resource() {
        let mut known = PodEvents::default();
        assert!(known.note("pod", "0", event("before", 0, 0)));
        assert!(known.note("pod", "1", event("a", 1, 1)));
        assert!(!known.note("pod", "1", event("a", 1, 9)));
        assert_eq!(notes(&known, &cursor(1, 1)), "", "seen, and known");
        known.drop_published(&cursor(1, 1));
        assert_eq!(known.events.len(), 1, "those of the cursor's second stay");
        assert!(!known.note("pod", "1", event("a", 1, 9)));
        assert!(known.note("next", "2", event("b", 2, 2)));
        assert_eq!(notes(&known, &PluginState::default()), "");
    }

    #[test]
    fn memory_is_bounded() {
        let mut known = PodEvents::default();
        for n in 0..100 {
            let event = event(&n.to_string(), n, n);
            assert!(known.note("pod", &n.to_string(), event));
        }
        let unpublished = known.unpublished("pod", &PluginState::default());
        assert_eq!(unpublished.len(), MAX_WAITING);
        assert_eq!(unpublished[0].note, "68");
    }
}
