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

/// What an action with this condition means, once it has begun to run or before.
#[track_caller]
fn check(
    event: WatchedEvent,
    (status, is_deleting): (&Value, bool),
    expected: &LaunchChange,
    phase: LaunchedPhase,
) {
    let action = action(status, is_deleting);
    assert_eq!(
        fact_of(event, &action).unwrap().what,
        *expected,
        "{event:?} {status} {is_deleting}"
    );
    assert_eq!(action.phase(), phase, "{event:?} {status} {is_deleting}");
}

#[test]
fn an_action_that_has_not_ended_runs_or_is_there() {
    use WatchedEvent::{Applied, Deleted};
    let queued = json!({"conditions": [condition("Progressing", "True", "Queued")]});
    let runs = json!({
        "conditions": [condition("Progressing", "True", "Executing")], "phaseHistory": [executing()],
    });
    let again = json!({
        "conditions": [condition("Progressing", "True", "Queued")], "phaseHistory": [executing()],
    });
    let aborted = json!({"conditions": [condition("Failed", "True", "Aborted")]});
    let running = LaunchChange::Running {
        started_at: at("2026-01-01T00:00:05Z"),
    };
    let live = LaunchedPhase::Live;
    for (status, is_deleting, expected) in [
        (&Value::Null, false, &LaunchChange::Exists),
        (&json!({"conditions": 1}), false, &LaunchChange::Exists),
        (&queued, false, &LaunchChange::Exists),
        (&queued, true, &LaunchChange::Exists),
        (&runs, false, &running),
        (&again, false, &running),
        (&aborted, true, &LaunchChange::Exists),
    ] {
        check(Applied, (status, is_deleting), expected, live);
        check(Deleted, (status, true), &LaunchChange::Lost, live);
    }
    // Without a finalizer no executor has taken it up.
    let nothing = (&Value::Null, false);
    check(Deleted, nothing, &LaunchChange::Gone, live);
    check(WatchedEvent::Vanished, nothing, &LaunchChange::Lost, live);
}

#[test]
fn an_action_that_has_ended_says_how_even_when_it_is_gone() {
    use WatchedEvent::{Applied, Deleted};
    let started_at = at("2026-01-01T00:00:05Z");
    let ended_at = at("2026-01-01T00:00:09Z");
    let ended = |kind: &str, reason: &str, code: &str| {
        json!({
            "conditions": [condition(kind, "True", reason)],
            "phaseHistory": [executing()],
            "errorState": {"code": code, "kind": "USER"},
        })
    };
    let succeeded = LaunchChange::Succeeded {
        started_at,
        ended_at,
        was_stopped: false,
        result: None,
        note: None,
    };
    let failed = |reason: &str| LaunchChange::Failed {
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
    let (well, badly) = (LaunchedPhase::Succeeded, LaunchedPhase::Failed);
    for (status, expected, phase) in [
        (ended("Succeeded", "Completed", ""), succeeded, well),
        (
            ended("Failed", "PermanentFailure", "OOMKilled"),
            failed("OOMKilled"),
            badly,
        ),
        (
            ended("Failed", "InvalidSpec", ""),
            failed("InvalidSpec"),
            badly,
        ),
    ] {
        check(Applied, (&status, false), &expected, phase);
        check(Applied, (&status, true), &expected, phase);
        check(Deleted, (&status, true), &expected, phase);
    }
    // Without a deletion, an aborted TaskAction has failed.
    let aborted = ended("Failed", "Aborted", "");
    check(Applied, (&aborted, false), &failed("Aborted"), badly);
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
