//! Keys that need a round, each at most once however often it was added.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use futures::Stream;
use tokio::sync::Notify;

/// The set of keys that need a round: bounded by how many keys there are.
#[derive(Debug)]
pub(crate) struct Triggers<K> {
    due: Mutex<BTreeSet<K>>,
    added: Notify,
}

impl<K: Ord + Send + 'static> Triggers<K> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            due: Mutex::new(BTreeSet::new()),
            added: Notify::new(),
        })
    }

    /// Asks for a round of each key.
    pub(crate) fn add(&self, keys: impl IntoIterator<Item = K>) {
        self.due
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(keys);
        self.added.notify_one();
    }

    fn take(&self) -> Option<K> {
        self.due
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_first()
    }

    /// The keys as they become due, for the kit's runner.
    pub(crate) fn stream(self: Arc<Self>) -> impl Stream<Item = K> + Send {
        futures::stream::unfold(self, |this| async move {
            loop {
                let added = this.added.notified();
                if let Some(key) = this.take() {
                    return Some((key, this.clone()));
                }
                added.await;
            }
        })
    }
}
