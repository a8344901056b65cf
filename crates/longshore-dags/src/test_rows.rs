//! Rows for tests.

use longshore_store::{RunKey, TaskInstance, TaskKey, TaskState};
use uuid::Uuid;

/// A task instance whose first try is queued.
pub(crate) fn queued(id: Uuid, run: &RunKey, task_id: &str) -> TaskInstance {
    let key = TaskKey {
        run: run.clone(),
        task_id: task_id.to_owned(),
        map_index: -1,
    };
    TaskInstance {
        state: Some(TaskState::Queued),
        try_number: 1,
        launch: 1,
        version: 1,
        ..TaskInstance::new(id, key)
    }
}
