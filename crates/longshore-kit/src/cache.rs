//! A cache of one resource, fed by watch events, that knows what it has not seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::core::{ObjectMeta, WatchEvent};
use longshore_core::{ObjectRef, Resource, Seen, UnknownCause};
use longshore_k8s::metadata::parse_version;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

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

/// Namespace (empty for cluster-scoped kinds) and name.
type Name = (String, String);

/// Keeps something in step with a cache: an index of its objects, for example.
pub trait Follow<K>: Debug + Send + Sync {
    /// The object of this name is as this from now on; `None`: it is gone. An object may be told again unchanged.
    ///
    /// The cache calls this under its lock, so that nobody sees an object that the follower has not seen. The follower
    /// must not ask that cache for anything, and must not take long.
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

#[derive(Debug)]
struct State<K> {
    /// `false`: objects are passed on, and none is kept.
    keeps: bool,
    entries: BTreeMap<Name, Entry<K>>,
    /// The newest version that the watch has delivered; every earlier change of the resource has been delivered too.
    progress: u64,
    /// Whether everything that exists is in `entries`.
    is_complete: bool,
    /// What live reads found and the watch has yet to deliver, by version.
    ahead: BTreeSet<(u64, Name)>,
    /// Who is told of each change of `entries`.
    follower: Option<Arc<dyn Follow<K>>>,
}

#[derive(Debug)]
struct Entry<K> {
    uid: Option<String>,
    version: u64,
    /// `None`: it is gone, and late events of this incarnation must not bring it back.
    object: Option<Arc<K>>,
    /// What was last seen of an object that a live read found gone, until the watch or a list says so too: whoever
    /// follows the updates is told of every end once.
    untold: Option<Arc<K>>,
    /// Whether a live read found it, and the watch has not delivered it.
    is_ahead: bool,
    /// The versions that our own writes made and the watch has yet to deliver: they are no news.
    ours: Vec<u64>,
    /// Whether the watch has delivered a change that nobody was told of, because a live read had found it, or what came
    /// after it: the version that was found is news, even if a write of ours made it.
    is_overdue: bool,
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
                progress: 0,
                is_complete: false,
                ahead: BTreeSet::new(),
                follower,
            }),
            changes: watch::Sender::new(0),
        }
    }

    /// An empty cache that has seen nothing: every lookup is `Unknown`.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// An empty cache whose changes `follower` is told of.
    pub fn followed_by(follower: Arc<dyn Follow<K>>) -> Arc<Self> {
        Arc::new(Self::that(true, Some(follower)))
    }

    /// One that keeps nothing, however much there is: every lookup is `Unknown`, and each update is passed on, also
    /// where it comes twice. Who follows them keeps what is of interest.
    pub fn passing_on() -> Arc<Self> {
        Arc::new(Self::that(false, None))
    }

    /// Looks one object up. `Unknown` where it was never seen and the cache is not complete.
    pub fn get(&self, namespace: &str, name: &str) -> Seen<Arc<K>> {
        let state = self.read();
        match state.entries.get(&(namespace.to_owned(), name.to_owned())) {
            Some(entry) => entry.object.clone().into(),
            None if state.is_complete => Seen::Absent,
            None => Seen::unknown(
                UnknownCause::NotListedYet,
                "the watch has not delivered it yet",
            ),
        }
    }

    /// Whether every object that exists is known. `Unknown` before the first complete list.
    pub fn complete(&self) -> Seen<()> {
        if self.read().is_complete {
            Seen::Present(())
        } else {
            not_listed()
        }
    }

    /// The objects of a namespace whose names begin so. `Unknown` before the first complete list.
    pub fn beginning(&self, namespace: &str, start: &str) -> Seen<Vec<Arc<K>>> {
        let state = self.read();
        if !state.is_complete {
            return not_listed();
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
        if !state.is_complete {
            return not_listed();
        }
        Seen::Present(state.objects().cloned().collect())
    }

    /// The newest `resourceVersion` that the watch has delivered.
    pub fn progress(&self) -> u64 {
        self.read().progress
    }

    /// Takes over a watch that starts at a stored version: nothing is known of objects that do not change after it.
    pub fn start_at(&self, version: u64) {
        let mut state = self.write();
        state.see(version);
        self.changed(state);
    }

    /// Replaces everything by a complete list of this version.
    pub fn replace(&self, objects: Vec<K>, version: u64) -> Vec<Update<K>> {
        let mut state = self.write();
        let updates = state.replace(objects, version);
        self.changed(state);
        updates
    }

    /// Takes one raw watch event. Events older than what is cached (delivered twice, or overtaken by a live read)
    /// change nothing but the progress.
    pub fn apply_event(&self, event: WatchEvent<K>) -> Option<Update<K>> {
        let mut state = self.write();
        let update = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                state.apply(object).map(Update::Applied)
            }
            WatchEvent::Deleted(object) => state.delete(object).map(Update::Deleted),
            WatchEvent::Bookmark(bookmark) => {
                let version = parse_version(&bookmark.metadata.resource_version);
                version.map(|version| {
                    state.see(version);
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

impl<K> Entry<K> {
    /// Whether the watch delivers what a write of ours made, which then is not awaited any more.
    fn is_ours(&mut self, version: u64) -> bool {
        let n_before = self.ours.len();
        self.ours.retain(|ours| *ours != version);
        self.ours.len() < n_before
    }

    /// The watch delivers an older version. Where a write of ours came after it, it may be somebody else's change, of
    /// which nobody has been told: what is there now holds both. What a live read found is told when the watch delivers it.
    fn overtaken(&mut self, version: u64) -> Option<Arc<K>> {
        if self.ours.is_empty() {
            self.is_overdue |= self.is_ahead;
            return None;
        }
        if self.is_ours(version) {
            return None;
        }
        self.is_overdue = false;
        self.object.clone()
    }

    /// The watch delivers the version that is there already, made by a write of ours. It is news where somebody else's
    /// change came before it that nobody has been told of.
    fn confirmed(&mut self) -> Option<Arc<K>> {
        let is_overdue = std::mem::take(&mut self.is_overdue);
        self.object.clone().filter(|_| is_overdue)
    }
}

impl<K: Cached> State<K> {
    fn objects(&self) -> impl Iterator<Item = &Arc<K>> {
        let entries = self.entries.values();
        entries.filter_map(|entry| entry.object.as_ref())
    }

    fn tell(&self, (namespace, name): &Name, object: Option<&Arc<K>>) {
        if let Some(follower) = &self.follower {
            follower.follow(namespace, name, object);
        }
    }

    fn see(&mut self, version: u64) {
        self.progress = self.progress.max(version);
        while self
            .ahead
            .first()
            .is_some_and(|(at, _)| *at < self.progress)
            && let Some((at, name)) = self.ahead.pop_first()
        {
            let entry = self.entries.get(&name);
            // The watch has come past it: it does not select the object, and would never tell of its end.
            if entry.is_some_and(|entry| entry.is_ahead && entry.version == at) {
                self.entries.remove(&name);
                self.tell(&name, None);
            }
        }
    }

    fn apply(&mut self, object: K) -> Option<Arc<K>> {
        let version = version_of(&object);
        self.see(version);
        self.put(object, version)
    }

    /// Puts an object unless something newer is there.
    fn put(&mut self, object: K, version: u64) -> Option<Arc<K>> {
        if !self.keeps {
            return Some(Arc::new(object));
        }
        let name = name_of(&object);
        let uid = object.meta().uid.clone();
        if let Some(entry) = self.entries.get_mut(&name) {
            let is_late = entry.object.is_none() && entry.uid.is_some() && entry.uid == uid;
            if is_late || entry.version > version {
                return entry.overtaken(version);
            }
            if entry.is_ours(version) {
                return entry.confirmed();
            }
        }
        let object = Arc::new(object);
        self.tell(&name, Some(&object));
        let entry = Entry {
            uid,
            version,
            object: Some(Arc::clone(&object)),
            untold: None,
            is_ahead: false,
            ours: Vec::new(),
            is_overdue: false,
        };
        self.entries.insert(name, entry);
        Some(object)
    }

    /// Puts the answer to a write of ours.
    fn put_ours(&mut self, object: K, version: u64) {
        let name = name_of(&object);
        let (mut ours, is_overdue) = match self.entries.get_mut(&name) {
            Some(entry) => (std::mem::take(&mut entry.ours), entry.is_overdue),
            None => (Vec::new(), false),
        };
        ours.push(version);
        self.put(object, version);
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.ours = ours;
            entry.is_overdue = is_overdue;
        }
    }

    fn delete(&mut self, object: K) -> Option<Arc<K>> {
        let version = version_of(&object);
        self.see(version);
        let name = name_of(&object);
        let known = self.entries.get(&name);
        if known.is_some_and(|entry| entry.object.is_some() && entry.uid != object.meta().uid) {
            // The next incarnation is known already, from a live read, and may be none that the watch delivers: this end is
            // the only news of the old one.
            return Some(Arc::new(object));
        }
        if self.is_complete {
            self.entries.remove(&name);
            self.tell(&name, None);
        } else if self.keeps {
            self.bury(name, object.meta().uid.clone(), version, None);
        }
        Some(Arc::new(object))
    }

    /// Puts what a live read found. The answer may be late: an object that the watch has come past, and that is not here,
    /// was deleted after the read, or the watch does not select it. No event would ever remove it again.
    fn put_live(&mut self, object: K) {
        let version = version_of(&object);
        let known = self.entries.get(&name_of(&object));
        let is_here = known.is_some_and(|entry| entry.object.is_some());
        let is_overdue = known.is_some_and(|entry| entry.is_overdue);
        let is_ahead = version > self.progress;
        if !is_here && self.is_complete && !is_ahead {
            return;
        }
        let name = name_of(&object);
        self.put(object, version);
        let entry = self.entries.get_mut(&name);
        let is_put = |entry: &&mut Entry<K>| entry.object.is_some() && entry.version == version;
        if let Some(entry) = entry.filter(is_put).filter(|_| is_ahead) {
            entry.is_ahead = true;
            entry.is_overdue = is_overdue;
            self.ahead.insert((version, name));
        }
    }

    /// A live read found nothing of this name. The answer may be late: another incarnation that is here was made after the
    /// one that was read.
    fn lose(&mut self, target: &ObjectRef) {
        let name = name_in(target);
        let known = self.entries.get(&name);
        let is_another = |entry: &Entry<K>| {
            entry.object.is_some() && target.uid.is_some() && entry.uid != target.uid
        };
        if known.is_some_and(is_another) {
            return;
        }
        let version = known.map_or(0, |entry| entry.version);
        let uid = known.and_then(|entry| entry.uid.clone());
        let untold = known.and_then(|entry| entry.object.as_ref().or(entry.untold.as_ref()));
        let untold = untold.cloned();
        self.bury(name, uid.or_else(|| target.uid.clone()), version, untold);
    }

    /// An object whose end we know before the watch tells of it.
    fn let_go(&mut self, object: K, version: u64) {
        let name = name_of(&object);
        let uid = object.meta().uid.clone();
        let known = self.entries.get(&name);
        if let Some(known) = known.filter(|known| known.object.is_some() && known.uid == uid) {
            let version = known.version.max(version);
            self.bury(name, uid, version, Some(Arc::new(object)));
        }
    }

    fn bury(&mut self, name: Name, uid: Option<String>, version: u64, untold: Option<Arc<K>>) {
        self.tell(&name, None);
        let entry = Entry {
            uid,
            version,
            object: None,
            untold,
            is_ahead: false,
            ours: Vec::new(),
            is_overdue: false,
        };
        self.entries.insert(name, entry);
    }

    fn replace(&mut self, objects: Vec<K>, version: u64) -> Vec<Update<K>> {
        if !self.keeps {
            self.see(version);
            let here = objects.into_iter().map(Arc::new).map(Update::Applied);
            return here.chain([Update::Reached(version)]).collect();
        }
        let earlier = std::mem::take(&mut self.entries);
        self.is_complete = true;
        self.see(version);
        for object in objects {
            let version = version_of(&object);
            self.put(object, version);
        }
        let mut gone = Vec::new();
        for (name, entry) in earlier {
            if entry.version > version {
                self.tell(&name, entry.object.as_ref());
                self.entries.insert(name, entry); // A live read was ahead of this list.
            } else if !self.entries.contains_key(&name) {
                self.tell(&name, None);
                gone.extend(entry.object.or(entry.untold));
            }
        }
        let here = self.objects().cloned().map(Update::Applied);
        here.chain(gone.into_iter().map(Update::Deleted))
            .chain([Update::Reached(version)])
            .collect()
    }
}

impl<K: Cached> CacheFeed for Cache<K> {
    fn has_seen(&self, written: &Written) -> bool {
        let state = self.read();
        let entry = state.entries.get(&name_in(&written.target));
        match written.until {
            Until::Version(version) => {
                state.progress >= version || entry.is_some_and(|entry| entry.version >= version)
            }
            Until::Deleted => match entry {
                None => state.is_complete,
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
        } else if version > state.progress && state.keeps {
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

fn name_of<K: kube::Resource>(object: &K) -> Name {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn name_in(target: &ObjectRef) -> Name {
    (target.namespace.clone(), target.name.clone())
}

fn version_of<K: kube::Resource>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(parse_version).unwrap_or(0)
}
