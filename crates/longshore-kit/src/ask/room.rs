//! How many bytes of answers wait for their use. Pure.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use longshore_core::QuestionId;

/// An answer of no more than these bytes always has room, and is not counted.
pub(super) const SMALL_ANSWER: usize = 64 << 10;

/// The room for the large answers of a controller.
#[derive(Debug)]
pub(super) struct Room<K> {
    most: usize,
    held: Arc<AtomicUsize>,
    /// Answers that have room, in the order in which they came. Some are used up already.
    answers: BTreeMap<u64, Entry<K>>,
    n_arrivals: u64,
}

/// A large answer that has room, or had it.
#[derive(Clone, Debug)]
pub(super) struct Entry<K> {
    pub(super) key: K,
    pub(super) id: QuestionId,
    pub(super) ticket: u64,
}

/// The room of one answer, which is free again once the last clone is dropped: rounds share answers.
#[derive(Clone, Debug)]
pub(super) struct Held {
    _bytes: Arc<Bytes>,
}

#[derive(Debug)]
struct Bytes {
    held: Arc<AtomicUsize>,
    n: usize,
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.held.fetch_sub(self.n, Ordering::Relaxed);
    }
}

impl<K: Clone> Room<K> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            held: Arc::default(),
            answers: BTreeMap::new(),
            n_arrivals: 0,
        }
    }

    /// Whether there is room for so many bytes. One answer alone always has it.
    pub(super) fn has(&self, n_bytes: usize) -> bool {
        let n_held = self.n_held();
        n_held == 0 || n_held.saturating_add(n_bytes) <= self.most
    }

    pub(super) fn n_held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// An answer takes room.
    pub(super) fn take(&mut self, entry: Entry<K>, n_bytes: usize) -> Held {
        self.held.fetch_add(n_bytes, Ordering::Relaxed);
        self.n_arrivals += 1;
        self.answers.insert(self.n_arrivals, entry);
        let held = Arc::clone(&self.held);
        Held {
            _bytes: Arc::new(Bytes { held, n: n_bytes }),
        }
    }

    /// The answer that has waited the longest, with its place.
    pub(super) fn oldest(&self) -> Option<(u64, Entry<K>)> {
        let (place, entry) = self.answers.first_key_value()?;
        Some((*place, entry.clone()))
    }

    /// An answer has no room any more.
    pub(super) fn forget(&mut self, place: u64) {
        self.answers.remove(&place);
    }

    /// Forgets the answers that are used up.
    pub(super) fn retain(&mut self, is_there: impl Fn(&Entry<K>) -> bool) {
        self.answers.retain(|_, entry| is_there(entry));
    }
}
