//! The objects that tries were launched as, by task-instance id, and how far the watches have come.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::ResourceExt;
use longshore_api::airflow::{ANNOTATION_DAG_ID, ANNOTATION_RUN_ID, ANNOTATION_TASK_ID};
use longshore_core::{Incarnation, ObjectRef, Seen, UnknownCause};
use longshore_kit::{Cache, CacheFeed, Memory, Notes};
use longshore_store::{ArchivedTry, RunKey, TaskInstance};
use tokio::sync::watch;
use uuid::Uuid;

use super::{
    decide::{FailedObject, LaunchedPhase, LaunchedView, LogNote, LogNotes},
    launched::{Launched, launch_of, view_of},
};
use crate::{
    actions::TaskAction, model::Launcher, pods::launched::LaunchedPod, scheduler::board::ActiveRun,
};

/// How far the watch of a launcher has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// No task needs the kind: there is no watch.
    Idle,
    /// The watch has listed nothing yet.
    Wanted,
    /// The cluster does not have the kind, so that none of its objects exists.
    Missing,
    /// What exists is seen; what ended since the stored position may not be.
    Listed,
    /// All events since the stored position were seen: what is not seen does not exist.
    Replayed,
}

/// The kit's caches of the objects of both launchers, with one index by task-instance id.
///
/// The index follows the facts: an object leaves it only after the fact of its end is in the inbox. So the scheduler has
/// not decided yet upon the end of an object that is in the index and not in its cache; such an object is `Unknown`.
#[derive(Debug)]
pub(crate) struct LaunchTable {
    pub(crate) pods: Arc<Cache<LaunchedPod>>,
    /// Followed from the first task with a plugin on.
    pub(crate) actions: Arc<Cache<TaskAction>>,
    known: Mutex<TableState>,
    /// How many failed objects are kept.
    keep_failed: usize,
    moved: watch::Sender<u64>,
    log_memory: Memory<Uuid, LogNotes>,
    log_notes: Notes<Uuid, LogNotes>,
}

#[derive(Debug)]
struct TableState {
    tries: BTreeMap<Uuid, Launches>,
    /// The objects that have failed and are not being deleted, with their tries.
    failed: BTreeMap<FailedObject, Uuid>,
    /// What keeps tries from their start.
    pending: BTreeMap<Uuid, String>,
    pods: Stage,
    actions: Stage,
}

/// What one try was launched as. It has one object at least.
#[derive(Debug, Default)]
struct Launches {
    objects: BTreeSet<Name>,
    /// The row of the try, once it has left the board.
    ended: Option<Arc<TaskInstance>>,
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) launcher: Launcher,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What is asked and remembered of a try's objects is bound to its id, which no other try has.
pub(crate) fn incarnation_of(ti_id: &Uuid) -> Incarnation {
    Incarnation::of(ti_id.to_string())
}

impl TableState {
    fn stage(&self, launcher: Launcher) -> Stage {
        match launcher {
            Launcher::Pod => self.pods,
            Launcher::TaskAction => self.actions,
        }
    }

    fn newest_surplus(&self, keep_failed: usize) -> Option<(&FailedObject, &Uuid)> {
        self.failed.iter().rev().nth(keep_failed)
    }
}

fn failed_object<K: Launched>(object: &K) -> FailedObject {
    let created_at = object.meta().creation_timestamp.as_ref();
    let uid = object.uid().unwrap_or_default();
    (created_at.map(|time| time.0), uid)
}

