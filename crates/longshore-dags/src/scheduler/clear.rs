//! Which task instances a user wants to run again (section 6.5 of the DAG scheduler spec).
//!
//! A request names tries, not tasks: a decision that is repeated, because the response to its commit was lost, then
//! changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_store::{Run, RunKey, TaskInstance, TaskState};
use uuid::Uuid;

use crate::scheduler::{board::ActiveRun, run_state::is_ended_early, shape::reachable};

/// What a clear asks for, in the words of Airflow's `clearTaskInstances`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// These tasks; all where it is empty.
    pub task_ids: BTreeSet<String>,
    /// And all that they wait for, however far away; `include_upstream`.
    pub includes_upstream: bool,
    /// And all that wait for them, however far away; `include_downstream`.
    pub includes_downstream: bool,
    /// Of all these, those in such a state.
    pub states: States,
}

/// The states in which a task instance is cleared. One that has not been looked at yet never is: there is nothing to
/// do again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum States {
    /// Any.
    #[default]
    Any,
    /// Failed, itself or because of something before it; `only_failed`.
    Failed,
    /// Those, and all that were skipped because the run was ended early.
    NotDone,
}

impl Selection {
    /// What a retry of a run means: all that did not get done.
    pub fn not_done() -> Self {
        Self {
            states: States::NotDone,
            ..Self::default()
        }
    }

    /// The tries that it means in a run, with their tasks.
    ///
    /// # Errors
    /// The id of a task that the run does not have.
    pub fn tries(&self, active: &ActiveRun) -> Result<BTreeMap<Uuid, String>, String> {
        let shape = &active.shape;
        let mut named = BTreeSet::new();
        for task_id in &self.task_ids {
            let number = *shape.numbers.get(task_id).ok_or_else(|| task_id.clone())?;
            named.insert(number);
        }
        let mut numbers = named.clone();
        if self.includes_upstream {
            numbers.extend(reachable(named.iter().copied(), &shape.upstream));
        }
        if self.includes_downstream {
            numbers.extend(reachable(named, &shape.downstream));
        }
        let is_selected = |number: &usize| self.task_ids.is_empty() || numbers.contains(number);
        let is_task_selected = |row: &TaskInstance| {
            let number = shape.numbers.get(&row.key.task_id);
            number.is_some_and(is_selected)
        };
        let rows = active.tasks.values();
        let rows = rows.filter(|row| is_task_selected(row) && self.is_meant(&active.run, row));
        Ok(rows.map(|row| (row.id, row.key.task_id.clone())).collect())
    }

    fn is_meant(&self, run: &Run, row: &TaskInstance) -> bool {
        let is_failed = matches!(
            row.state,
            Some(TaskState::Failed | TaskState::UpstreamFailed)
        );
        match self.states {
            States::Any => is_clearable(row),
            States::Failed => is_failed,
            States::NotDone => {
                is_failed || (row.state == Some(TaskState::Skipped) && is_ended_early(run))
            }
        }
    }
}

/// Whether clearing this row changes anything.
pub(crate) fn is_clearable(row: &TaskInstance) -> bool {
    match row.state {
        None | Some(TaskState::Restarting | TaskState::Removed) => false,
        Some(
            TaskState::Scheduled
            | TaskState::Queued
            | TaskState::Running
            | TaskState::Success
            | TaskState::Failed
            | TaskState::UpForRetry
            | TaskState::UpForReschedule
            | TaskState::Deferred
            | TaskState::AwaitingInput
            | TaskState::UpstreamFailed
            | TaskState::Skipped,
        ) => true,
    }
}

/// A clear with its selection resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Clearing {
    /// The run.
    pub run: RunKey,
    /// The tries that are to be followed by new ones. One that is not current any more was followed already.
    pub tries: BTreeSet<Uuid>,
    /// The run as the store had it, where it is over: the board holds unfinished runs only.
    pub stored: Option<Arc<ActiveRun>>,
}
