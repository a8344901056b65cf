//! The event table, row by row.

use serde_json::{Value, json};

use super::*;
use crate::launch::launched::{fact_of, launch_of, view_of};

const TI_ID: &str = "01939f2e-0000-7000-8000-000000000001";

fn action(status: &Value, is_deleting: bool) -> TaskAction {
    let mut action = json!({
        "apiVersion": "flyte.org/v1", "kind": "TaskAction",
        "metadata": {
            "name": "r-a", "namespace": "default", "uid": "u1", "resourceVersion": "42",
            "annotations": {"task_instance_id": TI_ID, "longshore.dev/launch": "3"},
        },
        "status": status,
    });
    if is_deleting {
        action["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:20Z");
    }
    serde_json::from_value(action).unwrap()
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "a message",
        "lastTransitionTime": "2026-01-01T00:00:09Z",
    })
}

fn executing() -> Value {
    json!({"phase": "Executing", "occurredAt": "2026-01-01T00:00:05Z"})
}

fn at(text: &str) -> Option<Timestamp> {
    Some(text.parse().unwrap())
}

#[test]
fn each_state_of_an_action_means_one_thing() {
    use WatchedEvent::{Applied, Deleted};
    let started_at = at("2026-01-01T00:00:05Z");
    let ended_at = at("2026-01-01T00:00:09Z");
    let queued = json!({"conditions": [condition("Progressing", "True", "Queued")]});
    let runs = json!({
        "conditions": [condition("Progressing", "True", "Executing")], "phaseHistory": [executing()],
    });
    let again = json!({
        "conditions": [condition("Progressing", "True", "Queued")], "phaseHistory": [executing()],
    });
    let done = json!({
        "conditions": [condition("Succeeded", "True", "Completed")], "phaseHistory": [executing()],
    });
    let failed = json!({
        "conditions": [condition("Failed", "True", "PermanentFailure")], "phaseHistory": [executing()],
        "errorState": {"code": "OOMKilled", "kind": "USER"},
    });
    let invalid = json!({"conditions": [condition("Failed", "True", "InvalidSpec")]});
    let aborted = json!({"conditions": [condition("Failed", "True", "Aborted")]});
    let succeeded = LaunchChange::Succeeded {
        started_at,
        ended_at,
        was_stopped: false,
        result: None,
        note: None,
    };
    let failure = |reason: &str, started_at| LaunchChange::Failed {
        started_at,
        ended_at,
        failure: Failure {
            message: "a message".to_owned(),
            reason: Some(reason.to_owned()),
            exit_code: None,
            container: None,
        },
        before_start: false,
    };
    let running = LaunchChange::Running { started_at };
    let (live, well, badly) = (
        LaunchedPhase::Live,
        LaunchedPhase::Succeeded,
        LaunchedPhase::Failed,
    );
    for (event, status, is_deleting, expected, phase) in [
        (Applied, &Value::Null, false, LaunchChange::Seen, live),
        (
            Applied,
            &json!({"conditions": 1}),
            false,
            LaunchChange::Seen,
            live,
        ),
        (Applied, &queued, false, LaunchChange::Seen, live),
        (Applied, &queued, true, LaunchChange::Seen, live),
        (Applied, &runs, false, running.clone(), live),
        (Applied, &again, false, running, live),
        (Applied, &done, false, succeeded.clone(), well),
        (Applied, &done, true, succeeded.clone(), well),
        (Deleted, &done, true, succeeded, well),
        (
            Applied,
            &failed,
            false,
            failure("OOMKilled", started_at),
            badly,
        ),
        (
            Deleted,
            &failed,
            true,
            failure("OOMKilled", started_at),
            badly,
        ),
        (
            Applied,
            &invalid,
            false,
            failure("InvalidSpec", None),
            badly,
        ),
        (Applied, &aborted, true, LaunchChange::Seen, live),
        (Applied, &aborted, false, failure("Aborted", None), badly),
        (Deleted, &aborted, true, LaunchChange::Gone, live),
        (Deleted, &runs, true, LaunchChange::Gone, live),
        (Deleted, &Value::Null, true, LaunchChange::Gone, live),
    ] {
        let action = action(status, is_deleting);
        let what = format!("{event:?} {status} {is_deleting}");
        assert_eq!(fact_of(event, &action).unwrap().what, expected, "{what}");
        assert_eq!(action.phase(), phase, "{what}");
    }
}

#[test]
fn an_action_says_which_launch_of_which_try_it_is() {
    let action = action(&Value::Null, false);
    assert_eq!(launch_of(&action), Some((TI_ID.parse().unwrap(), 3)));
    let view = view_of(&action).unwrap();
    assert_eq!(view.object.to_string(), "TaskAction default/r-a");
    let fact = fact_of(WatchedEvent::Applied, &action).unwrap();
    assert_eq!((&*fact.pod_name, &*fact.pod_uid), ("r-a", "u1"));
    let mut others = action;
    others.metadata.annotations = None;
    assert_eq!(fact_of(WatchedEvent::Applied, &others), None);
}
