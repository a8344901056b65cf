//! What rounds know of the caches of their attempts: asked when it is needed, and remembered, so that no round asks
//! again what another one has asked. Kept in memory: after a restart it is asked again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, stream};
use jiff::Timestamp;
use longshore_core::{Seen, UnknownCause, error::chain};
use longshore_plugins::{CacheKey, TaskContext};
use tokio::sync::mpsc;

use super::{Caching, CatalogCacheStatus, Entry, Metadata, decide::Claim};
use crate::{
    data::DataError,
    model::{Action, ActionKey, Work},
};

/// What is known of the cache of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Cached {
    /// What its outputs are cached under.
    pub entry: Entry,
    /// What is cached; only looked up for an attempt that is to be launched.
    pub outputs: Seen<Bytes>,
    /// What came of the reservation; `None` before it was asked for, and after it was given up.
    pub held: Option<Held>,
    /// What became of the outputs of the attempt; `None` before they were to be cached.
    pub kept: Option<CatalogCacheStatus>,
}

/// What came of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// When the answer came.
    pub at: Timestamp,
    /// The answer.
    pub claim: Claim,
}

/// Something that a catalog is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// What it is about.
    pub entry: Entry,
    /// What is told.
    pub tell: Tell,
}

/// What a catalog is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Tell {
    /// Take the reservation, or extend it: it is extended again within this. The next round knows the answer.
    Reserve(Duration),
    /// Copy these outputs to where those of the attempt belong.
    Copy(Bytes),
    /// Cache the outputs of the attempt. The next round knows what became of them.
    Keep(Box<Metadata>),
    /// Give the reservation up.
    Release,
}

/// Asks for rounds, and remembers.
#[derive(Debug)]
pub(crate) struct CacheObserver {
    /// `None` where nothing is cached, whatever templates say.
    caching: Option<Caching>,
    known: Mutex<BTreeMap<ActionKey, Known>>,
    /// Takes actions that another one kept waiting.
    freed: mpsc::UnboundedSender<ActionKey>,
}

/// What is known of an action.
#[derive(Clone, Debug)]
struct Known {
    /// Another one may have its name by now.
    uid: String,
    /// `None` where there cannot be one.
    key: Option<CacheKey>,
    held: Option<Held>,
    /// With its attempt.
    kept: Option<(String, CatalogCacheStatus)>,
}

impl CacheObserver {
    /// Also answers the actions that wait no longer for a reservation which another action of this process had: their
    /// next round need not wait for its time.
    pub(crate) fn new(
        caching: Option<Caching>,
    ) -> (Self, impl Stream<Item = ActionKey> + Send + 'static) {
        let (freed, mut waiting) = mpsc::unbounded_channel();
        let observer = Self {
            caching,
            known: Mutex::default(),
            freed,
        };
        let freed = stream::poll_fn(move |context| waiting.poll_recv(context));
        (observer, freed)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<ActionKey, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody wants to know any more.
    pub(crate) fn forget(&self, action: &ActionKey) {
        self.known().remove(action);
    }

    /// Adds to an action what is known of its cache. Asks the catalog only before a launch, and reads inputs only once.
    ///
    /// Nothing is asked before the finalizer is there: only what has one gives its reservation up when it is deleted.
    pub(crate) async fn see(&self, key: &ActionKey, action: &mut Action) {
        let is_open = action.has_finalizer && !action.status.is_terminal();
        let may_launch = !action.is_deleting && action.children.current.is_absent();
        let uid = action.target.uid.clone().unwrap_or_default();
        let is_remembered = !action.status.plugin_state.is_empty();
        let (context, is_not_started, cached) = match &mut action.work {
            Work::Task(task) => {
                let is_not_started = task.is_not_started();
                (&task.context, is_not_started, &mut task.cached)
            }
            Work::Remote(task) => (&task.context, !is_remembered, &mut task.cached),
            Work::Condition | Work::Invalid(_) | Work::Nothing => return,
        };
        let Some(caching) = self.caching.as_ref().filter(|_| is_open) else {
            return;
        };
        if !CacheKey::is_wanted(&context.template) {
            return;
        }
        let known = self.of(caching, key, &uid, context, &action.spec.cache_key);
        *cached = match known.await {
            Err(error) => {
                let why = chain(&error);
                tracing::warn!(error = why, %key, "a cached task waits for its inputs");
                Seen::unknown(UnknownCause::Unreachable, why)
            }
            Ok(Known { key: None, .. }) => Seen::Absent,
            Ok(Known {
                key: Some(cache_key),
                held,
                kept,
                ..
            }) => {
                let entry = Entry::of(key, context, cache_key);
                let outputs = if may_launch && is_not_started {
                    caching.look_up(&entry).await
                } else {
                    Seen::Absent
                };
                let kept = kept.filter(|(prefix, _)| *prefix == entry.output_prefix);
                Seen::Present(Cached {
                    entry,
                    outputs,
                    held,
                    kept: kept.map(|(_, status)| status),
                })
            }
        };
    }

    /// What is known of an action; its key is made where it is not.
    async fn of(
        &self,
        caching: &Caching,
        action: &ActionKey,
        uid: &str,
        context: &TaskContext,
        version: &str,
    ) -> Result<Known, DataError> {
        let known = self.known().get(action).cloned();
        if let Some(known) = known.filter(|known| known.uid == uid) {
            return Ok(known);
        }
        let key = caching.key(context, version).await?;
        let known = Known {
            uid: uid.to_owned(),
            key: key
                .inspect_err(|error| {
                    let error = chain(error);
                    tracing::warn!(error, %action, "outputs are not cached");
                })
                .ok(),
            held: None,
            kept: None,
        };
        self.known().insert(action.clone(), known.clone());
        Ok(known)
    }

    /// Tells the catalog, and notes the answer.
    ///
    /// # Errors
    /// Where outputs are not copied. Nothing else keeps an action from going on.
    pub(crate) async fn tell(&self, action: &ActionKey, order: &Order) -> Result<(), DataError> {
        let Some(caching) = &self.caching else {
            return Ok(());
        };
        let Order { entry, tell } = order;
        match tell {
            Tell::Reserve(heartbeat) => {
                let claim = caching.reserve(entry, *heartbeat).await;
                // An answer that took its time is as good as any other.
                let at = caching.now();
                self.note(action, |known| known.held = Some(Held { at, claim }));
            }
            Tell::Copy(outputs) => caching.copy(entry, outputs.clone()).await?,
            Tell::Keep(metadata) => {
                let status = caching.keep(entry, (**metadata).clone()).await;
                let kept = Some((entry.output_prefix.clone(), status));
                self.note(action, |known| known.kept = kept);
            }
            Tell::Release => {
                caching.release(entry).await;
                self.note(action, |known| known.held = None);
                self.free(&entry.key);
            }
        }
        Ok(())
    }

    /// Nobody here knows any more who has the reservation of a key, and those who waited for it ask again.
    fn free(&self, key: &CacheKey) {
        for (action, known) in self.known().iter_mut() {
            if known.key.as_ref() == Some(key) && known.held.take().is_some() {
                // Nobody listens where no round will come.
                let _ = self.freed.send(action.clone());
            }
        }
    }

    fn note(&self, action: &ActionKey, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.known().get_mut(action) {
            change(known);
        }
    }
}
