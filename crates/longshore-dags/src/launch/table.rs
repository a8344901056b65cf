//! The objects of one launcher that the watch has seen, by task-instance id.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::ResourceExt;
use longshore_api::airflow::{ANNOTATION_DAG_ID, ANNOTATION_RUN_ID};
use longshore_core::{Seen, UnknownCause};
use longshore_kit::Cache;
use longshore_store::{RunKey, TaskInstance};
use tokio::sync::watch;
use uuid::Uuid;

use super::{
    decide::{LaunchedPhase, LaunchedView},
    launched::{Launched, launch_of, view_of},
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
    objects: BTreeMap<Uuid, Objects>,
    stage: Stage,
}

/// The objects of one try.
#[derive(Debug, Default)]
struct Objects {
    /// Their namespaces and names.
    names: BTreeSet<(String, String)>,
    /// The row of the try, once its run is over and has left the board.
    ended: Option<Arc<TaskInstance>>,
}

impl<K: Launched> LaunchTable<K> {
    pub(crate) fn new(stage: Stage) -> Self {
        Self {
            cache: Cache::new(),
            known: Mutex::new(Known {
                objects: BTreeMap::new(),
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
            let objects = known.objects.entry(ti_id).or_default();
            objects.names.insert(name_of(object));
        });
    }

    /// An object is gone, and the inbox has the fact.
    pub(crate) fn remove(&self, ti_id: Uuid, object: &K) {
        self.change(|known| {
            let Some(objects) = known.objects.get_mut(&ti_id) else {
                return;
            };
            objects.names.remove(&name_of(object));
            if objects.names.is_empty() {
                known.objects.remove(&ti_id);
            }
        });
    }

    /// A run is over: those of its rows that have objects are kept for as long as they have, so that what becomes of the
    /// objects needs no look into the store.
    pub(crate) fn run_ended<'a>(&self, rows: impl Iterator<Item = &'a Arc<TaskInstance>>) {
        let mut known = self.known();
        for row in rows {
            if let Some(objects) = known.objects.get_mut(&row.id) {
                objects.ended = Some(Arc::clone(row));
            }
        }
    }

    /// The row of a try whose run is over, where it is at hand.
    pub(crate) fn ended(&self, ti_id: &Uuid) -> Option<Arc<TaskInstance>> {
        self.known().objects.get(ti_id)?.ended.clone()
    }

    /// The rows of runs that were over may have changed.
    pub(crate) fn forget_ended(&self, is_changed: impl Fn(&RunKey) -> bool) {
        for objects in self.known().objects.values_mut() {
            objects.ended.take_if(|row| is_changed(&row.key.run));
        }
    }

    /// Whether a run has objects that are still to be dealt with: anything but a failed one that is kept, its log
    /// stored.
    pub(crate) fn is_busy_with(
        &self,
        run: &RunKey,
        is_log_kept: impl Fn(&Uuid, &str) -> bool,
    ) -> bool {
        let is_of_run = |object: &&Arc<K>| {
            let annotation = |key| object.annotations().get(key).map(String::as_str);
            annotation(ANNOTATION_DAG_ID) == Some(&run.dag_id)
                && annotation(ANNOTATION_RUN_ID) == Some(&run.run_id)
        };
        let is_settled = |object: &Arc<K>| {
            let view = view_of(&**object);
            let is_kept =
                view.is_some_and(|view| view.phase == LaunchedPhase::Failed && !view.is_deleting);
            let uid = object.meta().uid.as_deref().unwrap_or_default();
            is_kept && launch_of(&**object).is_some_and(|(ti_id, _)| is_log_kept(&ti_id, uid))
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

    /// Something of its objects has changed that is not in the table.
    pub(crate) fn moves(&self) {
        self.change(|_| {});
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
                    return Seen::unknown(
                        UnknownCause::NotListedYet,
                        format!("the {plural} have not been listed yet"),
                    );
                }
                Stage::Listed | Stage::Replayed => {}
            }
            let objects = known.objects.get(ti_id);
            objects.map(|known| known.names.clone()).unwrap_or_default()
        };
        let mut views = Vec::new();
        for (namespace, name) in &names {
            match self.cache.get(namespace, name) {
                Seen::Present(object) => views.extend(view_of(&*object)),
                Seen::Absent => {
                    return Seen::unknown(
                        UnknownCause::Behind,
                        format!("{name} ended, and the scheduler has not recorded it yet"),
                    );
                }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{pods::launched::LaunchedPod, test_rows::queued};

    fn pod(name: &str) -> LaunchedPod {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "d", "uid": name}}))
            .unwrap()
    }

    fn row(id: Uuid) -> Arc<TaskInstance> {
        let run = RunKey {
            dag_id: "dag".to_owned(),
            run_id: "run".to_owned(),
        };
        Arc::new(queued(id, &run, "task"))
    }

    #[test]
    fn rows_of_ended_runs_are_at_hand_until_their_last_object_is_gone() {
        let table = LaunchTable::new(Stage::Listed);
        let [with, without] = [Uuid::new_v4(), Uuid::new_v4()];
        table.insert(with, &pod("a"));
        table.insert(with, &pod("b"));
        table.run_ended([row(with), row(without)].iter());
        assert!(table.ended(&without).is_none(), "nobody would ever ask");
        table.remove(with, &pod("a"));
        assert!(table.ended(&with).is_some());
        table.remove(with, &pod("b"));
        assert!(table.ended(&with).is_none());
    }

    #[test]
    fn rows_of_a_run_that_goes_on_are_not_those_at_hand() {
        let table = LaunchTable::new(Stage::Listed);
        let id = Uuid::new_v4();
        table.insert(id, &pod("a"));
        table.run_ended([row(id)].iter());
        table.forget_ended(|run| run.run_id == "another");
        assert!(table.ended(&id).is_some());
        table.forget_ended(|run| run.run_id == "run");
        assert!(table.ended(&id).is_none());
    }
}
