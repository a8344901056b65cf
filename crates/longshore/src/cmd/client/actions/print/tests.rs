use longshore_api::flyte::{REASON_COMPLETED, REASON_INVALID_SPEC};
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-11-21T01:00:44Z".parse().unwrap()
}

/// The TaskAction of a real run of the SDK.
fn completed() -> Value {
    serde_saphyr::from_str(include_str!(
        "../../../../../../longshore-api/testdata/sdk-root-taskaction.yaml"
    ))
    .unwrap()
}

fn failed() -> Value {
    json!({
        "metadata": {
            "namespace": "flyte", "name": "r-a0", "creationTimestamp": "2026-11-21T01:00:00Z",
        },
        "spec": {"runName": "r", "actionName": "a0", "taskType": "python"},
        "status": {
            "attempts": 2,
            "conditions": [
                {"type": "Progressing", "status": "False", "reason": "PermanentFailure", "message": "m", "lastTransitionTime": "2026-11-21T01:00:30Z"},
                {"type": "Failed", "status": "True", "reason": "PermanentFailure", "message": "\r\n[main] terminated with exit code (1).\u{1b}[2J", "lastTransitionTime": "2026-11-21T01:00:30Z"},
            ],
            "errorState": {"code": "Error", "kind": "USER", "message": "m"},
            "phaseHistory": [
                {"phase": "Queued", "occurredAt": "2026-11-21T01:00:00Z", "message": "task submitted to K8s"},
                {"phase": "PermanentFailure", "occurredAt": "2026-11-21T01:00:30Z", "message": "\r\n[main] terminated"},
            ],
        },
    })
}

fn new() -> Value {
    json!({"metadata": {"namespace": "flyte", "name": "n-a0", "creationTimestamp": "2026-11-21T01:00:40Z"}})
}

#[test]
fn lists_are_tables() {
    let actions = [completed(), failed(), new()].map(|object| Action::of(&object));
    assert_eq!(
        table(&actions, now(), Detail::Short).render(),
        concat!(
            "ACTION                   RUN                   TYPE    PHASE             ATTEMPT  AGE   REASON\n",
            "r262bp7cwq8cdd24fh4f-a0  r262bp7cwq8cdd24fh4f  python  Completed         1        2m0s  TaskAction completed successfully\n",
            "r-a0                     r                     python  PermanentFailure  2        44s   Error: [main] terminated with exit code (1).\n",
            "n-a0                     -                     -       -                 1        4.0s  -\n",
        )
    );
    assert_eq!(
        table(&actions, now(), Detail::Full).render(),
        concat!(
            "ACTION                   RUN                   TYPE    PHASE             ATTEMPT  AGE   REASON                                        NAMESPACE  SYSTEM FAILURES  DURATION  ENDED\n",
            "r262bp7cwq8cdd24fh4f-a0  r262bp7cwq8cdd24fh4f  python  Completed         1        2m0s  TaskAction completed successfully             flyte      0                38s       2026-11-21T00:59:22Z\n",
            "r-a0                     r                     python  PermanentFailure  2        44s   Error: [main] terminated with exit code (1).  flyte      0                30s       2026-11-21T01:00:30Z\n",
            "n-a0                     -                     -       -                 1        4.0s  -                                             flyte      0                4.0s      -\n",
        )
    );
}

#[test]
fn a_list_says_who_holds_an_action_whose_phase_says_nothing() {
    let mut held = new();
    let at = "2026-11-21T01:00:41Z";
    let said = "s3://b/o/a0/1/error.pb cannot be read: AccessDenied";
    held["status"] = json!({
        "conditions": [
            {"type": "Progressing", "status": "True", "reason": "Executing", "message": "", "lastTransitionTime": at},
            {"type": "Waiting", "status": "True", "reason": "Refused", "message": said, "lastTransitionTime": at},
        ],
        "phaseHistory": [{"phase": "Executing", "occurredAt": at, "message": ""}],
    });
    let listed = |object: &Value| table(&[Action::of(object)], now(), Detail::Short).render();
    assert!(listed(&held).contains(said), "{}", listed(&held));
    held["status"]["conditions"][1]["status"] = "False".into();
    assert!(!listed(&held).contains(said), "{}", listed(&held));
}

