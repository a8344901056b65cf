//! The objects of one launcher that the watch has seen, by task-instance id.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use kube::ResourceExt;
use longshore_api::airflow::{ANNOTATION_DAG_ID, ANNOTATION_RUN_ID};
use longshore_core::{ObjectRef, Seen};
use longshore_kit::Cache;
use longshore_store::RunKey;
use tokio::sync::watch;
use uuid::Uuid;

use super::{
    decide::{LaunchedPhase, LaunchedView},
    launched::{Launched, view_of},
};

/// How far the watch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Nobody needs it: there is none.
    Idle,
    /// Nothing is seen yet.
    Wanted,
    /// The cluster does not have the kind, so that none of its objects exists.
    Missing,
    /// What exists is seen; what ended since the stored position may not be.
    Listed,
    /// All events since the stored position were seen: what is not seen does not exist.
    Replayed,
}

/// The kit's cache of a launcher's objects, with an index by task-instance id, and how far the watch has come.
///
/// The index follows the facts: an object leaves it only after the fact of its end is in the inbox. So one that is in
/// the index and not in the cache has an end that nobody has decided upon yet, and is `Unknown`.
#[derive(Debug)]
pub(crate) struct LaunchTable<K> {
    pub(crate) cache: Arc<Cache<K>>,
    known: Mutex<Known>,
    moved: watch::Sender<u64>,
}

#[derive(Debug)]
struct Known {
    /// Namespaces and names of objects by task-instance id.
    objects: BTreeMap<Uuid, BTreeSet<(String, String)>>,
    /// Uids of objects whose log is stored.
    archived: BTreeSet<String>,
    /// Since when the log of an object cannot be read, by uid.
    unreadable: BTreeMap<String, Timestamp>,
    stage: Stage,
}

impl<K: Launched> LaunchTable<K> {
    pub(crate) fn new(stage: Stage) -> Self {
        Self {
            cache: Cache::new(),
            known: Mutex::new(Known {
                objects: BTreeMap::new(),
                archived: BTreeSet::new(),
                unreadable: BTreeMap::new(),
                stage,
            }),
            moved: watch::Sender::new(0),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known());
        self.moved.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// An object is there.
    pub(crate) fn insert(&self, ti_id: Uuid, object: &K) {
        self.change(|known| {
            known
                .objects
                .entry(ti_id)
                .or_default()
                .insert(name_of(object));
        });
    }

    /// An object is gone, and the inbox has the fact.
    pub(crate) fn remove(&self, ti_id: Uuid, object: &K) {
        self.change(|known| {
            let uid = object.meta().uid.as_deref().unwrap_or_default();
            known.archived.remove(uid);
            known.unreadable.remove(uid);
            let Some(names) = known.objects.get_mut(&ti_id) else {
                return;
            };
            names.remove(&name_of(object));
            if names.is_empty() {
                known.objects.remove(&ti_id);
            }
        });
    }

    /// The log of this object is stored.
    pub(crate) fn set_archived(&self, uid: &str) {
        self.change(|known| {
            known.archived.insert(uid.to_owned());
            known.unreadable.remove(uid);
        });
    }

    /// Since when the log of this object cannot be read.
    pub(crate) fn unreadable_since(&self, uid: &str) -> Option<Timestamp> {
        self.known().unreadable.get(uid).copied()
    }

    /// The log of this object cannot be read.
    pub(crate) fn set_unreadable(&self, uid: &str, now: Timestamp) {
        self.known().unreadable.entry(uid.to_owned()).or_insert(now);
    }

    /// Where an object is in its life.
    pub(crate) fn phase(&self, object: &ObjectRef) -> Option<LaunchedPhase> {
        let seen = self.cache.get(&object.namespace, &object.name);
        seen.present().map(|object| object.phase())
    }

    /// Whether the log of this object is stored.
    pub(crate) fn is_archived(&self, uid: Option<&str>) -> bool {
        uid.is_some_and(|uid| self.known().archived.contains(uid))
    }

    /// Whether a run has objects that are still to be dealt with: anything but a failed one that is kept, its log
    /// stored.
    pub(crate) fn is_busy_with(&self, run: &RunKey) -> bool {
        let is_of_run = |object: &&Arc<K>| {
            let annotation = |key| object.annotations().get(key).map(String::as_str);
            annotation(ANNOTATION_DAG_ID) == Some(&run.dag_id)
                && annotation(ANNOTATION_RUN_ID) == Some(&run.run_id)
        };
        let is_settled = |object: &Arc<K>| {
            let view = view_of(&**object);
            let is_kept =
                view.is_some_and(|view| view.phase == LaunchedPhase::Failed && !view.is_deleting);
            is_kept && self.is_archived(object.meta().uid.as_deref())
        };
        let all = self.cache.all();
        let mut all = all.present().into_iter().flatten().filter(is_of_run);
        !all.all(is_settled)
    }

    /// How far the watch has come.
    pub(crate) fn stage(&self) -> Stage {
        self.known().stage
    }

    /// The watch has come this far. It never goes back, but for a kind that was missing.
    pub(crate) fn reach(&self, stage: Stage) {
        self.change(|known| known.stage = known.stage.max(stage));
    }

    /// Waits until the watch has come this far.
    pub(crate) async fn reached(&self, stage: Stage) {
        let mut moved = self.moved();
        while self.stage() < stage {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    /// Changes its value whenever the table changes.
    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// The ids of all task instances that have objects.
    pub(crate) fn ids(&self) -> Vec<Uuid> {
        self.known().objects.keys().copied().collect()
    }

    /// The objects of one try. `wanted` is the name of the one that its row wants: the kit's live reads put it into the
    /// cache before the watch tells of it.
    pub(crate) fn of(
        &self,
        ti_id: &Uuid,
        wanted: Option<(String, String)>,
    ) -> Seen<Vec<LaunchedView>> {
        let mut names = {
            let known = self.known();
            match known.stage {
                Stage::Idle | Stage::Missing => return Seen::Absent,
                Stage::Wanted => {
                    let plural = K::LAUNCHER.resource().plural;
                    return Seen::Unknown(format!("the {plural} have not been listed yet"));
                }
                Stage::Listed | Stage::Replayed => {}
            }
            known.objects.get(ti_id).cloned().unwrap_or_default()
        };
        let mut views = Vec::new();
        for (namespace, name) in &names {
            match self.cache.get(namespace, name) {
                Seen::Present(object) => views.extend(view_of(&*object)),
                Seen::Absent => return Seen::Unknown(format!("the end of {name} is news")),
                Seen::Unknown(why) => return Seen::Unknown(why),
            }
        }
        if let Some((namespace, name)) = wanted
            && let Seen::Present(object) = self.cache.get(&namespace, &name)
            && names.insert((namespace, name))
        {
            views.extend(view_of(&*object));
        }
        if views.is_empty() {
            Seen::Absent
        } else {
            Seen::Present(views)
        }
    }

    /// Whether the object with this uid is there.
    pub(crate) fn has(&self, ti_id: &Uuid, uid: &str) -> bool {
        match self.of(ti_id, None) {
            Seen::Present(views) => views
                .iter()
                .any(|view| view.object.uid.as_deref() == Some(uid)),
            Seen::Absent => false,
            Seen::Unknown(_) => true,
        }
    }
}

fn name_of<K: Launched>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}
