//! What a cache has taken in, and what of it is news.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_core::ObjectRef;
use longshore_k8s::metadata::parse_version;

use super::{Cached, Follow, Update};

/// Namespace (empty for cluster-scoped kinds) and name.
pub(super) type Name = (String, String);

/// In the place of a namespace: all of them.
pub(crate) const ALL: &str = "";

#[derive(Debug)]
pub(super) struct State<K> {
    /// `false`: objects are passed on, and none is kept.
    pub(super) keeps: bool,
    pub(super) entries: BTreeMap<Name, Entry<K>>,
    /// What the watches have delivered, by the namespace of each; [`ALL`] for one watch of all of them.
    pub(super) watched: BTreeMap<String, Watched>,
    /// Whether an object of a namespace that nothing watches counts as absent.
    pub(super) is_absent_outside: bool,
    /// Gets each change of `entries`.
    pub(super) follower: Option<Arc<dyn Follow<K>>>,
}

/// What a watch has delivered.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The newest version that it has delivered; every earlier change has been delivered too.
    pub(super) progress: u64,
    /// Whether everything that exists is in the entries.
    pub(super) is_complete: bool,
    /// What live reads found and the watch has yet to deliver, by version.
    ahead: BTreeSet<(u64, Name)>,
}

#[derive(Debug)]
pub(super) struct Entry<K> {
    pub(super) uid: Option<String>,
    pub(super) version: u64,
    /// `None`: it is gone, and late events of this incarnation must not bring it back.
    pub(super) object: Option<Arc<K>>,
    /// What was last seen of an object that a live read found gone, until the watch or a list says so too: followers of
    /// the updates get every end once.
    pub(super) untold: Option<Arc<K>>,
    /// Whether a live read found it, and the watch has not delivered it.
    is_ahead: bool,
    /// The versions that our own writes made and the watch has yet to deliver: they are no news.
    ours: Vec<u64>,
    /// Whether the watch has delivered a change that no follower got, because a live read had found it, or what came
    /// after it: the version that was found is news, even if a write of ours made it.
    is_overdue: bool,
}

impl<K> Entry<K> {
    /// Whether the watch delivers what a write of ours made, which then is not awaited any more.
    pub(super) fn is_ours(&mut self, version: u64) -> bool {
        let n_before = self.ours.len();
        self.ours.retain(|ours| *ours != version);
        self.ours.len() < n_before
    }

    /// The watch delivers an older version. Where a write of ours came after it, it may be another client's change,
    /// which no follower got: what is there now holds both. Followers get what a live read found when the watch
    /// delivers it.
    pub(super) fn overtaken(&mut self, version: u64) -> Option<Arc<K>> {
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

    /// The watch delivers the version that is there already, made by a write of ours. It is news where another client's
    /// change came before it that no follower got.
    pub(super) fn confirmed(&mut self) -> Option<Arc<K>> {
        let is_overdue = std::mem::take(&mut self.is_overdue);
        self.object.clone().filter(|_| is_overdue)
    }
}

impl<K: Cached> State<K> {
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<K>> {
        let entries = self.entries.values();
        entries.filter_map(|entry| entry.object.as_ref())
    }

    pub(super) fn tell(&self, (namespace, name): &Name, object: Option<&Arc<K>>) {
        if let Some(follower) = &self.follower {
            follower.follow(namespace, name, object);
        }
    }

    /// What the watch that delivers the objects of a namespace has delivered; `None` where nothing watches it.
    pub(super) fn watched_in(&self, namespace: &str) -> Option<&Watched> {
        let watched = self.watched.get(ALL);
        watched.or_else(|| self.watched.get(namespace))
    }

    pub(super) fn is_listed(&self, scope: &str) -> bool {
        let watched = self.watched_in(scope);
        watched.is_some_and(|watched| watched.is_complete)
    }

    pub(super) fn is_complete(&self) -> bool {
        let mut watched = self.watched.values();
        !self.watched.is_empty() && watched.all(|watched| watched.is_complete)
    }

    /// Takes out the entries of a namespace, or of all.
    pub(super) fn take(&mut self, scope: &str) -> BTreeMap<Name, Entry<K>> {
        let all = std::mem::take(&mut self.entries);
        let is_of_scope = |name: &Name| scope == ALL || name.0 == scope;
        let (of_scope, others) = all.into_iter().partition(|(name, _)| is_of_scope(name));
        self.entries = others;
        of_scope
    }

    /// The watch of this namespace, or of all, has delivered everything up to this version.
    pub(super) fn see(&mut self, scope: &str, version: u64) {
        let Some(watched) = self.watched.get_mut(scope) else {
            return;
        };
        watched.progress = watched.progress.max(version);
        let ahead = watched
            .ahead
            .split_off(&(watched.progress, Name::default()));
        let passed = std::mem::replace(&mut watched.ahead, ahead);
        for (at, name) in passed {
            let entry = self.entries.get(&name);
            // The watch has come past it: it does not select the object, and would never tell of its end.
            if entry.is_some_and(|entry| entry.is_ahead && entry.version == at) {
                self.entries.remove(&name);
                self.tell(&name, None);
            }
        }
    }

