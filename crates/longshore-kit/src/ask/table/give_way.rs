//! Answers that are too large to be held: who gives way.

use longshore_core::NoAnswer;

use super::*;
use crate::ask::room::{Held, SMALL_ANSWER};

/// An answer that has waited for less than this does not give its room to another one: it is about to be used.
const FRESH: Duration = Duration::from_secs(10);

/// An answer has no room, and is asked for again.
#[derive(Debug)]
pub(super) struct NoRoom;

impl<K: Key, Q: Question> Table<K, Q> {
    /// The room for an answer of so many bytes, where it needs some. If there is none, answers that have waited the longest
    /// for their use give theirs back; if none of those has waited for long, the new one is asked for again.
    ///
    /// So an answer that waits for a silent foreign system does not keep others from being used, and whatever foreign
    /// systems send, the bytes of answers have a bound. An answer that cannot be asked for twice always has room.
    pub(super) fn room_for(
        &mut self,
        entry: Entry<K>,
        n_bytes: usize,
        now: Now,
    ) -> Result<Option<Held>, NoRoom> {
        if n_bytes <= SMALL_ANSWER {
            return Ok(None);
        }
        let Entry { key, id, ticket } = &entry;
        // Nobody waits for it any more.
        let Some(it) = under_way(&mut self.keys, key, id, *ticket) else {
            return Err(NoRoom);
        };
        let may_drop = it.question.may_drop_answer();
        let keys = &self.keys;
        self.room.retain(|entry| is_held(keys, entry));
        while !self.room.has(n_bytes) {
            if !self.oldest_gives_way(now) {
                if may_drop {
                    let why = "no room for the answer, it is asked for again: answers that wait for their use take";
                    let n_held = self.room.n_held();
                    self.ask_later(&entry, format!("{why} {n_held} bytes"), now);
                    return Err(NoRoom);
                }
                break;
            }
        }
        Ok(Some(self.room.take(entry, n_bytes)))
    }

    /// The answer that has waited the longest for its use gives its room back. Returns whether there was one.
    fn oldest_gives_way(&mut self, now: Now) -> bool {
        while let Some((place, entry)) = self.room.oldest() {
            let Some(said) = held(&self.keys, &entry) else {
                self.room.forget(place);
                continue;
            };
            let waited = now.instant.saturating_duration_since(said.instant);
            if waited < FRESH {
                return false;
            }
            self.room.forget(place);
            let secs = waited.as_secs();
            let why = format!(
                "no room for the answer, it is asked for again: it has waited for its use for {secs} s, and others need room"
            );
            self.drop_holders(&entry.key);
            self.ask_later(&entry, why, now);
            return true;
        }
        false
    }

    /// Drops the questions of a key that hold large answers to others of its questions.
    fn drop_holders(&mut self, key: &K) {
        let Some(of) = self.keys.get_mut(key) else {
            return;
        };
        let is_holder = |slot: &Slot<Q>| {
            let question = slot.question.as_ref();
            matches!(slot.stage, Stage::UnderWay(_))
                && question.is_some_and(|question| question.held_bytes() > SMALL_ANSWER)
        };
        let holders = of.slots.iter().filter(|(_, slot)| is_holder(slot));
        let holders: Vec<_> = holders.map(|(id, _)| id.clone()).collect();
        if holders.is_empty() {
            return;
        }
        let slots = Arc::make_mut(&mut of.slots);
        let dropped: Vec<_> = holders.iter().filter_map(|id| slots.remove(id)).collect();
        for slot in dropped {
            self.cancel(key, &slot.stage);
        }
    }

    /// A question whose answer is dropped is sent again after a back-off.
    fn ask_later(&mut self, entry: &Entry<K>, why: String, now: Now) {
        let Entry { key, id, .. } = entry;
        let backoff = self.queue.limits().of(id.kind).backoff;
        let Some(slot) = slot(&mut self.keys, key, id) else {
            return;
        };
        let Some(question) = slot.question.clone() else {
            return;
        };
        // One that has waited for long may do so again: the others come first.
        let wait = match &slot.stage {
            Stage::Over(_) => backoff.max,
            Stage::UnderWay(_) | Stage::Idle => backoff.wait(slot.n_failures.saturating_add(1)),
        };
        self.n_tickets += 1;
        let (ticket, due) = (self.n_tickets, now.instant + wait);
        if matches!(slot.stage, Stage::Over(_)) {
            slot.unanswered_since = now.at;
        }
        slot.n_failures = slot.n_failures.saturating_add(1);
        slot.before = Some(Said {
            at: now.at,
            instant: now.instant,
            ticket,
            result: Err(AskError::new(NoAnswer::NoRoom, why)),
            _room: None,
        });
        slot.stage = Stage::UnderWay(UnderWay {
            share: share_of(&*question),
            question,
            since: now.at,
            ticket,
            step: Step::Later(due),
        });
        self.later.insert((due, ticket), (key.clone(), id.clone()));
    }
}

/// The answer that has this room, where it is there and may be asked for again.
fn held<'t, K: Key, Q: Question>(
    keys: &'t BTreeMap<K, OfKey<Q>>,
    entry: &Entry<K>,
) -> Option<&'t Said<Q::Answer>> {
    let slot = keys.get(&entry.key)?.slots.get(&entry.id)?;
    let may_drop = |question: &Arc<Q>| question.may_drop_answer();
    match &slot.stage {
        Stage::Over(said) if said.ticket == entry.ticket => {
            slot.question.as_ref().is_some_and(may_drop).then_some(said)
        }
        Stage::Over(_) | Stage::UnderWay(_) | Stage::Idle => None,
    }
}

fn is_held<K: Key, Q: Question>(keys: &BTreeMap<K, OfKey<Q>>, entry: &Entry<K>) -> bool {
    held(keys, entry).is_some()
}
