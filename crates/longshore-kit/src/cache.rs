//! A cache of one resource, fed by watch events, that knows what it has not seen.

mod state;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::core::{ObjectMeta, WatchEvent};
use longshore_core::{ObjectRef, Resource, Seen, UnknownCause};
use longshore_k8s::metadata::parse_version;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

pub(crate) use self::state::ALL;
use self::state::{State, Watched, name_in, name_of, version_of};
use crate::{
    own_writes::{CacheFeed, Until, Written},
    requests::Answer,
};

/// What a cache can hold: any kind of kube's, typed or [`RawObject`](crate::RawObject).
pub trait Cached:
    kube::Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}
impl<K: kube::Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static> Cached for K {}

/// Keeps something in step with a cache: an index of its objects, for example.
pub trait Follow<K>: Debug + Send + Sync {
    /// The object of this name is as this from now on; `None`: it is gone. The cache may call this again with an
    /// unchanged object.
    ///
    /// The cache calls this under its lock, so that no reader sees an object that the follower has not seen. The
    /// follower must not ask that cache for anything, and must not take long.
    fn follow(&self, namespace: &str, name: &str, object: Option<&Arc<K>>);
}

/// The objects of one resource as last seen. Values are shared, never copied.
///
/// A [`ListWatch`](crate::list_watch::ListWatch) feeds it, or a caller by hand with [`start_at`](Self::start_at),
/// [`replace`](Self::replace) and [`apply_event`](Self::apply_event). The runner feeds it with its live reads as well,
/// so that a cache can be ahead of its watch.
#[derive(Debug)]
pub struct Cache<K> {
    state: RwLock<State<K>>,
    changes: watch::Sender<u64>,
}

/// What a cache has taken in.
#[derive(Clone, Debug)]
pub enum Update<K> {
    /// The object is there, as this.
    Applied(Arc<K>),
    /// The object is gone; this is the last that was seen of it.
    Deleted(Arc<K>),
    /// Everything up to this `resourceVersion` has been delivered: a bookmark, or the end of a list.
    Reached(u64),
}

impl<K> Update<K> {
    /// The object that changed, whether it is still there or not.
    pub fn into_object(self) -> Option<Arc<K>> {
        match self {
            Self::Applied(object) | Self::Deleted(object) => Some(object),
            Self::Reached(_) => None,
        }
    }
}

impl<K: Cached> Default for Cache<K> {
    fn default() -> Self {
        Self::that(true, None)
    }
}

impl<K: Cached> Cache<K> {
    fn that(keeps: bool, follower: Option<Arc<dyn Follow<K>>>) -> Self {
        Self {
            state: RwLock::new(State {
                keeps,
                entries: BTreeMap::new(),
                watched: BTreeMap::from([(ALL.to_owned(), Watched::default())]),
                is_absent_outside: false,
                follower,
            }),
            changes: watch::Sender::new(0),
        }
    }

    /// An empty cache that has seen nothing: every lookup is `Unknown`.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// An empty cache whose changes go to `follower`.
    pub fn followed_by(follower: Arc<dyn Follow<K>>) -> Arc<Self> {
        Arc::new(Self::that(true, Some(follower)))
    }

    /// A cache that keeps nothing, however much there is: every lookup is `Unknown`, and each update is passed on, also
    /// where it comes twice. The follower of the updates keeps what is of interest.
    pub fn passing_on() -> Arc<Self> {
        Arc::new(Self::that(false, None))
    }

    /// Looks one object up. `Unknown` where it was never seen and the cache is not complete.
    pub fn get(&self, namespace: &str, name: &str) -> Seen<Arc<K>> {
        let state = self.read();
        let entry = state.entries.get(&(namespace.to_owned(), name.to_owned()));
        match (entry, state.watched_in(namespace)) {
            (Some(entry), _) => entry.object.clone().into(),
            (None, Some(watched)) if watched.is_complete => Seen::Absent,
            (None, Some(_)) => Seen::unknown(
                UnknownCause::NotListedYet,
                "the watch has not delivered it yet",
            ),
            (None, None) if state.is_absent_outside => Seen::Absent,
            (None, None) => not_watched(),
        }
    }

