//! What the parts of one scheduler share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use longshore_kit::Clock;
use longshore_store::{Heartbeats, RunKey, RunStore, StoreError, TaskInstance};
use tokio::sync::{Notify, broadcast};
use uuid::Uuid;

use super::{change::StateChange, triggers::Triggers};
use crate::{
    catalog::Catalog,
    launch::table::{LaunchTable, Stage},
    model::Launcher,
    pods::{
        build::PodConfig,
        worker::{WorkerDags, WorkerPods},
    },
    scheduler::{board::Board, inbox::Inbox, worker::WaitingWorkers},
};

/// State changes that a follower may be behind.
const CHANGES: usize = 4_096;

/// What the parts of one scheduler share. The board is a copy of what the database holds; everything else can be
/// rebuilt from the API server.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn RunStore>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The uid of `kube-system`.
    pub(crate) cluster: String,
    pub(crate) pod_config: PodConfig,
    /// How the pods of workers are made; `None` where there are none.
    pub(crate) workers_config: Option<WorkerPods>,
    /// What workers need to know of DAGs.
    pub(crate) worker_dags: WorkerDags,
    pub(crate) inbox: Inbox,
    /// When this process began.
    pub(crate) started_at: Timestamp,
    /// What tries were launched as.
    pub(crate) launched: LaunchTable,
    /// Tries whose objects need a round.
    pub(crate) launch_keys: Arc<Triggers<Uuid>>,
    /// Runs whose shared objects need a round.
    pub(crate) run_keys: Arc<Triggers<RunKey>>,
    pub(crate) changes: broadcast::Sender<StateChange>,
    /// Notified after every commit.
    pub(crate) committed: Notify,
    /// Workers that wait for an answer.
    pub(crate) workers: WaitingWorkers,
    board: Mutex<Board>,
    catalog: Mutex<Catalog>,
    heartbeats: Mutex<Arc<Heartbeats>>,
}

impl Shared {
    pub(crate) fn new(
        store: Arc<dyn RunStore>,
        clock: Arc<dyn Clock>,
        cluster: String,
        (pod_config, workers_config): (PodConfig, Option<WorkerPods>),
        board: Board,
        catalog: Catalog,
        keep_failed: usize,
    ) -> Self {
        let started_at = clock.now();
        Self {
            started_at,
            heartbeats: Mutex::new(Arc::new(Heartbeats::new(started_at))),
            store,
            clock,
            cluster,
            pod_config,
            workers_config,
            worker_dags: WorkerDags::default(),
            inbox: Inbox::default(),
            launched: LaunchTable::new(keep_failed),
            launch_keys: Triggers::new(),
            run_keys: Triggers::new(),
            changes: broadcast::Sender::new(CHANGES),
            committed: Notify::new(),
            workers: WaitingWorkers::default(),
            board: Mutex::new(board),
            catalog: Mutex::new(catalog),
        }
    }

    /// TaskActions are followed from the first task on that is to become one.
    pub(crate) fn follow_actions_if_wanted(&self) {
        let is_idle = self.launched.stage(Launcher::TaskAction) == Stage::Idle;
        if is_idle && self.board_mut().has_plugin_tasks() {
            self.launched.reach(Launcher::TaskAction, Stage::Wanted);
        }
    }

    /// The row of a try that is over, or whose run is: at hand where the run has ended a short time ago, else in the
    /// store.
    pub(crate) async fn ended_try(
        &self,
        ti_id: &Uuid,
    ) -> Result<Option<Arc<TaskInstance>>, StoreError> {
        match self.launched.ended(ti_id) {
            Some(row) => Ok(Some(row)),
            None => Ok(self.store.try_by_id(*ti_id).await?.map(Arc::new)),
        }
    }

    /// The committed state. Cheap: rows are shared, not copied.
    pub(crate) fn board(&self) -> Board {
        self.board_mut().clone()
    }

    /// When workers were last heard. Cheap: a heartbeat copies it only while a round looks at it.
    pub(crate) fn heartbeats(&self) -> Arc<Heartbeats> {
        Arc::clone(&self.heartbeats_lock())
    }

    /// Notes heartbeats, or forgets workers.
    pub(crate) fn change_heartbeats<T>(&self, change: impl FnOnce(&mut Heartbeats) -> T) -> T {
        change(Arc::make_mut(&mut *self.heartbeats_lock()))
    }

    fn heartbeats_lock(&self) -> MutexGuard<'_, Arc<Heartbeats>> {
        self.heartbeats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The DAGs. Cheap: rows are shared, not copied.
    pub(crate) fn catalog(&self) -> Catalog {
        self.catalog_mut().clone()
    }

    /// The DAGs, for the scheduler after a commit, and for updates of files and requests of users.
    pub(crate) fn catalog_mut(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The committed state. Only the scheduler changes it, after a commit or a reload; users change the pools.
    pub(crate) fn board_mut(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
