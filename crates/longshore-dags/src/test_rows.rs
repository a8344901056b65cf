//! Rows for tests.

use std::{cell::RefCell, collections::BTreeMap};

use longshore_store::{RunKey, TaskInstance, TaskState};
use serde_json::Value;
use uuid::Uuid;

use crate::pods::template::Results;

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

/// What the tasks of a run left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) results: BTreeMap<String, Value>,
    pub(crate) notes: BTreeMap<String, String>,
    /// The tasks whose results were read, in order.
    pub(crate) read: RefCell<Vec<String>>,
}

impl Left {
    /// These results.
    pub(crate) fn of(results: BTreeMap<String, Value>) -> Self {
        Self {
            results,
            ..Self::default()
        }
    }
}

impl Results for Left {
    fn result(&self, task_id: &str) -> Option<&Value> {
        self.read.borrow_mut().push(task_id.to_owned());
        self.results.get(task_id)
    }

    fn note(&self, task_id: &str) -> Option<&str> {
        self.notes.get(task_id).map(String::as_str)
    }
}
