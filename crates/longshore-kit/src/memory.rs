//! What a controller remembers of its keys between rounds: facts that no cache shows, such as a create that was refused.
//!
//! A [`Memory`] only reads: it is what `observe` has. [`Notes`] write: they are for what happens outside of `observe`
//! (`refused`, `postponed`, `persist`, a watch). Everything is bound to an [`Incarnation`]; the runner drops what is
//! bound to another one, and all of it when the key is gone ([`Runner::remembering`](crate::Runner::remembering)).
//! Nothing of it is durable: after a restart each fact is met again, or was none.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_core::{Incarnation, Seen};

use crate::controller::Key;

/// How many incarnations of a key are remembered until a round says which one there is: a watch may tell of an old
/// object's pods after the new object was created.
const INCARNATIONS: usize = 4;

/// What is remembered of each key, to be read.
#[derive(Debug)]
pub struct Memory<K, T> {
    known: Arc<MemoryTable<K, T>>,
}

/// The same memory, to be written.
#[derive(Debug)]
pub struct Notes<K, T> {
    known: Arc<MemoryTable<K, T>>,
}

#[derive(Debug)]
struct MemoryTable<K, T>(Mutex<ByKey<K, T>>);

/// The newest fact's incarnation is the last.
type ByKey<K, T> = BTreeMap<K, Vec<(Incarnation, Arc<T>)>>;

/// Something that the runner keeps in step with its keys.
pub(crate) trait Remembers<K>: Debug + Send + Sync {
    /// A round has seen which incarnation of `key` there is.
    fn keep(&self, key: &K, seen: &Seen<Incarnation>);
}

impl<K: Key, T: Clone + Default + Debug + Send + Sync + 'static> Memory<K, T> {
    /// An empty memory, and what writes it.
    pub fn new() -> (Self, Notes<K, T>) {
        let known = Arc::new(MemoryTable(Mutex::default()));
        let notes = Notes {
            known: Arc::clone(&known),
        };
        (Self { known }, notes)
    }

    /// What is remembered of this incarnation; the default where that is nothing.
    pub fn get(&self, key: &K, incarnation: &Incarnation) -> Arc<T> {
        let known = self.known.lock();
        let of = known.get(key).into_iter().flatten();
        let mut of = of.filter(|(of, _)| of == incarnation);
        let remembered = of.next().map(|(_, remembered)| Arc::clone(remembered));
        remembered.unwrap_or_default()
    }

    /// The keys of which something remembered `is_meant`, whatever the incarnation.
    pub fn keys(&self, is_meant: impl Fn(&T) -> bool) -> Vec<K> {
        let known = self.known.lock();
        let meant = known
            .iter()
            .filter(|(_, of)| of.iter().any(|(_, it)| is_meant(it)));
        meant.map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn remembers(&self) -> Arc<dyn Remembers<K>> {
        Arc::<MemoryTable<K, T>>::clone(&self.known)
    }
}

impl<K, T> Clone for Memory<K, T> {
    fn clone(&self) -> Self {
        Self {
            known: Arc::clone(&self.known),
        }
    }
}

impl<K, T> Clone for Notes<K, T> {
    fn clone(&self) -> Self {
        Self {
            known: Arc::clone(&self.known),
        }
    }
}

impl<K: Key, T: Clone + Default + PartialEq> Notes<K, T> {
    /// Changes what is remembered of this incarnation. What is the default afterwards costs nothing.
    pub fn note<R>(
        &self,
        key: &K,
        incarnation: &Incarnation,
        change: impl FnOnce(&mut T) -> R,
    ) -> R {
        let mut known = self.known.lock();
        let of = known.entry(key.clone()).or_default();
        let place = of.iter().position(|(of, _)| of == incarnation);
        let mut remembered = place.map_or_else(Arc::default, |place| of.remove(place).1);
        let result = change(Arc::make_mut(&mut remembered));
        if *remembered != T::default() {
            if of.len() >= INCARNATIONS {
                of.remove(0);
            }
            of.push((incarnation.clone(), remembered));
        }
        if of.is_empty() {
            known.remove(key);
        }
        result
    }

    /// Changes what is remembered of all keys of which it `is_meant`, whatever their incarnation. Returns those keys.
    pub fn note_all(&self, is_meant: impl Fn(&T) -> bool, change: impl Fn(&mut T)) -> Vec<K> {
        let mut known = self.known.lock();
        let mut changed = Vec::new();
        known.retain(|key, of| {
            let mut is_changed = false;
            for (_, remembered) in of.iter_mut().filter(|(_, it)| is_meant(it)) {
                change(Arc::make_mut(remembered));
                is_changed = true;
            }
            if is_changed {
                changed.push(key.clone());
                of.retain(|(_, remembered)| **remembered != T::default());
            }
            !of.is_empty()
        });
        changed
    }

