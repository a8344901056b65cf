//! The tables of both launchers as one.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{ObjectRef, Seen};
use longshore_kit::CacheFeed;
use longshore_plugins::TASK_ACTION;
use longshore_store::{RunKey, TaskInstance};
use tokio::sync::watch;
use uuid::Uuid;

use super::{
    decide::{LaunchedPhase, LaunchedView},
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
}

impl Tables {
    pub(crate) fn new() -> Self {
        Self {
            pods: LaunchTable::new(Stage::Wanted),
            actions: LaunchTable::new(Stage::Idle),
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

    /// Where an object is in its life.
    pub(crate) fn phase(&self, object: &ObjectRef) -> Option<LaunchedPhase> {
        if is_action(object) {
            self.actions.phase(object)
        } else {
            self.pods.phase(object)
        }
    }

    /// Whether this object is there.
    pub(crate) fn has(&self, ti_id: &Uuid, object: &ObjectRef) -> bool {
        let uid = object.uid.as_deref().unwrap_or_default();
        if is_action(object) {
            self.actions.has(ti_id, uid)
        } else {
            self.pods.has(ti_id, uid)
        }
    }

    /// Whether the log of this object is stored.
    pub(crate) fn is_archived(&self, object: &ObjectRef) -> bool {
        let uid = object.uid.as_deref();
        if is_action(object) {
            self.actions.is_archived(uid)
        } else {
            self.pods.is_archived(uid)
        }
    }

    /// The log of this object is stored.
    pub(crate) fn set_archived(&self, object: &ObjectRef) {
        let uid = object.uid.as_deref().unwrap_or_default();
        if is_action(object) {
            self.actions.set_archived(uid);
        } else {
            self.pods.set_archived(uid);
        }
    }

    /// Since when the log of this object cannot be read.
    pub(crate) fn unreadable_since(&self, object: &ObjectRef) -> Option<Timestamp> {
        let uid = object.uid.as_deref().unwrap_or_default();
        if is_action(object) {
            self.actions.unreadable_since(uid)
        } else {
            self.pods.unreadable_since(uid)
        }
    }

    /// The log of this object cannot be read.
    pub(crate) fn set_unreadable(&self, object: &ObjectRef, now: Timestamp) {
        let uid = object.uid.as_deref().unwrap_or_default();
        if is_action(object) {
            self.actions.set_unreadable(uid, now);
        } else {
            self.pods.set_unreadable(uid, now);
        }
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
        self.pods.is_busy_with(run) || self.actions.is_busy_with(run)
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

fn is_action(object: &ObjectRef) -> bool {
    object.resource == TASK_ACTION
}