    /// Whether every object that exists is known. `Unknown` before the first complete list.
    pub fn complete(&self) -> Seen<()> {
        if self.read().is_complete() {
            Seen::Present(())
        } else {
            not_listed()
        }
    }

    /// Waits until every object of a namespace, or of all, is known.
    pub(crate) async fn listed(&self, scope: &str) {
        let mut changes = self.changes.subscribe();
        while !self.read().is_listed(scope) {
            // The cache itself has the sender.
            let _ = changes.changed().await;
        }
    }

    /// The objects of a namespace whose names begin so. `Unknown` before the first complete list.
    pub fn beginning(&self, namespace: &str, start: &str) -> Seen<Vec<Arc<K>>> {
        let state = self.read();
        match state.watched_in(namespace) {
            Some(watched) if watched.is_complete => {}
            Some(_) => return not_listed(),
            None => return not_watched(),
        }
        let from = (namespace.to_owned(), start.to_owned());
        let entries = state.entries.range(from..);
        let named =
            entries.take_while(|((of, name), _)| of == namespace && name.starts_with(start));
        Seen::Present(
            named
                .filter_map(|(_, entry)| entry.object.clone())
                .collect(),
        )
    }

    /// All objects, by namespace and name. `Unknown` before the first complete list.
    pub fn all(&self) -> Seen<Vec<Arc<K>>> {
        let state = self.read();
        if !state.is_complete() {
            return not_listed();
        }
        Seen::Present(state.objects().cloned().collect())
    }

    /// The newest `resourceVersion` that the watch has delivered; of several watches, that of the one furthest behind.
    pub fn progress(&self) -> u64 {
        let state = self.read();
        let watched = state.watched.values();
        watched.map(|watched| watched.progress).min().unwrap_or(0)
    }

    /// Takes over a watch that starts at a stored version: nothing is known of objects that do not change after it.
    pub fn start_at(&self, version: u64) {
        let mut state = self.write();
        state.see(ALL, version);
        self.changed(state);
    }

    /// A watch of this namespace begins, instead of one of all.
    pub(crate) fn open(&self, namespace: &str) {
        let mut state = self.write();
        if namespace != ALL {
            state.watched.remove(ALL);
        }
        state.watched.entry(namespace.to_owned()).or_default();
        self.changed(state);
    }

    /// The watch of this namespace, or of all, has ended for good. Its objects leave the cache, and are returned.
    pub(crate) fn close(&self, scope: &str) -> Vec<Update<K>> {
        let mut state = self.write();
        state.watched.remove(scope);
        let mut gone = Vec::new();
        for (name, entry) in state.take(scope) {
            if entry.object.is_some() {
                state.tell(&name, None);
            }
            gone.extend(entry.object.or(entry.untold).map(Update::Deleted));
        }
        self.changed(state);
        gone
    }

    /// From now on an object of a namespace that nothing watches is absent, and not unknown: the objects of this cache are
    /// what keys are made of, and there is nothing to do about those that are out of scope.
    pub(crate) fn absent_outside(&self) {
        self.write().is_absent_outside = true;
    }

    /// Whether it keeps objects.
    pub(crate) fn keeps(&self) -> bool {
        self.read().keeps
    }

    /// Replaces everything by a complete list of this version.
    pub fn replace(&self, objects: Vec<K>, version: u64) -> Vec<Update<K>> {
        self.replace_in(ALL, objects, version)
    }

    /// Replaces what there is of a namespace, or of all.
    pub(crate) fn replace_in(&self, scope: &str, objects: Vec<K>, version: u64) -> Vec<Update<K>> {
        let mut state = self.write();
        let updates = state.replace(scope, objects, version);
        self.changed(state);
        updates
    }

