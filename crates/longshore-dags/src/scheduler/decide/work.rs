//! A round's working copy of the board: rows are copied when they are first changed.

use std::{ops::Range, sync::Arc};

use jiff::Timestamp;
use longshore_core::Next;
use longshore_store::{
    AirflowTask, ArchivedTry, Changes, Deferral, Failure, Reschedule, Run, RunState,
    StoredDocument, TaskInstance, TaskState,
};

use crate::{
    model::{Dag, Task},
    scheduler::{
        board::ActiveRun,
        facts::NewRun,
        identity::try_id,
        instances::Layout,
        shape::Shape,
        transitions::{self, Cause, RunCause},
    },
};

/// A row as it is committed, and as it will be.
struct Slot<'a, T> {
    committed: Option<&'a T>,
    changed: Option<Box<T>>,
}

impl<'a, T: Clone + PartialEq> Slot<'a, T> {
    fn committed(row: &'a T) -> Self {
        Self {
            committed: Some(row),
            changed: None,
        }
    }

    fn created(row: T) -> Self {
        Self {
            committed: None,
            changed: Some(Box::new(row)),
        }
    }

    #[expect(clippy::expect_used, reason = "both constructors fill one side")]
    fn get(&self) -> &T {
        self.changed.as_deref().or(self.committed).expect("a row")
    }

    fn get_mut(&mut self) -> &mut T {
        let changed = self
            .changed
            .take()
            .unwrap_or_else(|| Box::new(self.get().clone()));
        self.changed.insert(changed)
    }

    /// The row, where it differs from the committed one.
    fn into_changed(self) -> Option<T> {
        self.changed
            .filter(|row| self.committed != Some(row))
            .map(|row| *row)
    }
}

/// One run within a round.
pub(super) struct RunWork<'a> {
    pub(super) dag: &'a Dag,
    pub(super) shape: Arc<Shape>,
    /// The DAG's tasks by number.
    pub(super) specs: Vec<&'a Task>,
    run: Slot<'a, Run>,
    /// Its task instances, in the order of the tasks' numbers and then of the map indexes.
    tasks: Vec<Slot<'a, TaskInstance>>,
    layout: Layout,
    archived: Vec<ArchivedTry>,
    /// Looks of sensors that gave up their worker in this round.
    pub(super) reschedules: Vec<Reschedule>,
    /// How tries go on that gave up their worker in this round.
    pub(super) deferrals: Vec<Deferral>,
    /// The document of a new run, where the database may not have it.
    document: Option<&'a StoredDocument>,
    /// When this run is to be looked at again.
    pub(super) next: Next,
}

impl<'a> RunWork<'a> {
    pub(super) fn of(active: &'a ActiveRun) -> Self {
        Self {
            dag: &active.dag,
            shape: Arc::clone(&active.shape),
            specs: active.dag.tasks.values().collect(),
            run: Slot::committed(&active.run),
            tasks: active
                .tasks
                .values()
                .map(|row| Slot::committed(&**row))
                .collect(),
            layout: Layout::of(&active.tasks, &active.shape),
            archived: Vec::new(),
            reschedules: Vec::new(),
            deferrals: Vec::new(),
            document: None,
            next: Next::AwaitChange,
        }
    }

    /// A new run with its task instances, queued. `shape` is that of its DAG.
    pub(super) fn create(new: &'a NewRun, shape: Arc<Shape>, now: Timestamp) -> Self {
        let dag = &*new.dag;
        let run = Run {
            key: new.key(),
            run_type: new.run_type,
            state: RunState::Queued,
            logical_date: new.logical_date,
            queued_at: now,
            start_date: None,
            end_date: None,
            conf: new.conf.clone(),
            dag_hash: new.dag_hash.clone(),
            is_prepared: !dag.has_shared_objects(),
            reason: None,
            details: new.details.clone(),
            version: 0,
        };
        let rows = dag.tasks.values().zip(&shape.weights);
        let rows = rows.map(|(task, &weight)| Slot::created(new_row(&run, task, weight, now)));
        Self {
            dag,
            specs: dag.tasks.values().collect(),
            tasks: rows.collect(),
            layout: Layout::OneEach,
            shape,
            run: Slot::created(run),
            archived: Vec::new(),
            reschedules: Vec::new(),
            deferrals: Vec::new(),
            document: new.document.as_ref(),
            next: Next::AwaitChange,
        }
    }

