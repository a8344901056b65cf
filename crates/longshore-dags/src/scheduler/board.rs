//! The committed state in memory.
//!
//! The board is read from the store once, and changed only by [`Board::apply`] with changes that were committed. Every
//! part is behind an `Arc`, so a clone costs one entry per active run.

use std::{collections::BTreeMap, sync::Arc};

use longshore_core::{Class, Classify};
use longshore_store::{Changes, Expansion, Pool, Run, RunKey, Snapshot, TaskInstance, TaskKey};
use uuid::Uuid;

use crate::{
    model::Dag,
    scheduler::{
        facts::Fact,
        instances::{InstanceKey, Instances, of_task},
        shape::Shape,
    },
};

/// A run that is not finished, with its DAG and its task instances.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveRun {
    /// Its row.
    pub run: Arc<Run>,
    /// The DAG that it is pinned to.
    pub dag: Arc<Dag>,
    /// What the scheduler needs of the DAG in each round, computed once for all runs of one document.
    pub shape: Arc<Shape>,
    /// Its task instances, at least one for each task of the DAG.
    pub tasks: Instances,
}

impl ActiveRun {
    fn new(run: Run, dag: Arc<Dag>, shape: Arc<Shape>) -> Self {
        Self {
            run: Arc::new(run),
            shape,
            dag,
            tasks: Instances::new(),
        }
    }

    /// The number of a task of this run's DAG.
    fn number(&self, task_id: &str) -> Option<usize> {
        self.shape.numbers.get(task_id).copied()
    }
}

/// Where on the board a try is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRef {
    /// The run.
    pub run: RunKey,
    /// The task instance.
    pub instance: InstanceKey,
    /// The task's number in the run's [`Shape`].
    pub number: usize,
}

/// Why stored rows make no board.
#[derive(Debug, thiserror::Error)]
pub enum LoadError<E: std::error::Error + 'static> {
    /// The document that a run is pinned to cannot be read.
    #[error("the DAG that run {run} is pinned to cannot be read")]
    Dag {
        /// The run.
        run: RunKey,
        /// What is wrong with the document.
        source: E,
    },
    /// A task of the DAG has no row.
    #[error("run {run} has no row for task `{task_id}`; each task of its DAG must have one")]
    NoTaskInstance {
        /// The run.
        run: RunKey,
        /// The task.
        task_id: String,
    },
}

