//! What the scheduler tells about a run.

use jiff::Timestamp;
use longshore_store::{Failure, RunKey, RunState, TaskState};

/// One transition of a run or of one of its task instances, told after it was committed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StateChange {
    /// When.
    pub(crate) at: Timestamp,
    /// The run.
    pub(crate) run: RunKey,
    /// What changed.
    pub(crate) change: Change,
}

/// What changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The run itself.
    Run {
        /// The state before; `None` for a new run.
        from: Option<RunState>,
        /// The state now.
        to: RunState,
        /// Why, where that is not plain from the tasks.
        reason: Option<String>,
    },
    /// A task instance.
    Task {
        /// The task.
        task_id: String,
        /// -1 for an unmapped task.
        map_index: i32,
        /// The try, from 1.
        try_number: u32,
        /// The state before; `None` before the dependencies held.
        from: Option<TaskState>,
        /// The state now.
        to: Option<TaskState>,
        /// The pod of the current launch.
        pod: Option<String>,
        /// Why the try ended badly.
        failure: Option<Failure>,
    },
}
