//! Objects that expire: the server removes Events an hour after their last write, and earlier where there are many.
//!
//! There is no task and no timer behind this. The write of such an object also removes those that
//! have expired. So there are never more of them than were written in an hour, and an idle server
//! does nothing.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::hub::{Change, Collection, Expected, Hub, Key, Object, lock};

/// How long an Event lives, as upstream's default.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// The newest so many writes of Events are kept: they are in memory, and ten thousand pods write more than people read.
const MAX_WRITES: usize = 4_096;

#[derive(Debug)]
struct Written {
    at: Timestamp,
    key: Key,
    revision: u64,
}

/// The writes of expiring objects, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Expiry(Mutex<VecDeque<Written>>);

impl Expiry {
    /// Notes a write, and removes objects whose last write is too long ago.
    pub(crate) async fn note(
        &self,
        hub: &Hub,
        collection: &Arc<Collection>,
        object: &Object,
        now: Timestamp,
    ) {
        if !collection.resource.expires {
            return;
        }
        let (key, revision) = (object.key.clone(), object.revision);
        lock(&self.0).push_back(Written {
            at: now,
            key,
            revision,
        });
        while let Some(old) = self.take_expired(now) {
            // Written again since, or deleted: then its time is another one, or over already.
            let expected = Expected::At(old.revision);
            let _ = hub
                .commit(collection, old.key, expected, Change::Delete)
                .await;
        }
    }

    /// Notes the objects of an earlier process, as written when they last were, as far as they say.
    pub(crate) fn restore(&self, collection: &Collection, now: Timestamp) {
        if !collection.resource.expires {
            return;
        }
        let (objects, _) = collection.snapshot(0);
        let mut restored: Vec<Written> = objects
            .values()
            .map(|object| Written {
                at: last_seen(&object.value()).unwrap_or(now),
                key: object.key.clone(),
                revision: object.revision,
            })
            .collect();
        restored.sort_by_key(|written| written.at);
        lock(&self.0).extend(restored);
    }

    fn take_expired(&self, now: Timestamp) -> Option<Written> {
        let mut written = lock(&self.0);
        let is_surplus = written.len() > MAX_WRITES;
        written.pop_front_if(|oldest| is_surplus || now.duration_since(oldest.at) > LIFETIME)
    }
}

/// The newest time that an Event of either API names.
fn last_seen(event: &Value) -> Option<Timestamp> {
    const TIMES: &[&str] = &[
        "/metadata/creationTimestamp",
        "/eventTime",
        "/lastTimestamp",
        "/deprecatedLastTimestamp",
        "/series/lastObservedTime",
    ];
    let time = |path: &&str| event.pointer(path)?.as_str()?.parse().ok();
    TIMES.iter().filter_map(time).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_events_expire_before_their_time() {
        let now = Timestamp::UNIX_EPOCH;
        let expiry = Expiry::default();
        let revisions = 1..=MAX_WRITES as u64 + 2;
        let written = revisions.map(|revision| Written {
            at: now,
            key: Key::new(Some("default"), "event"),
            revision,
        });
        lock(&expiry.0).extend(written);
        let expired = || Some(expiry.take_expired(now)?.revision);
        assert_eq!([expired(), expired(), expired()], [Some(1), Some(2), None]);
    }
}
