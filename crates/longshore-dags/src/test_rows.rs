//! Rows for tests.

use longshore_store::{RunKey, TaskInstance, TaskState};
use uuid::Uuid;

/// A task instance whose first try is queued.
pub(crate) fn queued(id: Uuid, run: &RunKey, task_id: &str) -> TaskInstance {
    TaskInstance {
        state: Some(TaskState::Queued),
        try_number: 1,
        launch: 1,
        version: 1,
        ..TaskInstance::new(id, run.task(task_id))
    }
}
