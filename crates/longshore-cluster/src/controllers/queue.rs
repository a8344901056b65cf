//! A work queue: each key once, some of them later.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longshore_k8s::Backoff;
use tokio::time::Instant;

/// The pause after failures in a row.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(20),
    max: Duration::from_secs(10),
};

/// A queue of keys, ordered by when they are due.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    due: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
    /// Failures in a row of keys that are being worked on.
    failures: BTreeMap<K, u32>,
}

impl<K: Ord + Clone> Queue<K> {
    pub(crate) fn new() -> Queue<K> {
        Queue {
            due: BTreeMap::new(),
            order: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Adds a key that is due now.
    pub(crate) fn add(&mut self, key: K) {
        self.put(key, Duration::ZERO);
    }

    /// Adds a key again after work on it has failed.
    pub(crate) fn retry(&mut self, key: K) {
        let n_failures = self.failures.entry(key.clone()).or_default();
        *n_failures = n_failures.saturating_add(1);
        let pause = BACKOFF.wait(*n_failures);
        self.put(key, pause);
    }

    /// Forgets the failures of a key.
    pub(crate) fn succeed(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Adds a key that is due after a while.
    pub(crate) fn add_after(&mut self, key: K, pause: Duration) {
        self.put(key, pause);
    }

    fn put(&mut self, key: K, pause: Duration) {
        let due_at = Instant::now() + pause;
        if let Some(present) = self.due.get(&key) {
            if *present <= due_at {
                return;
            }
            self.order.remove(&(*present, key.clone()));
        }
        self.due.insert(key.clone(), due_at);
        self.order.insert((due_at, key));
    }

    /// Resolves with the next key when it is due; never, when there is none.
    pub(crate) async fn next(&mut self) -> K {
        let Some((due_at, key)) = self.order.first().cloned() else {
            return std::future::pending().await;
        };
        if due_at > Instant::now() {
            tokio::time::sleep_until(due_at).await;
        }
        self.order.remove(&(due_at, key.clone()));
        self.due.remove(&key);
        key
    }
}
