//! Rows to store.

use jiff::{SignedDuration, Timestamp};
use longshore_store::{
    ArchivedTry, Changes, Failure, Run, RunDetails, RunKey, RunState, RunType, StoredDocument,
    TaskInstance, TaskState,
};
use serde_json::json;
use uuid::Uuid;

/// An instant, some seconds into the samples' day, with all nine digits in use.
pub(crate) fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-11-21T10:00:00.123456789Z".parse().unwrap();
    start + SignedDuration::from_secs(seconds)
}

pub(crate) fn run_key(run_id: &str) -> RunKey {
    RunKey {
        dag_id: "sales".to_owned(),
        run_id: run_id.to_owned(),
    }
}

/// The document of `run`.
pub(crate) fn document() -> StoredDocument {
    StoredDocument::of(&json!({"dag_id": "sales"}))
}

/// The document of `full_run`.
pub(crate) fn full_document() -> StoredDocument {
    StoredDocument::of(
        &json!({"tasks": {"load": {"unknown_field": 18_446_744_073_709_551_615_u64}}}),
    )
}

/// A running run that was not stored yet, with most fields empty.
pub(crate) fn run(run_id: &str) -> Run {
    Run {
        key: run_key(run_id),
        run_type: RunType::Manual,
        state: RunState::Running,
        logical_date: None,
        queued_at: at(0),
        start_date: None,
        end_date: None,
        conf: json!({}),
        dag_hash: document().hash().clone(),
        is_prepared: false,
        reason: None,
        details: RunDetails::default(),
        version: 0,
    }
}

/// A run with every field in use.
pub(crate) fn full_run(run_id: &str) -> Run {
    Run {
        run_type: RunType::Backfill,
        state: RunState::Queued,
        logical_date: Some("-009999-01-02T01:59:59Z".parse().unwrap()),
        start_date: Some(at(1)),
        end_date: Some(Timestamp::MAX),
        conf: json!({"days": 3, "name": "ünï \u{0} 'quoted'", "deep": [null, true, {"x": -1}]}),
        dag_hash: full_document().hash().clone(),
        is_prepared: true,
        reason: Some("timed_out".to_owned()),
        details: RunDetails {
            run_after: Some(at(9)),
            data_interval: Some((at(7), at(8))),
            dag_version: None,
            bundle_version: Some("4f2a".to_owned()),
            clear_number: 3,
            triggered_by: Some("anna".to_owned()),
            note: Some("again".to_owned()),
        },
        ..run(run_id)
    }
}

/// A task instance that was not stored yet, with most fields empty.
pub(crate) fn task(run_id: &str, task_id: &str) -> TaskInstance {
    TaskInstance::new(Uuid::now_v7(), run_key(run_id).task(task_id))
}

/// A task instance with every field in use.
pub(crate) fn full_task(run_id: &str, task_id: &str) -> TaskInstance {
    let mut full = task(run_id, task_id);
    full.key.map_index = 7;
    TaskInstance {
        state: Some(TaskState::UpForRetry),
        try_number: 2,
        max_tries: u32::MAX,
        launch: 2,
        launch_failures: 1,
        pool: "narrow".to_owned(),
        pool_slots: 4,
        priority_weight: i64::MIN,
        scheduled_at: Some(at(1)),
        queued_at: Some(at(2)),
        start_date: Some(at(3)),
        end_date: Some(at(4)),
        pod_name: Some("sales-load-abcd1234".to_owned()),
        pod_uid: Some("6c1f8c50-0000-4000-8000-000000000001".to_owned()),
        failure: Some(Failure {
            message: "container base ended with exit code 137".to_owned(),
            reason: Some("OOMKilled".to_owned()),
            exit_code: Some(137),
            container: Some("base".to_owned()),
        }),
        result: Some(json!({"rows": 12, "empty": null})),
        result_note: Some("the result is not JSON".to_owned()),
        ..full
    }
}

/// The same row as it reads after its commit.
pub(crate) fn stored_run(run: &Run) -> Run {
    Run {
        version: run.version + 1,
        ..run.clone()
    }
}

/// The same row as it reads after its commit.
pub(crate) fn stored(task: &TaskInstance) -> TaskInstance {
    TaskInstance {
        version: task.version + 1,
        ..task.clone()
    }
}

/// The same task instance in its next try.
pub(crate) fn next_try(task: &TaskInstance) -> TaskInstance {
    TaskInstance {
        id: Uuid::now_v7(),
        try_number: task.try_number.wrapping_add(1),
        ..task.clone()
    }
}

pub(crate) fn runs(runs: impl IntoIterator<Item = Run>) -> Changes {
    Changes {
        documents: vec![document(), full_document()],
        runs: runs.into_iter().collect(),
        ..Changes::default()
    }
}

pub(crate) fn tasks(tasks: impl IntoIterator<Item = TaskInstance>) -> Changes {
    Changes {
        task_instances: tasks.into_iter().collect(),
        ..Changes::default()
    }
}

pub(crate) fn archive(tasks: impl IntoIterator<Item = TaskInstance>) -> Vec<ArchivedTry> {
    let archived = |task_instance| ArchivedTry { task_instance };
    tasks.into_iter().map(archived).collect()
}