impl Name {
    fn of<K: Launched>(object: &K) -> Self {
        Self {
            launcher: K::LAUNCHER,
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl LaunchTable {
    /// Nothing is seen yet. Pods are wanted, TaskActions are not.
    pub(crate) fn new(keep_failed: usize) -> Self {
        let (log_memory, log_notes) = Memory::new();
        Self {
            pods: Cache::new(),
            actions: Cache::new(),
            known: Mutex::new(TableState {
                tries: BTreeMap::new(),
                failed: BTreeMap::new(),
                pending: BTreeMap::new(),
                pods: Stage::Wanted,
                actions: Stage::Idle,
            }),
            keep_failed,
            moved: watch::Sender::new(0),
            log_memory,
            log_notes,
        }
    }

    fn known(&self) -> MutexGuard<'_, TableState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut TableState)) {
        change(&mut self.known());
        self.moved.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// An object is there. Returns the try of a failed object that is one too many because of it, if there is one.
    pub(crate) fn insert<K: Launched>(&self, ti_id: Uuid, object: &K) -> Option<Uuid> {
        let mut surplus = None;
        self.change(|known| {
            let launches = known.tries.entry(ti_id).or_default();
            launches.objects.insert(Name::of(object));
            let is_deleting = object.meta().deletion_timestamp.is_some();
            if object.phase() != LaunchedPhase::Failed || is_deleting {
                known.failed.remove(&failed_object(object));
            } else if known.failed.insert(failed_object(object), ti_id).is_none() {
                surplus = known.newest_surplus(self.keep_failed).map(|(_, id)| *id);
            }
        });
        surplus
    }

    /// Remembers what keeps a try from its start. Returns whether that is new.
    pub(crate) fn note_pending(&self, ti_id: Uuid, message: Option<&str>) -> bool {
        let mut known = self.known();
        let before = match message {
            Some(message) => known.pending.insert(ti_id, message.to_owned()),
            None => known.pending.remove(&ti_id),
        };
        before.as_deref() != message
    }

    /// What keeps a try from its start.
    pub(crate) fn pending(&self, ti_id: &Uuid) -> Option<String> {
        self.known().pending.get(ti_id).cloned()
    }

    /// The newest of the failed objects that are too many.
    pub(crate) fn newest_surplus(&self) -> Option<FailedObject> {
        let known = self.known();
        let (newest, _) = known.newest_surplus(self.keep_failed)?;
        Some(newest.clone())
    }

    /// An object is gone, and the inbox has the fact.
    pub(crate) fn remove<K: Launched>(&self, ti_id: Uuid, object: &K) {
        self.change(|known| {
            known.failed.remove(&failed_object(object));
            if let Some(launches) = known.tries.get_mut(&ti_id) {
                launches.objects.remove(&Name::of(object));
                if launches.objects.is_empty() {
                    known.tries.remove(&ti_id);
                    known.pending.remove(&ti_id);
                }
            }
        });
    }

    /// Keeps the final rows of these tries, where they have objects. Called before the board has the tries that follow.
    pub(crate) fn tries_ended(&self, tries: &[ArchivedTry]) {
        let mut known = self.known();
        for ArchivedTry { task_instance } in tries {
            if let Some(launches) = known.tries.get_mut(&task_instance.id) {
                launches.ended = Some(Arc::new(task_instance.clone()));
            }
        }
    }

    /// A run is over: those of its rows that have objects are kept for as long as they have, so that what becomes of the
    /// objects needs no look into the store.
    pub(crate) fn run_ended(&self, active: &ActiveRun) {
        let mut known = self.known();
        for row in active.tasks.values() {
            if let Some(launches) = known.tries.get_mut(&row.id) {
                launches.ended = Some(Arc::clone(row));
            }
        }
    }

    /// The rows were read again after a conflict: those that are not on the board must be read from the store again.
    pub(crate) fn rows_reloaded(&self) {
        for launches in self.known().tries.values_mut() {
            launches.ended = None;
        }
    }

    /// The row of a try that has left the board, where it is at hand.
    pub(crate) fn ended(&self, ti_id: &Uuid) -> Option<Arc<TaskInstance>> {
        self.known().tries.get(ti_id)?.ended.clone()
    }

    /// What the runner has to keep in step with its keys.
    pub(crate) fn log_memory(&self) -> &Memory<Uuid, LogNotes> {
        &self.log_memory
    }

    /// What is remembered of the logs of a try's objects.
    pub(crate) fn log_notes(&self, ti_id: &Uuid) -> Arc<LogNotes> {
        self.log_memory.get(ti_id, &incarnation_of(ti_id))
    }

    /// Remembers what came of the copy of a log.
    pub(crate) fn note_log(&self, ti_id: &Uuid, object: &ObjectRef, note: &LogNote) {
        let uid = object.uid.clone().unwrap_or_default();
        self.log_notes.note(ti_id, &incarnation_of(ti_id), |notes| {
            notes.insert(uid, note.clone());
        });
        self.change(|_| {});
    }

    /// Whether a run has objects that are still to be dealt with: anything but a failed one that is kept, its log
    /// stored.
    pub(crate) fn is_busy_with(&self, run: &RunKey) -> bool {
        let (pods, actions) = (self.pods.all(), self.actions.all());
        let mut pods = pods.present().into_iter().flatten();
        let mut actions = actions.present().into_iter().flatten();
        pods.any(|it| self.is_unsettled(&**it, run))
            || actions.any(|it| self.is_unsettled(&**it, run))
    }

    /// The tasks of a run that has such objects.
    pub(crate) fn busy_tasks(&self, run: &RunKey) -> BTreeSet<String> {
        let (pods, actions) = (self.pods.all(), self.actions.all());
        let pods = pods.present().into_iter().flatten();
        let pods = pods.filter(|it| self.is_unsettled(&***it, run));
        let actions = actions.present().into_iter().flatten();
        let actions = actions.filter(|it| self.is_unsettled(&***it, run));
        let pods = pods.map(|pod| pod.annotations());
        let actions = actions.map(|action| action.annotations());
        let tasks = pods.chain(actions).map(|it| it.get(ANNOTATION_TASK_ID));
        tasks.flatten().cloned().collect()
    }

    fn is_unsettled<K: Launched>(&self, object: &K, run: &RunKey) -> bool {
        let annotation = |key| object.annotations().get(key).map(String::as_str);
        let is_of_run = annotation(ANNOTATION_DAG_ID) == Some(&run.dag_id)
            && annotation(ANNOTATION_RUN_ID) == Some(&run.run_id);
        let is_log_kept = |view: &LaunchedView| {
            let notes = launch_of(object).map(|(ti_id, _)| self.log_notes(&ti_id));
            let note = notes.and_then(|notes| notes.get(view.object.uid.as_ref()?).cloned());
            note.is_some_and(|note| note.is_kept)
        };
        let is_settled = || {
            view_of(object).is_some_and(|view| {
                let is_kept = view.phase == LaunchedPhase::Failed && !view.is_deleting;
                is_kept && is_log_kept(&view)
            })
        };
        is_of_run && !is_settled()
    }

    /// How far the watch has come.
    pub(crate) fn stage(&self, launcher: Launcher) -> Stage {
        self.known().stage(launcher)
    }

    /// The watch has come this far. It never goes back, but for a kind that was missing.
    pub(crate) fn reach(&self, launcher: Launcher, stage: Stage) {
        self.change(|known| {
            let reached = match launcher {
                Launcher::Pod => &mut known.pods,
                Launcher::TaskAction => &mut known.actions,
            };
            *reached = stage.max(*reached);
        });
    }

    /// Waits until the watch has come this far.
    pub(crate) async fn reached(&self, launcher: Launcher, stage: Stage) {
        let mut moved = self.moved.subscribe();
        while self.stage(launcher) < stage {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    /// Whether the cluster does not have the kind of this launcher.
    pub(crate) fn is_missing(&self, launcher: Launcher) -> bool {
        self.stage(launcher) == Stage::Missing
    }

    /// Whether an object of this launcher that is not seen does not exist.
    pub(crate) fn is_replayed(&self, launcher: Launcher) -> bool {
        matches!(self.stage(launcher), Stage::Replayed | Stage::Missing)
    }

    /// Reports when the table or a cache has changed.
    pub(crate) fn moves(&self) -> Moves {
        Moves([
            self.moved.subscribe(),
            self.pods.changes(),
            self.actions.changes(),
        ])
    }

    /// Whether a try has objects.
    pub(crate) fn has_objects(&self, ti_id: &Uuid) -> bool {
        self.known().tries.contains_key(ti_id)
    }

    /// The ids of all task instances that have objects of this launcher.
    pub(crate) fn ids(&self, launcher: Launcher) -> Vec<Uuid> {
        let is_its = |launches: &Launches| {
            let mut objects = launches.objects.iter();
            objects.any(|name| name.launcher == launcher)
        };
        let known = self.known();
        let tries = known.tries.iter().filter(|(_, tries)| is_its(tries));
        tries.map(|(ti_id, _)| *ti_id).collect()
    }

    /// The objects of one try. `wanted` is the name of the one that its row wants: the kit's live reads put it into the
    /// cache before the watch reports it.
    pub(crate) fn of(&self, ti_id: &Uuid, wanted: Option<Name>) -> Seen<Vec<LaunchedView>> {
        self.objects(&[Launcher::Pod, Launcher::TaskAction], ti_id, wanted)
    }

    /// Whether the object with this uid is there.
    pub(crate) fn has(&self, launcher: Launcher, ti_id: &Uuid, uid: &str) -> bool {
        match self.objects(&[launcher], ti_id, None) {
            Seen::Present(views) => views
                .iter()
                .any(|view| view.object.uid.as_deref() == Some(uid)),
            Seen::Absent => false,
            Seen::Unknown(_) => true,
        }
    }

    /// The objects of these launchers.
    fn objects(
        &self,
        launchers: &[Launcher],
        ti_id: &Uuid,
        wanted: Option<Name>,
    ) -> Seen<Vec<LaunchedView>> {
        let (names, wanted) = {
            let known = self.known();
            let stages = launchers.iter().map(|it| (it, known.stage(*it)));
            if let Some((launcher, _)) = stages.clone().find(|(_, stage)| *stage == Stage::Wanted) {
                let plural = launcher.resource().plural;
                return Seen::unknown(
                    UnknownCause::NotListedYet,
                    format!("the {plural} have not been listed yet"),
                );
            }
            let mut followed = stages.filter(|(_, stage)| *stage >= Stage::Listed);
            let launches = known.tries.get(ti_id);
            let names = launches.into_iter().flat_map(|it| &it.objects);
            let names = names.filter(|name| launchers.contains(&name.launcher));
            let names: BTreeSet<Name> = names.cloned().collect();
            let wanted = wanted
                .filter(|it| followed.any(|(launcher, _)| *launcher == it.launcher))
                .filter(|it| !names.contains(it));
            (names, wanted)
        };
        let mut views = Vec::new();
        for name in &names {
            match self.view(name) {
                Seen::Present(view) => views.extend(view),
                Seen::Absent => {
                    let name = &name.name;
                    return Seen::unknown(
                        UnknownCause::Behind,
                        format!("{name} ended, and the scheduler has not recorded it yet"),
                    );
                }
                Seen::Unknown(why) => return Seen::Unknown(why),
            }
        }
        if let Some(Seen::Present(view)) = wanted.map(|name| self.view(&name)) {
            views.extend(view);
        }
        if views.is_empty() {
            Seen::Absent
        } else {
            Seen::Present(views)
        }
    }

    /// What its cache has of an object; nothing in it where it is not ours.
    fn view(&self, name: &Name) -> Seen<Option<LaunchedView>> {
        fn of<K: Launched>(cache: &Cache<K>, name: &Name) -> Seen<Option<LaunchedView>> {
            let object = cache.get(&name.namespace, &name.name);
            object.map(|object| view_of(&*object))
        }
        match name.launcher {
            Launcher::Pod => of(&self.pods, name),
            Launcher::TaskAction => of(&self.actions, name),
        }
    }
}

/// Reports the changes of the table and of its caches.
pub(crate) struct Moves([watch::Receiver<u64>; 3]);

impl Moves {
    /// Waits for the next change. Returns whether there can be another change.
    pub(crate) async fn next(&mut self) -> bool {
        let changes = self.0.iter_mut().map(|moved| Box::pin(moved.changed()));
        futures::future::select_all(changes).await.0.is_ok()
    }
}

#[cfg(test)]
mod tests;