#[test]
fn an_action_is_fields_and_its_history() {
    assert_eq!(
        text(&Action::of(&failed()), now()),
        concat!(
            "Action:           r-a0\n",
            "Namespace:        flyte\n",
            "Run:              r, action a0\n",
            "Type:             python\n",
            "Phase:            PermanentFailure\n",
            "Reason:           Error: [main] terminated with exit code (1).\n",
            "Failed by:        the task\n",
            "Attempt:          2\n",
            "System failures:  0\n",
            "Created:          2026-11-21T01:00:00Z\n",
            "Ended:            2026-11-21T01:00:30Z\n",
            "Duration:         30s\n",
            "\n",
            "PHASE             AT                    MESSAGE\n",
            "Queued            2026-11-21T01:00:00Z  task submitted to K8s\n",
            "PermanentFailure  2026-11-21T01:00:30Z  [main] terminated\n",
        )
    );
}

#[test]
fn progress_and_end_are_lines() {
    let action = Action::of(&failed());
    let lines: Vec<String> = action
        .history
        .iter()
        .map(|entry| line(&action, entry))
        .collect();
    assert_eq!(
        lines,
        [
            "   <1s  Queued              task submitted to K8s",
            "   30s  PermanentFailure    [main] terminated",
        ]
    );
    assert_eq!(
        end(&Action::of(&completed())),
        "action r262bp7cwq8cdd24fh4f-a0 Completed in 38s\n"
    );
}

#[test]
fn field_names_are_an_interface() {
    assert_eq!(
        serde_json::to_value(Action::of(&failed())).unwrap(),
        json!({
            "namespace": "flyte", "name": "r-a0", "run": "r", "action": "a0", "taskType": "python",
            "phase": "PermanentFailure", "isOver": true, "isFailed": true, "isDeleting": false,
            "attempt": 2, "systemFailures": 0,
            "message": "\r\n[main] terminated with exit code (1).\u{1b}[2J",
            "error": {"code": "Error", "kind": "USER", "message": "m"},
            "createdAt": "2026-11-21T01:00:00Z", "endedAt": "2026-11-21T01:00:30Z",
            "history": [
                {"phase": "Queued", "at": "2026-11-21T01:00:00Z", "message": "task submitted to K8s"},
                {"phase": "PermanentFailure", "at": "2026-11-21T01:00:30Z", "message": "\r\n[main] terminated"},
            ],
        })
    );
}

#[test]
fn an_action_that_is_being_deleted_says_so_until_it_has_ended() {
    let mut deleting = new();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-21T01:00:41Z");
    assert_eq!(phase(&Action::of(&deleting)), "Deleting");
    let mut ended = completed();
    ended["metadata"]["deletionTimestamp"] = json!("2026-11-21T01:00:41Z");
    assert_eq!(phase(&Action::of(&ended)), REASON_COMPLETED);
}

#[test]
fn an_action_that_was_refused_has_failed_without_history() {
    let mut invalid = new();
    let at = "2026-11-21T01:00:41Z";
    invalid["status"]["conditions"] = json!([
        {"type": "Progressing", "status": "False", "reason": REASON_INVALID_SPEC, "message": "why", "lastTransitionTime": at},
        {"type": "Failed", "status": "True", "reason": REASON_INVALID_SPEC, "message": "why", "lastTransitionTime": at},
    ]);
    let action = Action::of(&invalid);
    assert!(action.is_over && action.is_failed);
    assert_eq!(reason(&action), "why");
    assert_eq!(phase(&action), REASON_INVALID_SPEC);
}