impl<E: std::error::Error + 'static> Classify for LoadError<E> {
    fn class(&self) -> Class {
        Class::Bug
    }
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
    /// The board as the store has it. `read_dag` reads the document that a run is pinned to.
    ///
    /// # Errors
    /// A run that cannot be read refuses the whole board, because it must not silently stand still.
    pub fn load<E: std::error::Error + 'static>(
        snapshot: Snapshot,
        mut read_dag: impl FnMut(&Run) -> Result<Arc<Dag>, E>,
    ) -> Result<Self, LoadError<E>> {
        let mut board = Self::default();
        board.set_pools(snapshot.pools);
        for run in snapshot.runs {
            let dag = read_dag(&run).map_err(|source| LoadError::Dag {
                run: run.key.clone(),
                source,
            })?;
            board.insert(run, dag);
        }
        for task_instance in snapshot.task_instances {
            board.put_task_instance(task_instance);
        }
        for (key, active) in &board.runs {
            let without = active
                .dag
                .tasks
                .keys()
                .find(|id| of_task(&active.tasks, id).next().is_none());
            if let Some(task_id) = without {
                return Err(LoadError::NoTaskInstance {
                    run: key.clone(),
                    task_id: task_id.clone(),
                });
            }
        }
        Ok(board)
    }

    /// Does to the board what the commit of `changes` did to the store: rows are replaced with their version counted
    /// up, finished runs leave. `facts` are those that the changes were decided upon; a new run's DAG comes from them, and all of
    /// a run that was over.
    ///
    /// Returns the runs that have ended, as they are committed.
    ///
    /// Costs as much as there are changed rows, if no clone of the board is alive; else the runs among them and the
    /// index of ids are copied first.
    pub fn apply(&mut self, changes: &Changes, facts: &[Fact]) -> Vec<Arc<ActiveRun>> {
        let mut created: BTreeMap<RunKey, &Arc<Dag>> = BTreeMap::new();
        if changes.runs.iter().any(|run| run.version == 0) {
            for fact in facts {
                if let Fact::RunRequested(new) = fact {
                    created.entry(new.key()).or_insert(&new.dag);
                }
            }
        }
        self.take_back(changes, facts);
        for run in &changes.runs {
            let committed = Run {
                version: run.version + 1,
                ..run.clone()
            };
            if let Some(active) = self.runs.get_mut(&run.key) {
                Arc::make_mut(active).run = Arc::new(committed);
            } else if let Some(dag) = created.get(&run.key) {
                self.insert(committed, Arc::clone(dag));
            }
        }
        for expansion in &changes.expansions {
            self.expand(expansion);
        }
        for row in &changes.task_instances {
            self.put_task_instance(TaskInstance {
                version: row.version + 1,
                ..row.clone()
            });
        }
        let finished = changes.runs.iter().filter(|run| run.state.is_finished());
        finished.filter_map(|run| self.remove(&run.key)).collect()
    }

    /// The runs of a DAG.
    pub(crate) fn runs_of(&self, dag_id: &str) -> impl Iterator<Item = &Arc<ActiveRun>> {
        let first = RunKey {
            dag_id: dag_id.to_owned(),
            run_id: String::new(),
        };
        let from = self.runs.range(first..);
        from.take_while(move |(key, _)| key.dag_id == dag_id)
            .map(|(_, active)| active)
    }

    /// Puts a run on the board, without its task instances. It shares the shape of another run of the same DAG.
    fn insert(&mut self, run: Run, dag: Arc<Dag>) {
        let of_dag = |active: &&Arc<ActiveRun>| Arc::ptr_eq(&active.dag, &dag);
        let same = self.runs_of(&run.key.dag_id).find(of_dag);
        let shape = same.map(|active| Arc::clone(&active.shape));
        let shape = shape.unwrap_or_else(|| Arc::new(Shape::of(&dag)));
        let key = run.key.clone();
        let active = ActiveRun::new(run, dag, shape);
        self.runs.insert(key, Arc::new(active));
    }

    /// Puts the runs that were over, and of which a user cleared tasks, on the board again.
    fn take_back(&mut self, changes: &Changes, facts: &[Fact]) {
        let cleared = facts.iter().filter_map(Fact::clearing);
        for stored in cleared.filter_map(|clearing| clearing.stored.as_ref()) {
            let key = &stored.run.key;
            let has_changed = changes.runs.iter().any(|run| run.key == *key);
            if !has_changed || self.runs.contains_key(key) {
                continue;
            }
            let without_rows = ActiveRun {
                tasks: Instances::new(),
                ..ActiveRun::clone(stored)
            };
            self.runs.insert(key.clone(), Arc::new(without_rows));
            for row in stored.tasks.values() {
                self.put_task_instance(TaskInstance::clone(row));
            }
        }
    }

    /// Puts a row in its place. A row of a run that is not here, or of a task that its DAG does not have, is left out.
    fn put_task_instance(&mut self, row: TaskInstance) {
        let run = row.key.run.clone();
        let instance = InstanceKey::from(&row.key);
        let Some(active) = self.runs.get_mut(&run) else {
            return;
        };
        let Some(number) = active.number(&instance.task_id) else {
            return;
        };
        let id = row.id;
        let before = Arc::make_mut(active)
            .tasks
            .insert(instance.clone(), Arc::new(row));
        if before.as_ref().is_some_and(|before| before.id == id) {
            return;
        }
        let by_id = Arc::make_mut(&mut self.by_id);
        if let Some(before) = before {
            by_id.remove(&before.id);
        }
        by_id.insert(
            id,
            TaskRef {
                run,
                instance,
                number,
            },
        );
    }

    /// Gives the instance of a mapped task its first map index.
    fn expand(&mut self, expansion: &Expansion) {
        let Some(active) = self.runs.get_mut(&expansion.run) else {
            return;
        };
        let at = InstanceKey::unmapped(&expansion.task_id);
        if let Some(row) = Arc::make_mut(active).tasks.remove(&at) {
            Arc::make_mut(&mut self.by_id).remove(&row.id);
            let mut row = Arc::unwrap_or_clone(row);
            row.key.map_index = 0;
            self.put_task_instance(row);
        }
    }

    fn remove(&mut self, run: &RunKey) -> Option<Arc<ActiveRun>> {
        let active = self.runs.remove(run)?;
        let by_id = Arc::make_mut(&mut self.by_id);
        for row in active.tasks.values() {
            by_id.remove(&row.id);
        }
        Some(active)
    }

    /// The task instance whose current try has this id.
    pub fn task_instance_by_id(&self, id: &Uuid) -> Option<(&ActiveRun, &Arc<TaskInstance>)> {
        let at = self.by_id.get(id)?;
        let run = self.runs.get(&at.run)?;
        Some((run, run.tasks.get(&at.instance)?))
    }

    /// The task instance of this key.
    pub fn task_instance(&self, key: &TaskKey) -> Option<&Arc<TaskInstance>> {
        self.runs.get(&key.run)?.tasks.get(&InstanceKey::from(key))
    }

    /// All task instances, by run and task.
    pub fn task_instances(&self) -> impl Iterator<Item = &Arc<TaskInstance>> {
        self.runs.values().flat_map(|active| active.tasks.values())
    }

    /// All task instances with their runs.
    pub fn launches(&self) -> impl Iterator<Item = (&ActiveRun, &Arc<TaskInstance>)> {
        let runs = self.runs.values();
        runs.flat_map(|active| active.tasks.values().map(|row| (&**active, row)))
    }

    /// Whether a run has tasks that plugins run.
    pub fn has_plugin_tasks(&self) -> bool {
        let mut runs = self.runs.values();
        runs.any(|active| active.shape.has_plugin_tasks)
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