    pub(super) fn run(&self) -> &Run {
        self.run.get()
    }

    pub(super) fn run_mut(&mut self) -> &mut Run {
        self.run.get_mut()
    }

    /// How many task instances it has.
    pub(super) fn n_rows(&self) -> usize {
        self.tasks.len()
    }

    /// A task instance, by its place.
    pub(super) fn row(&self, instance: usize) -> &TaskInstance {
        self.tasks[instance].get()
    }

    pub(super) fn row_mut(&mut self, instance: usize) -> &mut TaskInstance {
        self.tasks[instance].get_mut()
    }

    /// The places of the instances of a task.
    pub(super) fn instances(&self, task: usize) -> Range<usize> {
        self.layout.instances(task)
    }

    /// The place of the instance of a task with this map index.
    pub(super) fn instance(&self, task: usize, map_index: i32) -> Option<usize> {
        let places = self.instances(task);
        let before = |slot: &Slot<'_, TaskInstance>| slot.get().key.map_index < map_index;
        let place = places.start + self.tasks[places.clone()].partition_point(before);
        let is_found = places.contains(&place) && self.row(place).key.map_index == map_index;
        is_found.then_some(place)
    }

    /// The number of the task of an instance.
    pub(super) fn task_of(&self, instance: usize) -> usize {
        self.layout.task_of(instance)
    }

    /// The task of an instance.
    pub(super) fn spec(&self, instance: usize) -> &'a Task {
        self.specs[self.task_of(instance)]
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &TaskInstance> {
        self.tasks.iter().map(Slot::get)
    }

    pub(super) fn archive(&mut self, ended: TaskInstance) {
        self.archived.push(ArchivedTry {
            task_instance: ended,
        });
    }

    /// Moves a task instance to another state.
    pub(super) fn transition(
        &mut self,
        instance: usize,
        to: impl Into<Option<TaskState>>,
        cause: Cause,
    ) -> &mut TaskInstance {
        let (row, to) = (self.row_mut(instance), to.into());
        transitions::note((row.state, to, cause));
        row.state = to;
        row
    }

    /// Moves the run to another state.
    pub(super) fn transition_run(&mut self, to: RunState, cause: RunCause) -> &mut Run {
        let run = self.run_mut();
        transitions::note_run((run.state, to, cause));
        run.state = to;
        run
    }

    /// Ends the run before all of its tasks have: those that run are failed, the others skipped. A timeout skips all.
    pub(super) fn abort(&mut self, cause: RunCause, reason: &str, now: Timestamp) {
        for instance in 0..self.n_rows() {
            let state = self.row(instance).state;
            if state.is_some_and(TaskState::is_finished) {
                continue;
            }
            let runs = matches!(state, Some(TaskState::Running | TaskState::Restarting));
            let row = if runs && cause != RunCause::TimedOut {
                let row = self.transition(instance, TaskState::Failed, Cause::RunEnded);
                row.failure = Some(Failure {
                    message: format!("its run ended first: {reason}"),
                    reason: Some("RunEnded".to_owned()),
                    exit_code: None,
                    container: None,
                });
                row
            } else {
                self.transition(instance, TaskState::Skipped, Cause::RunEnded)
            };
            row.end_date = Some(now);
        }
        let run = self.transition_run(RunState::Failed, cause);
        run.end_date = Some(now);
        run.reason = Some(reason.to_owned());
    }

    /// Adds what differs from the committed rows.
    pub(super) fn collect_into(self, changes: &mut Changes) {
        changes.documents.extend(self.document.cloned());
        changes.runs.extend(self.run.into_changed());
        changes
            .task_instances
            .extend(self.tasks.into_iter().filter_map(Slot::into_changed));
        changes.archived.extend(self.archived);
        changes.reschedules.extend(self.reschedules);
        changes.deferrals.extend(self.deferrals);
    }
}

/// The task instance of a task in a new run.
fn new_row(run: &Run, task: &Task, priority_weight: i64, now: Timestamp) -> TaskInstance {
    let key = run.key.task(&task.task_id);
    let version = run.details.dag_version;
    TaskInstance {
        max_tries: task.retries,
        pool: task.pool.clone(),
        pool_slots: task.pool_slots,
        priority_weight,
        airflow: version.map(|version| Box::new(AirflowTask::new(version))),
        ..TaskInstance::new(try_id(now, &key, 1), key)
    }
}
