//! An index across kinds: which objects name which others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::cache::Follow;

/// The objects of a cache, by what they refer to: the session jobs of a deployment, for example. `R` names what they refer
/// to.
///
/// The index [follows](crate::Cache::followed_by) the cache of the objects that refer, under its lock: an object that a
/// round can see is in the index.
pub struct Referrers<K, R> {
    refers_to: RefersTo<K, R>,
    known: Mutex<ReferrerIndex<R>>,
}

type RefersTo<K, R> = Box<dyn Fn(&K) -> Vec<R> + Send + Sync>;

/// The namespace and the name of an object.
type Name = (String, String);

struct ReferrerIndex<R> {
    by_target: BTreeMap<R, BTreeSet<Name>>,
    by_object: BTreeMap<Name, Vec<R>>,
}

impl<K, R: Ord + Clone> Referrers<K, R> {
    /// An index by what `refers_to` returns.
    pub fn new(refers_to: impl Fn(&K) -> Vec<R> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            refers_to: Box::new(refers_to),
            known: Mutex::new(ReferrerIndex {
                by_target: BTreeMap::new(),
                by_object: BTreeMap::new(),
            }),
        })
    }

    /// The namespaces and names of the objects that refer to this one.
    pub fn of(&self, target: &R) -> Vec<Name> {
        let known = self.known();
        let names = known.by_target.get(target).into_iter().flatten();
        names.cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, ReferrerIndex<R>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Send + Sync, R: Ord + Clone + Send> Follow<K> for Referrers<K, R> {
    fn follow(&self, namespace: &str, name: &str, object: Option<&Arc<K>>) {
        let name = (namespace.to_owned(), name.to_owned());
        let targets = object.map_or_else(Vec::new, |object| (self.refers_to)(object));
        let mut known = self.known();
        for before in known.by_object.remove(&name).into_iter().flatten() {
            if let Some(names) = known.by_target.get_mut(&before) {
                names.remove(&name);
                if names.is_empty() {
                    known.by_target.remove(&before);
                }
            }
        }
        for target in &targets {
            let names = known.by_target.entry(target.clone()).or_default();
            names.insert(name.clone());
        }
        if !targets.is_empty() {
            known.by_object.insert(name, targets);
        }
    }
}

impl<K, R> fmt::Debug for Referrers<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Referrers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_by_what_it_refers_to_now() {
        let jobs_of = Referrers::new(|targets: &Vec<&'static str>| targets.clone());
        let follow = |name: &str, targets: Option<&[&'static str]>| {
            let object = targets.map(|targets| Arc::new(targets.to_vec()));
            jobs_of.follow("flink", name, object.as_ref());
        };
        let names = |target| {
            let names = jobs_of.of(&target).into_iter();
            names.map(|(_, name)| name).collect::<Vec<_>>()
        };
        follow("a", Some(&["first", "second"]));
        follow("b", Some(&["first"]));
        assert_eq!(names("first"), ["a", "b"]);
        assert_eq!(names("second"), ["a"]);
        follow("a", Some(&["second"]));
        assert_eq!(names("first"), ["b"]);
        follow("a", None);
        follow("b", Some(&[]));
        assert!(names("first").is_empty() && names("second").is_empty());
        let known = jobs_of.known();
        assert!(known.by_target.is_empty() && known.by_object.is_empty());
    }
}
