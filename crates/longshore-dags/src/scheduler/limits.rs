//! Which of the scheduled task instances get a slot: Airflow's critical section (6.7 of the DAG scheduler spec).
//!
//! Candidates are walked by priority; one that is blocked by a limit of its own does not block those after it.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;
use longshore_store::{Pool, TaskInstance, TaskState};

/// Pools of this size are unlimited.
pub(crate) const UNLIMITED: i64 = -1;

/// A task instance that waits for a slot, holds one, or gave up its worker to wait, with the limits that bound it.
#[derive(Clone, Copy, Debug)]
pub struct Bounded<'a> {
    /// Its row.
    pub row: &'a TaskInstance,
    /// A number for its run.
    pub run: usize,
    /// Its place among the task instances of the run.
    pub instance: usize,
    /// How many of its run may hold a slot; `max_active_tasks`.
    pub max_active_tasks: u32,
    /// How many of its task may, over all runs of the DAG.
    pub max_active_tis_per_dag: Option<u32>,
    /// The instant that its run is about, or at which the run was created where it is about none.
    pub logical_date: Timestamp,
    /// When its run was created.
    pub run_queued_at: Timestamp,
}

/// How many slots are taken: in all, by pool, by run and by task.
#[derive(Default)]
struct Slots<'a> {
    total: u32,
    by_pool: BTreeMap<&'a str, i64>,
    by_run: BTreeMap<usize, u32>,
    /// Only of tasks for which a candidate asks: most have no limit of their own.
    by_task: BTreeMap<(&'a str, &'a str), u32>,
}

impl<'a> Slots<'a> {
    /// The slots that are taken, as far as they matter to the candidates.
    fn taken_by(
        holding: &[Bounded<'a>],
        candidates: &[Bounded<'a>],
        pools: &BTreeMap<String, Pool>,
    ) -> Self {
        let limited = candidates
            .iter()
            .filter(|of| of.max_active_tis_per_dag.is_some());
        let mut slots = Self {
            by_task: limited.map(|of| (task_of(of), 0)).collect(),
            ..Self::default()
        };
        for of in holding {
            if is_waiting_outside(of) {
                slots.wait_outside(of, pools);
            } else {
                slots.take(of);
            }
        }
        slots
    }

    /// Counts a task instance that gave up its worker: it has no slot of the scheduler or of its run, but its task's limit
    /// counts it, and so does a pool that says so for deferred ones.
    fn wait_outside(&mut self, of: &Bounded<'a>, pools: &BTreeMap<String, Pool>) {
        let pool = pools.get(&of.row.pool);
        if of.row.state == Some(TaskState::Deferred) && pool.is_some_and(|it| it.include_deferred) {
            *self.by_pool.entry(&of.row.pool).or_default() += i64::from(of.row.pool_slots);
        }
        self.count_task(of);
    }

    /// Gives the slots that it asks for to a task instance.
    fn take(&mut self, of: &Bounded<'a>) {
        self.total += 1;
        *self.by_pool.entry(&of.row.pool).or_default() += i64::from(of.row.pool_slots);
        *self.by_run.entry(of.run).or_default() += 1;
        self.count_task(of);
    }

    fn count_task(&mut self, of: &Bounded<'a>) {
        if !self.by_task.is_empty()
            && let Some(n) = self.by_task.get_mut(&task_of(of))
        {
            *n += 1;
        }
    }

    fn has_room_for(&self, of: &Bounded<'a>, pools: &BTreeMap<String, Pool>) -> bool {
        let is_pool_open = pools.get(&of.row.pool).is_some_and(|pool| {
            let occupied = self.by_pool.get(of.row.pool.as_str()).copied().unwrap_or(0);
            pool.slots == UNLIMITED || occupied + i64::from(of.row.pool_slots) <= pool.slots
        });
        let n_in_run = self.by_run.get(&of.run).copied().unwrap_or(0);
        let n_of_task = self.by_task.get(&task_of(of)).copied().unwrap_or(0);
        is_pool_open
            && n_in_run < of.max_active_tasks
            && of.max_active_tis_per_dag.is_none_or(|max| n_of_task < max)
    }
}

fn is_waiting_outside(of: &Bounded<'_>) -> bool {
    of.row.state.is_some_and(TaskState::is_waiting_outside)
}

fn task_of<'a>(of: &Bounded<'a>) -> (&'a str, &'a str) {
    (&of.row.key.run.dag_id, &of.row.key.task_id)
}

/// Which of the candidates get a slot beside those that hold one or gave up their worker, as (run, instance). A pool that
/// does not exist has no slots.
///
/// The order is priority weight, logical date, map index, age of the run, and then the order in which the candidates
/// come. Costs a sort of the candidates where a slot is free, and nothing where there is no candidate.
pub fn admit(
    mut candidates: Vec<Bounded<'_>>,
    holding: &[Bounded<'_>],
    pools: &BTreeMap<String, Pool>,
    parallelism: u32,
) -> Vec<(usize, usize)> {
    let mut admitted = Vec::new();
    let n_running = || holding.iter().filter(|of| !is_waiting_outside(of)).count();
    if candidates.is_empty() || n_running() >= parallelism as usize {
        return admitted;
    }
    candidates.sort_by_key(|of| {
        (
            Reverse(of.row.priority_weight),
            of.logical_date,
            of.row.key.map_index,
            of.run_queued_at,
        )
    });
    let mut slots = Slots::taken_by(holding, &candidates, pools);
    for candidate in candidates {
        if slots.total >= parallelism {
            break;
        }
        if slots.has_room_for(&candidate, pools) {
            slots.take(&candidate);
            admitted.push((candidate.run, candidate.instance));
        }
    }
    admitted
}
