//! Rebuilds the objects and the window of a collection from the content of a store.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use super::{Collection, Draft, Event, EventType, Key, Object, Objects, lock};
use crate::server::store::{Loaded, Shelf};

/// Bytes that were stored and are no JSON object.
#[derive(Debug, thiserror::Error)]
#[error("object {key:?} of {collection} at revision {revision} is no JSON")]
pub(crate) struct NotJson {
    collection: String,
    key: String,
    revision: u64,
    source: serde_json::Error,
}

/// Puts back what the store has kept of a collection: its objects, and the events that watches may
/// resume from.
pub(crate) fn restore(collection: &Collection, loaded: &Loaded) -> Result<(), NotJson> {
    let mut state = lock(&collection.state);
    state.start = loaded.floor;
    let Some(shelf) = loaded.shelves.get(&collection.resource.storage_path()) else {
        return Ok(());
    };
    let mut objects = Objects::default();
    {
        let objects = Arc::make_mut(&mut objects);
        for (key, stored) in &shelf.objects {
            let object = decode(collection, key, stored.revision, &stored.json)?;
            objects.insert(object.key.clone(), Arc::new(object));
        }
    }
    let surplus = shelf.events.len().saturating_sub(collection.window_length);
    let forgotten = shelf.events[..surplus].last();
    state.start = state
        .start
        .max(shelf.start)
        .max(forgotten.map_or(0, |event| event.revision));
    let window = window(collection, shelf, &objects, state.start)?;
    state.set_window(window, collection.window_length);
    state.objects = objects;
    Ok(())
}

/// Walks back from the current state: the state after an event is the one before the next.
fn window(
    collection: &Collection,
    shelf: &Shelf,
    objects: &Objects,
    start: u64,
) -> Result<VecDeque<Arc<Event>>, NotJson> {
    let mut later = Objects::clone(objects);
    let later = Arc::make_mut(&mut later);
    let mut window = VecDeque::new();
    for undo in shelf.events.iter().rev() {
        if undo.revision <= start {
            break;
        }
        let key = Key::from_position(&undo.key);
        let after = later.remove(&key);
        let previous = match &undo.previous {
            Some(it) => Some(Arc::new(decode(
                collection,
                &undo.key,
                it.revision,
                &it.json,
            )?)),
            None => None,
        };
        let (kind, object) = match (after, &previous) {
            (Some(after), None) => (EventType::Added, after),
            (Some(after), Some(_)) => (EventType::Modified, after),
            (None, Some(last)) => (EventType::Deleted, Arc::new(last.departed(undo.revision))),
            // A store returns no event that changed nothing.
            (None, None) => continue,
        };
        later.extend(previous.iter().map(|it| (key.clone(), Arc::clone(it))));
        window.push_front(Arc::new(Event {
            kind,
            object,
            previous,
        }));
    }
    Ok(window)
}

fn decode(
    collection: &Collection,
    key: &str,
    revision: u64,
    json: &Bytes,
) -> Result<Object, NotJson> {
    let object = serde_json::from_slice(json).map_err(|source| NotJson {
        collection: collection.resource.storage_path(),
        key: key.to_owned(),
        revision,
        source,
    })?;
    let draft = Draft::new(&collection.resource, &object);
    Ok(draft.seal(Key::from_position(key), revision, EventType::Modified))
}