    /// Forgets what is remembered of this incarnation.
    pub fn forget(&self, key: &K, incarnation: &Incarnation) {
        self.note(key, incarnation, |remembered| *remembered = T::default());
    }
}

impl<K: Key, T: Debug + Send + Sync + 'static> Remembers<K> for MemoryTable<K, T> {
    fn keep(&self, key: &K, seen: &Seen<Incarnation>) {
        let mut known = self.lock();
        match seen {
            Seen::Unknown(_) => {}
            Seen::Absent => {
                known.remove(key);
            }
            Seen::Present(incarnation) => {
                let Some(of) = known.get_mut(key) else {
                    return;
                };
                of.retain(|(of, _)| of == incarnation);
                if of.is_empty() {
                    known.remove(key);
                }
            }
        }
    }
}

impl<K, T> MemoryTable<K, T> {
    fn lock(&self) -> MutexGuard<'_, ByKey<K, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::{Unknown, UnknownCause};

    use super::*;

    const KEY: &str = "k";

    fn incarnation(uid: &str) -> Incarnation {
        Incarnation::of(uid)
    }

    fn len(memory: &Memory<&'static str, Vec<u32>>) -> usize {
        memory.known.lock().values().map(Vec::len).sum()
    }

    #[test]
    fn a_fact_is_remembered_of_its_own_incarnation_until_a_round_sees_another() {
        let (memory, notes) = Memory::<_, Vec<u32>>::new();
        let (first, second) = (incarnation("u"), incarnation("v"));
        notes.note(&KEY, &first, |facts| facts.push(1));
        notes.note(&KEY, &first, |facts| facts.push(2));
        notes.note(&KEY, &second, |facts| facts.push(3));
        assert_eq!(*memory.get(&KEY, &first), [1, 2]);
        assert_eq!(*memory.get(&KEY, &second), [3]);
        let keeper = memory.remembers();
        let blind = Unknown::new(UnknownCause::Unreachable, "down");
        keeper.keep(&KEY, &Seen::Unknown(blind));
        assert_eq!(len(&memory), 2, "nothing is known, nothing is dropped");
        keeper.keep(&KEY, &Seen::Present(second.clone()));
        assert!(memory.get(&KEY, &first).is_empty());
        assert_eq!(*memory.get(&KEY, &second), [3]);
        keeper.keep(&KEY, &Seen::Absent);
        assert!(memory.get(&KEY, &second).is_empty());
        assert_eq!(len(&memory), 0);
    }

    #[test]
    fn what_is_forgotten_costs_nothing_and_incarnations_are_bounded() {
        let (memory, notes) = Memory::<_, Vec<u32>>::new();
        for n in 0..20 {
            let incarnation = incarnation(&n.to_string());
            notes.note(&KEY, &incarnation, |facts| facts.push(n));
        }
        assert_eq!(len(&memory), INCARNATIONS);
        for n in 0..20 {
            notes.forget(&KEY, &incarnation(&n.to_string()));
        }
        assert_eq!(len(&memory), 0);
        assert!(memory.known.lock().is_empty());
    }

    #[test]
    fn a_fact_about_many_keys_is_noted_of_those_that_are_meant() {
        let (memory, notes) = Memory::<_, Vec<u32>>::new();
        let life = incarnation("u");
        for (key, fact) in [("a", 1), ("b", 2), ("c", 1)] {
            notes.note(&key, &life, |facts| facts.push(fact));
        }
        let changed = notes.note_all(|facts| facts.contains(&1), |facts| facts.push(3));
        assert_eq!(changed, ["a", "c"]);
        assert_eq!(memory.keys(|facts| facts.contains(&3)), changed);
        assert_eq!(*memory.get(&"a", &life), [1, 3]);
        assert_eq!(*memory.get(&"b", &life), [2]);
        notes.note_all(|facts| facts.contains(&3), Vec::clear);
        assert_eq!(len(&memory), 1, "what is the default costs nothing");
    }

    #[test]
    fn what_a_round_has_read_does_not_change_under_it() {
        let (memory, notes) = Memory::<_, Vec<u32>>::new();
        notes.note(&KEY, &incarnation("u"), |facts| facts.push(1));
        let observed = memory.get(&KEY, &incarnation("u"));
        notes.note(&KEY, &incarnation("u"), |facts| facts.push(2));
        assert_eq!(*observed, [1]);
    }
}