    /// Takes one raw watch event. Events older than what is cached (delivered twice, or overtaken by a live read)
    /// change nothing but the progress.
    pub fn apply_event(&self, event: WatchEvent<K>) -> Option<Update<K>> {
        self.apply_event_in(ALL, event)
    }

    /// The same of a watch of a namespace.
    pub(crate) fn apply_event_in(&self, scope: &str, event: WatchEvent<K>) -> Option<Update<K>> {
        let mut state = self.write();
        let update = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                state.apply(object).map(Update::Applied)
            }
            WatchEvent::Deleted(object) => state.delete(object).map(Update::Deleted),
            WatchEvent::Bookmark(bookmark) => {
                let version = parse_version(&bookmark.metadata.resource_version);
                version.map(|version| {
                    state.see(scope, version);
                    Update::Reached(version)
                })
            }
            WatchEvent::Error(_) => None,
        };
        self.changed(state);
        update
    }

    fn read(&self) -> RwLockReadGuard<'_, State<K>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<K>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, state: RwLockWriteGuard<'_, State<K>>) {
        drop(state);
        self.changes.send_modify(|n| *n = n.wrapping_add(1));
    }
}

impl<K: Cached> CacheFeed for Cache<K> {
    fn has_seen(&self, written: &Written) -> bool {
        let state = self.read();
        let entry = state.entries.get(&name_in(&written.target));
        let Some(watched) = state.watched_in(&written.target.namespace) else {
            return true; // The cache will never show anything of that namespace.
        };
        match written.until {
            Until::Version(version) => {
                watched.progress >= version || entry.is_some_and(|entry| entry.version >= version)
            }
            Until::Deleted => match entry {
                None => watched.is_complete,
                Some(entry) => entry.object.as_ref().is_none_or(|object| {
                    object.meta().deletion_timestamp.is_some() || entry.uid != written.target.uid
                }),
            },
            Until::LiveRead => false,
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn feed(&self, target: &ObjectRef, live: Option<Value>) -> Result<(), serde_json::Error> {
        let live = live.map(serde_json::from_value::<K>).transpose()?;
        let mut state = self.write();
        match live {
            Some(object) => state.put_live(object),
            None => state.lose(target),
        }
        self.changed(state);
        Ok(())
    }

    fn learn(&self, answer: &Answer) -> Result<(), serde_json::Error> {
        let object: K = serde_json::from_str(answer.text())?;
        let version = version_of(&object);
        let mut state = self.write();
        if is_gone(object.meta()) {
            state.let_go(object, version);
        } else if state.keeps && state.is_news(&object, version) {
            state.put_ours(object, version);
        }
        self.changed(state);
        Ok(())
    }

    fn metadata(&self, target: &ObjectRef) -> Option<ObjectMeta> {
        let state = self.read();
        let object = state.entries.get(&name_in(target))?.object.as_ref()?;
        Some(object.meta().clone())
    }
}

fn not_watched<T>() -> Seen<T> {
    Seen::unknown(UnknownCause::NotWatched, "nothing watches its namespace")
}

fn not_listed<T>() -> Seen<T> {
    Seen::unknown(UnknownCause::NotListedYet, "the first list is not complete")
}

/// The address of an object; `resource` says what it is.
pub fn reference<K: kube::Resource>(resource: Resource, object: &K) -> ObjectRef {
    let (namespace, name) = name_of(object);
    ObjectRef {
        resource,
        namespace,
        name,
        uid: object.meta().uid.clone(),
    }
}

/// Whether this is the last that is to be seen of an object: its deletion was waiting for its finalizers only.
fn is_gone(meta: &ObjectMeta) -> bool {
    let has_finalizers = meta.finalizers.as_ref().is_some_and(|it| !it.is_empty());
    let has_grace = meta.deletion_grace_period_seconds.unwrap_or(0) > 0;
    meta.deletion_timestamp.is_some() && !has_finalizers && !has_grace
}
