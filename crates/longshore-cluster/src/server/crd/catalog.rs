//! The compiled form of every stored definition, and the objects of its resource.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use super::definition::Definition;
use crate::server::{
    hub::{Collection, Key, Object, lock},
    registry::Served,
};

/// A definition at one revision, and the objects of its resource.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) revision: u64,
    pub(super) definition: Arc<Definition>,
    pub(super) instances: Arc<Collection>,
}

/// What the stored definitions serve. A cache: everything in it follows from the objects.
pub(crate) struct Catalog {
    definitions: Arc<Collection>,
    entries: Mutex<BTreeMap<Key, Entry>>,
    window_length: usize,
    /// Held while the status of definitions is worked out, so that names are given out one by one.
    pub(super) settling: tokio::sync::Mutex<()>,
}

impl Catalog {
    /// A catalog of the definitions in a collection. Each resource remembers `window_length` events.
    pub(crate) fn new(definitions: Arc<Collection>, window_length: usize) -> Catalog {
        Catalog {
            definitions,
            entries: Mutex::default(),
            window_length,
            settling: tokio::sync::Mutex::default(),
        }
    }

    /// The collection of the definitions themselves.
    pub(super) fn definitions(&self) -> &Arc<Collection> {
        &self.definitions
    }

    /// A custom resource, if there is such a one.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Served> {
        let key = Key::new(None, &format!("{plural}.{group}"));
        let entry = self.entry(&*self.definitions.get(&key)?);
        entry
            .served()
            .find(|served| served.resource.version == version)
    }

    /// Every custom resource that is served, in each of its versions.
    pub(crate) fn served(&self) -> Vec<Served> {
        let entries = self.entries();
        entries.iter().flat_map(Entry::served).collect()
    }

    /// The objects of every definition, also of those that are not served.
    pub(crate) fn collections(&self) -> Vec<Arc<Collection>> {
        self.entries()
            .into_iter()
            .map(|entry| entry.instances)
            .collect()
    }

    /// Every definition.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let (objects, _) = self.definitions.snapshot(0);
        objects.values().map(|object| self.entry(object)).collect()
    }

    /// The compiled form of a definition.
    fn entry(&self, object: &Object) -> Entry {
        let known = lock(&self.entries).get(&object.key).cloned();
        if let Some(entry) = &known
            && entry.revision == object.revision
        {
            return entry.clone();
        }
        let before = known.as_ref().map(|entry| &*entry.definition);
        let definition = Definition::read(&object.value(), object.revision, before);
        let stored = Arc::clone(&definition.stored);
        let mut entries = lock(&self.entries);
        // The objects are those of the first call of this function; a reader may have been faster.
        let instances = match entries.get(&object.key) {
            Some(entry) if entry.revision > object.revision => return entry.clone(),
            Some(entry) if entry.definition.uid == definition.uid => {
                Arc::new(entry.instances.with_resource(stored))
            }
            // Events before the definition were of another one, if there were any.
            Some(_) | None => {
                Arc::new(Collection::new(stored, self.window_length).starting_at(object.revision))
            }
        };
        let entry = Entry {
            revision: object.revision,
            definition: Arc::new(definition),
            instances,
        };
        entries.insert(object.key.clone(), entry.clone());
        entry
    }

    /// Forgets a definition that is gone; watches of its objects end.
    pub(super) fn forget(&self, key: &Key) {
        if let Some(entry) = lock(&self.entries).remove(key) {
            entry.instances.close();
        }
    }
}

impl Entry {
    fn served(&self) -> impl Iterator<Item = Served> + '_ {
        let is_established = self.definition.is_established();
        self.definition
            .versions
            .iter()
            .filter(move |(_, is_served)| is_established && *is_served)
            .map(|(resource, _)| Served {
                resource: Arc::clone(resource),
                collection: Arc::clone(&self.instances),
            })
    }
}
