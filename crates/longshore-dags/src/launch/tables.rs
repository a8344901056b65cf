//! The tables of both launchers as one.

use std::sync::Arc;

use longshore_core::{Incarnation, ObjectRef, Seen};
use longshore_kit::{CacheFeed, Memory, Notes};
use longshore_store::{RunKey, TaskInstance};
use tokio::sync::watch;
use uuid::Uuid;

use super::{
    decide::{LaunchedView, LogNote, LogNotes},
    table::{LaunchTable, Stage},
};
use crate::{
    actions::TaskAction, model::Launcher, pods::launched::LaunchedPod, scheduler::board::ActiveRun,
};

/// Everything that tries were launched as.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) pods: LaunchTable<LaunchedPod>,
    /// Followed from the first task with a plugin on.
    pub(crate) actions: LaunchTable<TaskAction>,
    log_memory: Memory<Uuid, LogNotes>,
    log_notes: Notes<Uuid, LogNotes>,
}

/// What is asked and remembered of a try's objects is bound to its id, which no other try has.
pub(crate) fn incarnation_of(ti_id: &Uuid) -> Incarnation {
    Incarnation::of(ti_id.to_string())
}

impl Tables {
    pub(crate) fn new() -> Self {
        let (log_memory, log_notes) = Memory::new();
        Self {
            pods: LaunchTable::new(Stage::Wanted),
            actions: LaunchTable::new(Stage::Idle),
            log_memory,
            log_notes,
        }
    }

    /// The objects of one try. `wanted` is the name of the one that its row wants: the kit's live reads put it into the
    /// cache before the watch tells of it.
    pub(crate) fn of(
        &self,
        ti_id: &Uuid,
        wanted: Option<(Launcher, (String, String))>,
    ) -> Seen<Vec<LaunchedView>> {
        let (mut pod, mut action) = (None, None);
        match wanted {
            Some((Launcher::Pod, name)) => pod = Some(name),
            Some((Launcher::TaskAction, name)) => action = Some(name),
            None => {}
        }
        let pods = self.pods.of(ti_id, pod);
        match (pods, self.actions.of(ti_id, action)) {
            (Seen::Unknown(why), _) | (_, Seen::Unknown(why)) => Seen::Unknown(why),
            (Seen::Absent, views) | (views, Seen::Absent) => views,
            (Seen::Present(mut views), Seen::Present(actions)) => {
                views.extend(actions);
                Seen::Present(views)
            }
        }
    }

    /// What keeps a launcher from working.
    pub(crate) fn is_missing(&self, launcher: Launcher) -> bool {
        self.stage(launcher) == Stage::Missing
    }

    /// Whether an object of this launcher that is not seen does not exist.
    pub(crate) fn is_replayed(&self, launcher: Launcher) -> bool {
        matches!(self.stage(launcher), Stage::Replayed | Stage::Missing)
    }

    fn stage(&self, launcher: Launcher) -> Stage {
        match launcher {
            Launcher::Pod => self.pods.stage(),
            Launcher::TaskAction => self.actions.stage(),
        }
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
        self.pods.moves();
    }

    /// This run is over.
    pub(crate) fn run_ended(&self, active: &ActiveRun) {
        self.pods.run_ended(active.tasks.values());
        self.actions.run_ended(active.tasks.values());
    }

    /// The row of a try whose run is over, where it is at hand.
    pub(crate) fn ended(&self, ti_id: &Uuid) -> Option<Arc<TaskInstance>> {
        self.pods.ended(ti_id).or_else(|| self.actions.ended(ti_id))
    }

    /// The rows of runs that were over may have changed.
    pub(crate) fn forget_ended(&self, is_changed: impl Fn(&RunKey) -> bool) {
        self.pods.forget_ended(&is_changed);
        self.actions.forget_ended(&is_changed);
    }

    /// Whether a run has objects that are still to be dealt with.
    pub(crate) fn is_busy_with(&self, run: &RunKey) -> bool {
        let is_log_kept = |ti_id: &Uuid, uid: &str| {
            let notes = self.log_notes(ti_id);
            notes.get(uid).is_some_and(|note| note.is_kept)
        };
        self.pods.is_busy_with(run, is_log_kept) || self.actions.is_busy_with(run, is_log_kept)
    }

    /// Says when something has changed.
    pub(crate) fn moves(&self) -> Moves {
        Moves([
            self.pods.moved(),
            self.pods.cache.changes(),
            self.actions.moved(),
            self.actions.cache.changes(),
        ])
    }
}

/// Who waits for a change.
pub(crate) struct Moves([watch::Receiver<u64>; 4]);

impl Moves {
    /// Waits for the next change. Answers whether there can be another one.
    pub(crate) async fn next(&mut self) -> bool {
        let changes = self.0.iter_mut().map(|moved| Box::pin(moved.changed()));
        futures::future::select_all(changes).await.0.is_ok()
    }
}
