//! The committed state in memory.
//!
//! The board is read from the store once, and changed only by [`Board::apply`] with changes that were committed. Every
//! part is behind an `Arc`, so a clone costs one entry per active run.

use std::{collections::BTreeMap, sync::Arc};

use longshore_store::{Changes, Pool, Run, RunKey, Snapshot, TaskInstance, TaskKey};
use uuid::Uuid;

use crate::{
    model::Dag,
    scheduler::{facts::Fact, shape::Shape},
};

/// A run that is not finished, with its DAG and its task instances.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveRun {
    /// Its row.
    pub run: Arc<Run>,
    /// The DAG that it is pinned to.
    pub dag: Arc<Dag>,
    /// What the scheduler needs of the DAG in each round, computed once.
    pub shape: Arc<Shape>,
    /// Its task instances by task id, one for each task of the DAG.
    pub tasks: BTreeMap<String, Arc<TaskInstance>>,
}

impl ActiveRun {
    fn new(run: Run, dag: Arc<Dag>) -> Self {
        Self {
            run: Arc::new(run),
            shape: Arc::new(Shape::of(&dag)),
            dag,
            tasks: BTreeMap::new(),
        }
    }
}

/// Where on the board a try is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRef {
    /// The run.
    pub run: RunKey,
    /// The task.
    pub task_id: String,
}

/// All runs that are not finished, and the pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Board {
    /// The runs.
    pub runs: BTreeMap<RunKey, Arc<ActiveRun>>,
    /// The pools by name.
    pub pools: Arc<BTreeMap<String, Pool>>,
    /// Where each current try is. Tries that are archived, or of finished runs, are not in here.
    by_id: Arc<BTreeMap<Uuid, TaskRef>>,
}

impl Board {
    /// The board as the store has it. `read_dag` reads the document that a run is pinned to; its first error ends the
    /// load, because a run that nobody can read must not silently stand still.
    ///
    /// # Errors
    /// Whatever `read_dag` answers.
    pub fn load<E>(
        snapshot: Snapshot,
        mut read_dag: impl FnMut(&Run) -> Result<Arc<Dag>, E>,
    ) -> Result<Self, E> {
        let mut runs: BTreeMap<RunKey, ActiveRun> = BTreeMap::new();
        for run in snapshot.runs {
            let dag = read_dag(&run)?;
            runs.insert(run.key.clone(), ActiveRun::new(run, dag));
        }
        let mut by_id = BTreeMap::new();
        for task_instance in snapshot.task_instances {
            let TaskKey { run, task_id, .. } = task_instance.key.clone();
            let Some(active) = runs.get_mut(&run) else {
                continue;
            };
            by_id.insert(
                task_instance.id,
                TaskRef {
                    run,
                    task_id: task_id.clone(),
                },
            );
            active.tasks.insert(task_id, Arc::new(task_instance));
        }
        let pools = snapshot
            .pools
            .into_iter()
            .map(|pool| (pool.name.clone(), pool));
        Ok(Self {
            runs: runs
                .into_iter()
                .map(|(key, run)| (key, Arc::new(run)))
                .collect(),
            pools: Arc::new(pools.collect()),
            by_id: Arc::new(by_id),
        })
    }

    /// Does to the board what the commit of `changes` did to the store: rows are replaced with their version counted
    /// up, finished runs leave. `facts` are those that the changes were decided upon; a new run's DAG comes from them.
    pub fn apply(&mut self, changes: &Changes, facts: &[Fact]) {
        todo!("{changes:?} {facts:?}")
    }

    /// The task instance whose current try has this id.
    pub fn task_instance_by_id(&self, id: &Uuid) -> Option<(&ActiveRun, &Arc<TaskInstance>)> {
        let at = self.by_id.get(id)?;
        let run = self.runs.get(&at.run)?;
        Some((run, run.tasks.get(&at.task_id)?))
    }

    /// Where the current try with this id is.
    pub fn find(&self, id: &Uuid) -> Option<&TaskRef> {
        self.by_id.get(id)
    }

    /// Replaces the pools, which are changed outside of the scheduler.
    pub fn set_pools(&mut self, pools: impl IntoIterator<Item = Pool>) {
        self.pools = Arc::new(
            pools
                .into_iter()
                .map(|pool| (pool.name.clone(), pool))
                .collect(),
        );
    }
}
