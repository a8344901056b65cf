//! The objects of one resource and the events that led to them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use tokio::sync::watch;

use super::{EventType, Key, Object, lock};
use crate::server::registry::Resource;

/// The events that a resource remembers have this many bytes each at most, on average: nearly 10 MiB where it remembers 10,000.
/// Events share the objects that exist; this bounds what is held of objects that changed or are gone.
const BYTES_PER_EVENT: usize = 1 << 10;
/// A short window may be larger.
const MIN_WINDOW_BYTES: usize = 1 << 20;

/// All objects of a resource. Writers copy it only while a reader still holds the same version.
pub(crate) type Objects = Arc<BTreeMap<Key, Arc<Object>>>;

/// One committed write, as watchers see it.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) kind: EventType,
    /// The state after the write; for a delete the last state under the delete's revision.
    pub(crate) object: Arc<Object>,
    /// The state before the write.
    pub(crate) previous: Option<Arc<Object>>,
}

impl Event {
    pub(crate) fn revision(&self) -> u64 {
        self.object.revision
    }

    fn size(&self) -> usize {
        self.object.size()
    }
}

/// A revision that is older than every event still known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub(crate) struct TooOld {
    pub(crate) asked: u64,
    /// The oldest revision that would have worked.
    pub(crate) oldest: u64,
}

pub(super) struct State {
    pub(super) objects: Objects,
    /// Revisions of the writes that are not stored yet, and so not in `objects`; at most one of
    /// each object.
    waiting: BTreeMap<Key, u64>,
    /// Recent events, oldest first.
    pub(super) window: VecDeque<Arc<Event>>,
    /// The bytes of the objects in `window`.
    n_bytes: usize,
    /// Every event after this revision is in the window.
    pub(super) start: u64,
    /// Counts compactions: a watch opened before one ends with it.
    pub(super) epoch: u64,
}

/// The objects of one resource and their recent events.
pub(crate) struct Collection {
    pub(crate) resource: Arc<Resource>,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) changed: Arc<watch::Sender<u64>>,
    pub(super) window_length: usize,
}

impl Collection {
    /// An empty collection that remembers `window_length` events, or fewer where these are large.
    pub(crate) fn new(resource: Arc<Resource>, window_length: usize) -> Collection {
        let state = State {
            objects: Objects::default(),
            waiting: BTreeMap::new(),
            window: VecDeque::new(),
            n_bytes: 0,
            start: 0,
            epoch: 0,
        };
        Collection {
            resource,
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(watch::Sender::new(0)),
            window_length: window_length.max(1),
        }
    }

    /// The collection, empty up to a revision: clients cannot watch from older ones.
    pub(crate) fn starting_at(self, revision: u64) -> Collection {
        lock(&self.state).start = revision;
        self
    }

    /// The objects of this collection under a resource whose definition has changed.
    pub(crate) fn with_resource(&self, resource: Arc<Resource>) -> Collection {
        Collection {
            resource,
            state: Arc::clone(&self.state),
            changed: Arc::clone(&self.changed),
            window_length: self.window_length,
        }
    }

    /// Ends every watch: the resource is gone.
    pub(crate) fn close(&self) {
        {
            let mut state = lock(&self.state);
            state.forget_events(u64::MAX);
        }
        self.announce(u64::MAX);
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Object>> {
        lock(&self.state).objects.get(key).cloned()
    }

    /// How many watches are open.
    #[cfg(test)]
    pub(crate) fn n_watchers(&self) -> usize {
        self.changed.receiver_count()
    }

    /// The current state and a revision at which it is exact, given a revision that was published
    /// before the call.
    pub(crate) fn snapshot(&self, published: u64) -> (Objects, u64) {
        let state = lock(&self.state);
        let newest = state.window.back().map_or(0, |event| event.revision());
        (Arc::clone(&state.objects), published.max(newest))
    }

    /// The state as it was at a revision: the current one with the newer events undone.
    pub(crate) fn snapshot_at(&self, revision: u64) -> Result<Objects, TooOld> {
        let (mut objects, newer) = {
            let state = lock(&self.state);
            if revision < state.start {
                return Err(TooOld {
                    asked: revision,
                    oldest: state.start,
                });
            }
            (
                Arc::clone(&state.objects),
                state.after(revision, usize::MAX),
            )
        };
        if newer.is_empty() {
            return Ok(objects);
        }
        let undone = Arc::make_mut(&mut objects);
        for event in newer.iter().rev() {
            match &event.previous {
                Some(previous) => undone.insert(previous.key.clone(), Arc::clone(previous)),
                None => undone.remove(&event.object.key),
            };
        }
        Ok(objects)
    }

    /// An object, and the revision of the write of it that is not stored yet.
    pub(super) fn look(&self, key: &Key) -> (Option<Arc<Object>>, Option<u64>) {
        let state = lock(&self.state);
        (
            state.objects.get(key).cloned(),
            state.waiting.get(key).copied(),
        )
    }

    /// Notes that this write is on its way.
    pub(super) fn expect(&self, object: &Object) {
        let mut state = lock(&self.state);
        state.waiting.insert(object.key.clone(), object.revision);
    }

    /// Applies an event; called in the order of revisions.
    pub(super) fn publish(&self, event: Event) {
        let mut state = lock(&self.state);
        state.waiting.remove(&event.object.key);
        let objects = Arc::make_mut(&mut state.objects);
        match event.kind {
            EventType::Added | EventType::Modified => {
                objects.insert(event.object.key.clone(), Arc::clone(&event.object));
            }
            EventType::Deleted => {
                objects.remove(&event.object.key);
            }
        }
        state.n_bytes += event.size();
        state.window.push_back(Arc::new(event));
        state.shorten_window(self.window_length);
    }

    /// Wakes the watchers.
    pub(super) fn announce(&self, revision: u64) {
        self.changed.send_replace(revision);
    }

    pub(super) fn compact(&self, revision: u64) {
        let mut state = lock(&self.state);
        state.forget_events(revision);
        state.epoch += 1;
    }
}

impl State {
    /// Takes over the events that a store has kept, as many as fit.
    pub(super) fn set_window(&mut self, window: VecDeque<Arc<Event>>, length: usize) {
        self.n_bytes = window.iter().map(|event| event.size()).sum();
        self.window = window;
        self.shorten_window(length);
    }

    /// Forgets the oldest events that are too many, or too large together. The newest one stays, whatever its size is.
    fn shorten_window(&mut self, length: usize) {
        let max_bytes = length.saturating_mul(BYTES_PER_EVENT);
        let max_bytes = max_bytes.max(MIN_WINDOW_BYTES);
        while self.window.len() > length || (self.n_bytes > max_bytes && self.window.len() > 1) {
            let Some(oldest) = self.window.pop_front() else {
                return;
            };
            self.n_bytes -= oldest.size();
            self.start = oldest.revision();
        }
    }

    fn forget_events(&mut self, up_to: u64) {
        self.window.clear();
        self.n_bytes = 0;
        self.start = up_to;
    }

    /// At most `limit` events after a revision, oldest first.
    pub(super) fn after(&self, revision: u64, limit: usize) -> Vec<Arc<Event>> {
        let first = self
            .window
            .partition_point(|event| event.revision() <= revision);
        self.window.range(first..).take(limit).cloned().collect()
    }
}
