//! A watcher's place in the events of a collection.
//!
//! Watchers pull: they own nothing inside the hub. A slow watcher costs the other watchers nothing,
//! and a dropped one leaves nothing behind.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Collection, Event, Hub, Objects, TooOld, lock};

/// Events handed out per lock.
const BATCH: usize = 256;

/// Why a watch cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The watcher was slower than the window is long.
    Overrun,
    /// The events were compacted away.
    Compacted(TooOld),
}

/// A place in the events of one collection.
pub(crate) struct Cursor {
    hub: Arc<Hub>,
    collection: Arc<Collection>,
    changed: watch::Receiver<u64>,
    /// Everything up to this revision has been handed out.
    position: u64,
    epoch: u64,
}

impl Cursor {
    /// Starts after a revision.
    pub(crate) fn after(
        hub: &Arc<Hub>,
        collection: &Arc<Collection>,
        revision: u64,
    ) -> Result<Cursor, TooOld> {
        let changed = subscribe(collection);
        let state = lock(&collection.state);
        if revision < state.start {
            return Err(TooOld {
                asked: revision,
                oldest: state.start,
            });
        }
        let epoch = state.epoch;
        drop(state);
        let (hub, collection) = (Arc::clone(hub), Arc::clone(collection));
        Ok(Cursor {
            hub,
            collection,
            changed,
            position: revision,
            epoch,
        })
    }

    /// The current state, and a cursor that starts exactly behind it.
    pub(crate) fn behind_snapshot(
        hub: &Arc<Hub>,
        collection: &Arc<Collection>,
    ) -> (Objects, Cursor) {
        let changed = subscribe(collection);
        let published = hub.revision();
        let (epoch, objects, position) = {
            let state = lock(&collection.state);
            let newest = state.window.back().map_or(0, |event| event.revision());
            (
                state.epoch,
                Arc::clone(&state.objects),
                published.max(newest),
            )
        };
        let (hub, collection) = (Arc::clone(hub), Arc::clone(collection));
        (
            objects,
            Cursor {
                hub,
                collection,
                changed,
                position,
                epoch,
            },
        )
    }

    /// The revision up to which everything has been handed out.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next events, oldest first; empty when there are none yet.
    pub(crate) fn take(&mut self) -> Result<Vec<Arc<Event>>, Lost> {
        self.changed.mark_unchanged();
        // Read before the window: every event up to this revision is in the window by then.
        let published = self.hub.revision();
        let state = lock(&self.collection.state);
        if state.epoch != self.epoch {
            return Err(Lost::Compacted(TooOld {
                asked: self.position,
                oldest: state.start,
            }));
        }
        if self.position < state.start {
            return Err(Lost::Overrun);
        }
        let events = state.after(self.position, BATCH);
        drop(state);
        let newest = events
            .last()
            .map_or(self.position, |event| event.revision());
        if events.len() < BATCH {
            self.position = newest.max(published);
        } else {
            self.position = newest;
            // There may be more events.
            self.changed.mark_changed();
        }
        Ok(events)
    }

    /// Resolves when there may be more to take.
    pub(crate) async fn changed(&mut self) {
        // The sender lives in the collection that this cursor holds, so waiting cannot fail.
        let _ = self.changed.changed().await;
    }
}

/// A receiver that finds a change at once, because there may be something to take already.
fn subscribe(collection: &Collection) -> watch::Receiver<u64> {
    let mut changed = collection.changed.subscribe();
    changed.mark_changed();
    changed
}
