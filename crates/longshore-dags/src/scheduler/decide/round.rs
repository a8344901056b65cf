//! One round over all runs.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use longshore_core::{Action, Next, Plan};
use longshore_store::{Changes, RunKey, RunState, TaskInstance, TaskState};
use uuid::Uuid;

use crate::{
    model::Dag,
    scheduler::{
        decide::{
            Decision, Observed,
            advance::advance,
            clear,
            pod_facts::{self, Subject, next_launch},
            run_facts,
            work::RunWork,
        },
        facts::Fact,
        limits::{Bounded, admit},
        run_state::{is_interrupted, may_launch, until_logical_date},
        shape::Shape,
        transitions::{Cause, RunCause},
        worker::{RequestId, WorkerAnswer},
    },
};

/// The working copy of the board.
pub(super) struct Round<'a> {
    observed: &'a Observed,
    runs: Vec<RunWork<'a>>,
    by_key: BTreeMap<RunKey, usize>,
    answers: Vec<(RequestId, Option<WorkerAnswer>)>,
}

impl<'a> Round<'a> {
    pub(super) fn new(observed: &'a Observed) -> Self {
        let runs = &observed.board.runs;
        Self {
            observed,
            runs: runs.values().map(|active| RunWork::of(active)).collect(),
            by_key: runs.keys().cloned().zip(0..).collect(),
            answers: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.observed.now
    }

    pub(super) fn find(&self, key: &RunKey) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// Whether an unfinished run of the DAG is about this instant.
    pub(super) fn has_run_about(&self, dag_id: &str, logical_date: Option<Timestamp>) -> bool {
        let mut runs = self.runs.iter().map(RunWork::run);
        runs.any(|run| run.key.dag_id == dag_id && run.logical_date == logical_date)
    }

    /// The shape of a DAG: that of its other runs, where it has some.
    pub(super) fn shape_of(&self, dag: &Dag) -> Arc<Shape> {
        let of_dag = |work: &&RunWork<'_>| std::ptr::eq(work.dag, dag);
        let same = self.runs.iter().find(of_dag);
        same.map_or_else(|| Arc::new(Shape::of(dag)), |work| Arc::clone(&work.shape))
    }

    pub(super) fn run_mut(&mut self, number: usize) -> &mut RunWork<'a> {
        &mut self.runs[number]
    }

    /// Adds a run that is not on the board. Returns its number.
    pub(super) fn add(&mut self, key: RunKey, run: RunWork<'a>) -> usize {
        let number = self.runs.len();
        self.by_key.insert(key, number);
        self.runs.push(run);
        number
    }

    /// Does what one fact says.
    pub(super) fn take(&mut self, fact: &'a Fact) {
        let now = self.now();
        match fact {
            Fact::RunRequested(new) => run_facts::request(self, new),
            Fact::RunPrepared(key) => self.with_run(key, run_facts::prepared),
            Fact::RunPrepareRefused { run, message } => {
                self.with_run(run, |run| run_facts::prepare_refused(run, message, now));
            }
            Fact::CancelRun(key) => self.with_run(key, |run| run_facts::cancel(run, now)),
            Fact::Interrupt(key) => self.with_run(key, run_facts::interrupt),
            Fact::Clear(clearing) => clear::clear(self, clearing),
            Fact::LaunchEnded { ti_id } => {
                let is_restarting = |row: &TaskInstance| row.state == Some(TaskState::Restarting);
                self.with_subject(ti_id, is_restarting, |mut it| it.restart());
            }
            Fact::Resume(key) => self.with_run(key, run_facts::resume),
            Fact::ClusterChanged => self.runs.iter_mut().for_each(run_facts::start_again),
            Fact::Launched(fact) => {
                self.with_subject(
                    &fact.ti_id,
                    |row| is_current(row, fact.launch) || pod_facts::has_done_its_work(row, fact),
                    |mut it| it.pod(fact),
                );
            }
            Fact::Worker(fact) => {
                // A task of a container DAG has no worker that says anything.
                let has_worker = |row: &TaskInstance| row.airflow.is_some();
                let answer =
                    self.with_subject(&fact.ti_id, has_worker, |mut it| it.worker(&fact.report));
                self.answers.push((fact.request, answer));
            }
            Fact::LaunchRefused {
                ti_id,
                launch,
                message,
            } => {
                let is_current = |row: &_| is_current(row, *launch);
                self.with_subject(ti_id, is_current, |mut it| it.launch_refused(message));
            }
            Fact::LaunchBuildFailed {
                ti_id,
                launch,
                message,
            } => {
                let is_current = |row: &_| is_current(row, *launch);
                self.with_subject(ti_id, is_current, |mut it| it.build_failed(message));
            }
        }
    }

