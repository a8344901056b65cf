//! The pods of ours that the watch has seen, by task-instance id.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use longshore_api::airflow::{ANNOTATION_DAG_ID, ANNOTATION_RUN_ID};
use longshore_core::{ObjectRef, Seen};
use longshore_kit::Cache;
use longshore_store::RunKey;
use tokio::sync::watch;
use uuid::Uuid;

use super::decide::{PodPhase, PodView};

/// The kit's cache of our pods, with an index by task-instance id, and how far the watch has come.
///
/// The index follows the facts: a pod leaves it only after the fact of its end is in the inbox. So a pod that is in
/// the index and not in the cache has an end that nobody has decided upon yet, and is `Unknown`.
#[derive(Debug)]
pub(crate) struct PodTable {
    pub(crate) cache: Arc<Cache<Pod>>,
    known: Mutex<Known>,
    moved: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Known {
    /// Namespaces and names of pods by task-instance id.
    pods: BTreeMap<Uuid, BTreeSet<(String, String)>>,
    /// Uids of pods whose log is stored.
    archived: BTreeSet<String>,
    /// Since when the log of a pod cannot be read, by uid.
    unreadable: BTreeMap<String, Timestamp>,
    is_listed: bool,
    is_replayed: bool,
}

impl PodTable {
    pub(crate) fn new() -> Self {
        Self {
            cache: Cache::new(),
            known: Mutex::default(),
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

    /// A pod is there.
    pub(crate) fn insert(&self, ti_id: Uuid, pod: &Pod) {
        self.change(|known| {
            known.pods.entry(ti_id).or_default().insert(name_of(pod));
        });
    }

    /// A pod is gone, and the inbox has the fact.
    pub(crate) fn remove(&self, ti_id: Uuid, pod: &Pod) {
        self.change(|known| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            known.archived.remove(uid);
            known.unreadable.remove(uid);
            let Some(names) = known.pods.get_mut(&ti_id) else {
                return;
            };
            names.remove(&name_of(pod));
            if names.is_empty() {
                known.pods.remove(&ti_id);
            }
        });
    }

    /// The log of this pod is stored.
    pub(crate) fn set_archived(&self, uid: &str) {
        self.change(|known| {
            known.archived.insert(uid.to_owned());
            known.unreadable.remove(uid);
        });
    }

    /// Since when the log of this pod cannot be read.
    pub(crate) fn unreadable_since(&self, uid: &str) -> Option<Timestamp> {
        self.known().unreadable.get(uid).copied()
    }

    /// The log of this pod cannot be read.
    pub(crate) fn set_unreadable(&self, uid: &str, now: Timestamp) {
        self.known().unreadable.entry(uid.to_owned()).or_insert(now);
    }

    /// Where a pod is in its life.
    pub(crate) fn phase(&self, pod: &ObjectRef) -> Option<PodPhase> {
        let seen = self.cache.get(&pod.namespace, &pod.name);
        PodView::of(seen.present()?).map(|view| view.phase)
    }

    /// Whether the log of this pod is stored.
    pub(crate) fn is_archived(&self, uid: Option<&str>) -> bool {
        uid.is_some_and(|uid| self.known().archived.contains(uid))
    }

    /// Whether a run has pods that are still to be dealt with: anything but a failed pod that is kept, its log stored.
    pub(crate) fn is_busy_with(&self, run: &RunKey) -> bool {
        let is_of_run = |pod: &&Arc<Pod>| {
            let annotation = |key| pod.annotations().get(key).map(String::as_str);
            annotation(ANNOTATION_DAG_ID) == Some(&run.dag_id)
                && annotation(ANNOTATION_RUN_ID) == Some(&run.run_id)
        };
        let is_settled = |pod: &Arc<Pod>| {
            let view = PodView::of(pod);
            let is_kept =
                view.is_some_and(|view| view.phase == PodPhase::Failed && !view.is_deleting);
            is_kept && self.is_archived(pod.metadata.uid.as_deref())
        };
        let pods = self.cache.all();
        let mut pods = pods.present().into_iter().flatten().filter(is_of_run);
        !pods.all(is_settled)
    }

    /// The first list is in.
    pub(crate) fn set_listed(&self) {
        self.change(|known| known.is_listed = true);
    }

    /// All events since the stored position have been seen: from now on a pod that is not here does not exist.
    pub(crate) fn set_replayed(&self) {
        self.change(|known| known.is_replayed = true);
    }

    /// Whether all events since the stored position have been seen.
    pub(crate) fn is_replayed(&self) -> bool {
        self.known().is_replayed
    }

    /// Waits for the first list.
    pub(crate) async fn listed(&self) {
        let mut moved = self.moved();
        while !self.known().is_listed {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    /// Changes its value whenever the table changes.
    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// The ids of all task instances that have pods.
    pub(crate) fn ids(&self) -> Vec<Uuid> {
        self.known().pods.keys().copied().collect()
    }

    /// The pods of one try. `wanted` is the name of the pod that its row wants: the kit's live reads put it into the
    /// cache before the watch tells of it.
    pub(crate) fn of(&self, ti_id: &Uuid, wanted: Option<(String, String)>) -> Seen<Vec<PodView>> {
        let mut names = {
            let known = self.known();
            if !known.is_listed {
                return Seen::Unknown("the pods have not been listed yet".to_owned());
            }
            known.pods.get(ti_id).cloned().unwrap_or_default()
        };
        let mut views = Vec::new();
        for (namespace, name) in &names {
            match self.cache.get(namespace, name) {
                Seen::Present(pod) => views.extend(PodView::of(&pod)),
                Seen::Absent => return Seen::Unknown(format!("the end of pod {name} is news")),
                Seen::Unknown(why) => return Seen::Unknown(why),
            }
        }
        if let Some((namespace, name)) = wanted
            && let Seen::Present(pod) = self.cache.get(&namespace, &name)
            && names.insert((namespace, name))
        {
            views.extend(PodView::of(&pod));
        }
        if views.is_empty() {
            Seen::Absent
        } else {
            Seen::Present(views)
        }
    }

    /// Whether a pod with this uid is there.
    pub(crate) fn has(&self, ti_id: &Uuid, uid: &str) -> bool {
        match self.of(ti_id, None) {
            Seen::Present(pods) => pods
                .iter()
                .any(|pod| pod.object.uid.as_deref() == Some(uid)),
            Seen::Absent => false,
            Seen::Unknown(_) => true,
        }
    }
}

fn name_of(pod: &Pod) -> (String, String) {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}
