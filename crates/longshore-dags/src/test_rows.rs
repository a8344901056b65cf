//! Rows for tests.

use longshore_store::{RunKey, TaskInstance, TaskKey, TaskState};
use uuid::Uuid;

/// A task instance whose first try is queued.
pub(crate) fn queued(id: Uuid, run: &RunKey, task_id: &str) -> TaskInstance {
    TaskInstance {
        id,
        key: TaskKey {
            run: run.clone(),
            task_id: task_id.to_owned(),
            map_index: -1,
        },
        state: Some(TaskState::Queued),
        try_number: 1,
        max_tries: 0,
        launch: 1,
        launch_failures: 0,
        pool: "default_pool".to_owned(),
        pool_slots: 1,
        priority_weight: 1,
        scheduled_at: None,
        queued_at: None,
        start_date: None,
        end_date: None,
        pod_name: None,
        pod_uid: None,
        failure: None,
        result: None,
        version: 1,
    }
}