    /// Changes a run that is not over. A fact about a run that is over or unknown changes nothing.
    fn with_run(&mut self, key: &RunKey, change: impl FnOnce(&mut RunWork<'a>)) {
        let Some(number) = self.find(key) else { return };
        let run = &mut self.runs[number];
        if !run.run().state.is_finished() {
            change(run);
        }
    }

    /// The fence of facts about a try: only the current one changes, and only where `is_meant` says so. `None` where it
    /// does not.
    fn with_subject<T>(
        &mut self,
        ti_id: &Uuid,
        is_meant: impl FnOnce(&TaskInstance) -> bool,
        change: impl FnOnce(Subject<'_, 'a>) -> T,
    ) -> Option<T> {
        let observed = self.observed;
        let at = observed.board.find(ti_id)?;
        let number = self.find(&at.run)?;
        let run = &mut self.runs[number];
        let instance = run.instance(at.number, at.instance.map_index)?;
        let row = run.row(instance);
        let is_it = row.id == *ti_id && is_meant(row);
        is_it.then(|| {
            change(Subject {
                run,
                instance,
                now: observed.now,
                limits: &observed.limits,
            })
        })
    }

    /// Takes each running run as far as it goes.
    pub(super) fn advance_runs(&mut self) {
        for run in &mut self.runs {
            advance(
                run,
                self.observed.now,
                &self.observed.limits,
                &self.observed.heartbeats,
            );
        }
    }

    /// Starts queued runs, oldest first, while their DAG runs fewer than `max_active_runs`. One that is about an instant to
    /// come waits for it.
    pub(super) fn start_runs(&mut self) {
        let now = self.now();
        let mut n_running: BTreeMap<String, u32> = BTreeMap::new();
        let mut queued = Vec::new();
        for (number, work) in self.runs.iter().enumerate() {
            let run = work.run();
            if run.state == RunState::Running {
                *n_running.entry(run.key.dag_id.clone()).or_default() += 1;
            } else if run.state == RunState::Queued && !is_interrupted(run) {
                queued.push((run.queued_at, number));
            }
        }
        queued.sort_unstable();
        for (_, number) in queued {
            let run = &mut self.runs[number];
            if let Some(left) = until_logical_date(run.run(), now) {
                run.next = run.next.min(Next::After(left));
                continue;
            }
            let n_running = n_running.entry(run.run().key.dag_id.clone()).or_default();
            if *n_running >= run.dag.max_active_runs {
                continue;
            }
            run.transition_run(RunState::Running, RunCause::Started)
                .start_date = Some(now);
            advance(run, now, &self.observed.limits, &self.observed.heartbeats);
            if !run.run().state.is_finished() {
                *n_running += 1;
            }
        }
    }

    /// Gives the free slots to scheduled task instances of running runs.
    pub(super) fn queue_task_instances(&mut self) {
        let (mut holding, mut candidates) = (Vec::new(), Vec::new());
        for (number, work) in self.runs.iter().enumerate() {
            let run = work.run();
            for (instance, row) in work.rows().enumerate() {
                let bounded = || Bounded {
                    row,
                    run: number,
                    instance,
                    max_active_tasks: work.dag.max_active_tasks,
                    max_active_tis_per_dag: work.spec(instance).max_active_tis_per_dag,
                    logical_date: run.logical_date.unwrap_or(run.queued_at),
                    run_queued_at: run.queued_at,
                };
                let is_counted =
                    |state: TaskState| state.is_occupying() || state.is_waiting_outside();
                if row.state.is_some_and(is_counted) {
                    holding.push(bounded());
                } else if row.state == Some(TaskState::Scheduled) && may_launch(run) {
                    candidates.push(bounded());
                }
            }
        }
        let pools = &self.observed.board.pools;
        let admitted = admit(
            candidates,
            &holding,
            pools,
            self.observed.limits.parallelism,
        );
        let now = self.now();
        for (run, instance) in admitted {
            let run = &mut self.runs[run];
            run.transition(instance, TaskState::Queued, Cause::SlotFree)
                .queued_at = Some(now);
            next_launch(run, instance);
        }
    }

    /// All that differs from the board, in one set of changes.
    pub(super) fn into_decision(self) -> Decision {
        let mut changes = Changes::default();
        let mut next = Next::AwaitChange;
        for run in self.runs {
            next = next.min(run.next);
            run.collect_into(&mut changes);
        }
        if !changes.is_empty() || self.observed.store_position {
            changes
                .watch_position
                .clone_from(&self.observed.watch_position);
        }
        let actions = if changes.is_empty() {
            Vec::new()
        } else {
            vec![Action::Persist(changes)]
        };
        Decision {
            plan: Plan { actions, next },
            answers: self.answers,
        }
    }
}

/// Whether this is the launch of the row, and the row holds its slot.
fn is_current(row: &TaskInstance, launch: u32) -> bool {
    row.launch == launch && row.state.is_some_and(TaskState::is_occupying)
}