    pub(super) fn apply(&mut self, object: K) -> Option<Arc<K>> {
        let version = version_of(&object);
        self.see_object(&object, version);
        self.put(object, version)
    }

    /// The watch has delivered an object of this version.
    pub(super) fn see_object(&mut self, object: &K, version: u64) {
        if self.watched.contains_key(ALL) {
            self.see(ALL, version);
        } else {
            self.see(&name_of(object).0, version);
        }
    }

    /// Puts an object unless something newer is there.
    pub(super) fn put(&mut self, object: K, version: u64) -> Option<Arc<K>> {
        if !self.keeps {
            return Some(Arc::new(object));
        }
        let name = name_of(&object);
        self.watched_in(&name.0)?;
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

    /// Whether the watch has yet to deliver this version.
    pub(super) fn is_news(&self, object: &K, version: u64) -> bool {
        let watched = self.watched_in(&name_of(object).0);
        watched.is_some_and(|watched| version > watched.progress)
    }

    /// Puts the answer to a write of ours.
    pub(super) fn put_ours(&mut self, object: K, version: u64) {
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

    pub(super) fn delete(&mut self, object: K) -> Option<Arc<K>> {
        let version = version_of(&object);
        self.see_object(&object, version);
        let name = name_of(&object);
        let known = self.entries.get(&name);
        if known.is_some_and(|entry| entry.object.is_some() && entry.uid != object.meta().uid) {
            // The next incarnation is known already, from a live read, and may be none that the watch delivers: this end is
            // the only news of the old one.
            return Some(Arc::new(object));
        }
        let watched = self.watched_in(&name.0);
        if watched.is_some_and(|watched| watched.is_complete) {
            self.entries.remove(&name);
            self.tell(&name, None);
        } else if self.keeps {
            self.bury(name, object.meta().uid.clone(), version, None);
        }
        Some(Arc::new(object))
    }

    /// Puts what a live read found. The answer may be late: an object that the watch has come past, and that is not here,
    /// was deleted after the read, or the watch does not select it. No event would ever remove it again.
    pub(super) fn put_live(&mut self, object: K) {
        let version = version_of(&object);
        let known = self.entries.get(&name_of(&object));
        let is_here = known.is_some_and(|entry| entry.object.is_some());
        let is_overdue = known.is_some_and(|entry| entry.is_overdue);
        let name = name_of(&object);
        let Some(watched) = self.watched_in(&name.0) else {
            return;
        };
        let is_ahead = version > watched.progress;
        if !is_here && watched.is_complete && !is_ahead {
            return;
        }
        self.put(object, version);
        let entry = self.entries.get_mut(&name);
        let is_put = |entry: &&mut Entry<K>| entry.object.is_some() && entry.version == version;
        if let Some(entry) = entry.filter(is_put).filter(|_| is_ahead) {
            entry.is_ahead = true;
            entry.is_overdue = is_overdue;
            let is_of_all = self.watched.contains_key(ALL);
            let scope = if is_of_all { ALL } else { &name.0 };
            if let Some(watched) = self.watched.get_mut(scope) {
                watched.ahead.insert((version, name));
            }
        }
    }

    /// A live read found nothing of this name. The answer may be late: another incarnation that is here was made after the
    /// one that was read.
    pub(super) fn lose(&mut self, target: &ObjectRef) {
        let name = name_in(target);
        if self.watched_in(&name.0).is_none() {
            return;
        }
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

    /// An object whose end is known before the watch delivers it.
    pub(super) fn let_go(&mut self, object: K, version: u64) {
        let name = name_of(&object);
        let uid = object.meta().uid.clone();
        let known = self.entries.get(&name);
        if let Some(known) = known.filter(|known| known.object.is_some() && known.uid == uid) {
            let version = known.version.max(version);
            self.bury(name, uid, version, Some(Arc::new(object)));
        }
    }

    pub(super) fn bury(
        &mut self,
        name: Name,
        uid: Option<String>,
        version: u64,
        untold: Option<Arc<K>>,
    ) {
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

    pub(super) fn replace(&mut self, scope: &str, objects: Vec<K>, version: u64) -> Vec<Update<K>> {
        if !self.keeps {
            self.see(scope, version);
            let here = objects.into_iter().map(Arc::new).map(Update::Applied);
            return here.chain([Update::Reached(version)]).collect();
        }
        let earlier = self.take(scope);
        if let Some(watched) = self.watched.get_mut(scope) {
            watched.is_complete = true;
        }
        self.see(scope, version);
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
        let here = self.objects();
        let here = here.filter(|it| scope == ALL || it.meta().namespace.as_deref() == Some(scope));
        let here = here.cloned().map(Update::Applied);
        here.chain(gone.into_iter().map(Update::Deleted))
            .chain([Update::Reached(version)])
            .collect()
    }
}

pub(super) fn name_of<K: kube::Resource>(object: &K) -> Name {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

pub(super) fn name_in(target: &ObjectRef) -> Name {
    (target.namespace.clone(), target.name.clone())
}

pub(super) fn version_of<K: kube::Resource>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(parse_version).unwrap_or(0)
}
