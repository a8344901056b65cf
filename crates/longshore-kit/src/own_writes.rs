//! Read your own writes (rule R5 of the reliability spec): a key is not decided upon before the caches have seen what
//! its earlier rounds wrote.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Display},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::core::ObjectMeta;
use longshore_core::{ObjectRef, Resource};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use crate::{
    requests::{Answer, ApiError, Requests},
    round_writes,
};

/// How long a round waits for the caches before it reads live.
const WAIT_FOR_CACHES: Duration = Duration::from_secs(1);

/// Each time that the table has grown by this many keys, it forgets those whose writes have been seen: they may never
/// have another round.
const PRUNE_EVERY: usize = 1024;

/// A write of ours that a cache has yet to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The object; with its uid for [`Until::Deleted`].
    pub target: ObjectRef,
    /// What the cache has to show.
    pub until: Until,
}

/// What a cache has to show before a write of ours counts as seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// This `resourceVersion`, or a later one.
    Version(u64),
    /// That this incarnation is gone or being deleted.
    Deleted,
    /// A live read: after a conflict only that is surely newer than what we decided upon.
    LiveRead,
}

impl Written {
    /// The write that was answered so. An answer without a version has to be read back.
    pub fn answered(target: &ObjectRef, answer: &Answer) -> Self {
        Self {
            target: target.clone(),
            until: answer.version().map_or(Until::LiveRead, Until::Version),
        }
    }
}

/// A cache that rounds decide upon, as seen by the writes.
pub trait CacheFeed: Debug + Send + Sync {
    /// Whether the cache shows this write.
    fn has_seen(&self, written: &Written) -> bool;

    /// Changes its value whenever the cache changes.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Takes what a live read found, `None` where the object does not exist. An answer that is older than what the cache
    /// or the watch has seen changes nothing.
    fn feed(&self, target: &ObjectRef, live: Option<Value>) -> Result<(), serde_json::Error>;

    /// Takes the answer to a write of ours. One that the watch has come past changes nothing: the object may be gone.
    /// What the watch delivers of it later is not passed on as an update.
    fn learn(&self, answer: &Answer) -> Result<(), serde_json::Error>;

    /// The metadata of the cached object.
    fn metadata(&self, target: &ObjectRef) -> Option<ObjectMeta>;
}

/// The table of our writes by controller and key: keys of two controllers may have the same text.
///
/// Only resources with a cache are waited for: where a controller reads live, it sees its own writes anyway.
#[derive(Debug, Default)]
pub struct OwnWrites {
    caches: BTreeMap<Resource, Arc<dyn CacheFeed>>,
    pending: Mutex<BTreeMap<Owner, Vec<Written>>>,
    n_waits: AtomicU64,
    n_live_reads: AtomicU64,
}

/// The controller, empty for what is written outside of rounds, and the text of its key.
type Owner = (&'static str, String);

impl OwnWrites {
    /// No writes yet; `caches` are those that rounds decide upon.
    pub fn new(caches: BTreeMap<Resource, Arc<dyn CacheFeed>>) -> Self {
        Self {
            caches,
            ..Self::default()
        }
    }

    /// The cache of a resource.
    pub fn cache(&self, resource: Resource) -> Option<&Arc<dyn CacheFeed>> {
        self.caches.get(&resource)
    }

    /// Notes that this round, which is of `key`, wrote.
    pub fn record(&self, key: &impl Display, written: Written) {
        if self.caches.contains_key(&written.target.resource) {
            let mut pending = self.pending();
            if pending.len() % PRUNE_EVERY == PRUNE_EVERY - 1 {
                pending.retain(|_, writes| writes.iter().any(|written| !self.has_seen(written)));
            }
            let owner = (round_writes::controller(), key.to_string());
            let writes = pending.entry(owner).or_default();
            writes.retain(|earlier| earlier.target != written.target);
            writes.push(written);
        }
    }

    /// Waits until the caches show what earlier rounds of this controller wrote for `key`, and what was written for it
    /// outside of rounds: at most a second, then reads live.
    ///
    /// # Errors
    /// Of the live read; the writes stay unsettled, so that the next round tries again.
    pub async fn settle(&self, key: &impl Display, requests: &Requests) -> Result<(), ApiError> {
        let ours = (round_writes::controller(), key.to_string());
        let of_nobody = ("", ours.1.clone());
        let writes: Vec<Written> = {
            let pending = self.pending();
            let of_nobody = pending.get(&of_nobody).filter(|_| ours != of_nobody);
            let writes = pending.get(&ours).into_iter().chain(of_nobody);
            writes.flatten().cloned().collect()
        };
        if writes.is_empty() {
            return Ok(());
        }
        let deadline = Instant::now() + WAIT_FOR_CACHES;
        for written in &writes {
            self.settle_one(written, deadline, requests).await?;
        }
        let mut pending = self.pending();
        pending.remove(&ours);
        pending.remove(&of_nobody);
        Ok(())
    }

    /// How many rounds would have decided upon a stale cache.
    pub fn n_waits(&self) -> u64 {
        self.n_waits.load(Ordering::Relaxed)
    }

    /// How many waits ended in a live read.
    pub fn n_live_reads(&self) -> u64 {
        self.n_live_reads.load(Ordering::Relaxed)
    }

    async fn settle_one(
        &self,
        written: &Written,
        deadline: Instant,
        requests: &Requests,
    ) -> Result<(), ApiError> {
        let Some(cache) = self.caches.get(&written.target.resource) else {
            return Ok(());
        };
        if cache.has_seen(written) {
            return Ok(());
        }
        self.n_waits.fetch_add(1, Ordering::Relaxed);
        if written.until != Until::LiveRead && shows(cache.as_ref(), written, deadline).await {
            return Ok(());
        }
        self.n_live_reads.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(target = %written.target, "reading live what the cache does not show");
        let live = requests.get(&written.target).await?;
        cache
            .feed(&written.target, live)
            .map_err(|source| ApiError::unreadable(&written.target, source))
    }

    fn has_seen(&self, written: &Written) -> bool {
        let cache = self.caches.get(&written.target.resource);
        cache.is_none_or(|cache| cache.has_seen(written))
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<Owner, Vec<Written>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the cache shows the write; false where it did not in time.
async fn shows(cache: &dyn CacheFeed, written: &Written, deadline: Instant) -> bool {
    let mut changes = cache.changes();
    loop {
        if cache.has_seen(written) {
            return true;
        }
        match tokio::time::timeout_at(deadline, changes.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return false,
        }
    }
}
