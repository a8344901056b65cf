//! State changes as people follow them: published after the commit that made them, and what keeps pods from their start.

use jiff::Timestamp;
use longshore_store::{Failure, Run, RunKey, RunState, TaskInstance, TaskState};

/// One change of a run or of a task instance.
#[derive(Clone, Debug, PartialEq)]
pub struct StateChange {
    /// When it was committed, or seen.
    pub at: Timestamp,
    /// The run that it belongs to.
    pub run: RunKey,
    /// What changed.
    pub change: Change,
}

/// What changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The run itself.
    Run {
        /// Its state before; `None` for a new run.
        from: Option<RunState>,
        /// Its state now.
        to: RunState,
        /// Why, where the states do not say so.
        reason: Option<String>,
    },
    /// A task instance.
    Task {
        /// The task.
        task_id: String,
        /// -1 for an unmapped task.
        map_index: i32,
        /// Its state before; `None` before its dependencies held.
        from: Option<TaskState>,
        /// Its state now.
        to: Option<TaskState>,
        /// The try that is meant: the one that ended, or the one that starts.
        try_number: u32,
        /// Its pod, once it has one.
        pod: Option<String>,
        /// Why the try ended badly.
        failure: Option<Failure>,
    },
    /// What keeps the pod of a queued try from its start. It is not committed: only those who follow the run learn of it.
    Pending {
        /// The task.
        task_id: String,
        /// -1 for an unmapped task.
        map_index: i32,
        /// `None` where nothing does any more.
        message: Option<String>,
    },
}

impl StateChange {
    /// What a commit changed of a run, if anything that people follow.
    pub(crate) fn of_run(at: Timestamp, before: Option<&Run>, after: &Run) -> Option<Self> {
        let from = before.map(|run| run.state);
        let change = Change::Run {
            from,
            to: after.state,
            reason: after.reason.clone(),
        };
        (from != Some(after.state)).then(|| Self {
            at,
            run: after.key.clone(),
            change,
        })
    }

    /// What a commit changed of a task instance, if anything that people follow.
    pub(crate) fn of_task(
        at: Timestamp,
        before: Option<&TaskInstance>,
        after: &TaskInstance,
    ) -> Option<Self> {
        let from = before.and_then(|row| row.state);
        let is_relaunch = before.is_some_and(|row| row.launch < after.launch);
        if from == after.state && !is_relaunch {
            return None;
        }
        let has_failed = matches!(after.state, Some(TaskState::Failed | TaskState::UpForRetry));
        let change = Change::Task {
            task_id: after.key.task_id.clone(),
            map_index: after.key.map_index,
            from,
            to: after.state,
            try_number: after.try_number,
            pod: after.pod_name.clone(),
            failure: after.failure.clone().filter(|_| has_failed),
        };
        Some(Self {
            at,
            run: after.key.run.clone(),
            change,
        })
    }
}
