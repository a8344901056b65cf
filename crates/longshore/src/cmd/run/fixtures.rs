//! Ended runs, for the tests of reports.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use longshore_store::{
    Run, RunDetails, RunKey, RunState, RunType, StoredDocument, TaskInstance, TaskState,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    engine::{End, TaskEnd, Workspace},
    progress::fixtures::{at, exit_code_1},
};

fn run(state: RunState) -> Run {
    Run {
        key: RunKey {
            dag_id: "etl".to_owned(),
            run_id: "manual__1".to_owned(),
        },
        run_type: RunType::Manual,
        state,
        logical_date: None,
        queued_at: at(0),
        start_date: Some(at(100)),
        end_date: state.is_finished().then(|| at(8_100)),
        conf: Value::Null,
        dag_hash: StoredDocument::of(&Value::Null).hash().clone(),
        is_prepared: true,
        reason: None,
        details: RunDetails::default(),
        version: 1,
    }
}

/// A task instance that took 1.5 s; `None` has not started.
pub(crate) fn task(task_id: &str, state: Option<TaskState>) -> TaskEnd {
    let started: Option<Timestamp> = state.map(|_| at(1_000));
    let run = RunKey {
        dag_id: "etl".to_owned(),
        run_id: "manual__1".to_owned(),
    };
    TaskEnd {
        task_instance: TaskInstance {
            state,
            try_number: u32::from(state.is_some()),
            launch: 1,
            scheduled_at: started,
            queued_at: started,
            start_date: started,
            end_date: started.map(|at| at + SignedDuration::from_millis(1_500)),
            pod_name: state.map(|_| format!("etl-{task_id}-x1")),
            failure: (state == Some(TaskState::Failed)).then(exit_code_1),
            version: 1,
            ..TaskInstance::new(Uuid::nil(), run.task(task_id))
        },
        log: None,
    }
}

/// A run that took 8 s, with its tasks.
pub(crate) fn end(state: RunState, tasks: Vec<TaskEnd>) -> End {
    End {
        run: run(state),
        tasks,
        workspace: Some(Workspace::Directory("/data/workspaces/etl".into())),
        logs: PathBuf::from("/data/logs"),
    }
}
