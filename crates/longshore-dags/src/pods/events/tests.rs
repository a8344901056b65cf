//! The event table, row by row.

use serde_json::{Value, json};

use super::*;
use crate::launch::launched::fact_of;

const TI_ID: &str = "01939f2e-0000-7000-8000-000000000001";

fn pod(status: Value) -> LaunchedPod {
    serde_json::from_value(json!({
        "metadata": {
            "name": "d-t-abcdefgh",
            "uid": "u1",
            "resourceVersion": "42",
            "annotations": {"task_instance_id": TI_ID, "longshore.dev/launch": "3"},
        },
        "status": status,
    }))
    .unwrap()
}

fn applied(status: Value) -> LaunchChange {
    fact_of(WatchedEvent::Applied, &pod(status)).unwrap().what
}

fn deleted(status: Value) -> LaunchChange {
    fact_of(WatchedEvent::Deleted, &pod(status)).unwrap().what
}

/// A status with one container status for each name and state.
fn with(phase: &str, containers: &[(&str, Value)]) -> Value {
    json!({"phase": phase, "containerStatuses": statuses(containers)})
}

fn statuses(containers: &[(&str, Value)]) -> Value {
    let one = |(name, state): &(&str, Value)| {
        json!({
            "name": name, "state": state,
            "image": "", "imageID": "", "ready": false, "restartCount": 0,
        })
    };
    containers.iter().map(one).collect()
}

fn ended(exit_code: i32, reason: &str, message: &str) -> Value {
    json!({"terminated": {
        "exitCode": exit_code, "reason": reason, "message": message,
        "startedAt": "2026-11-21T10:00:00Z", "finishedAt": "2026-11-21T10:00:05Z",
    }})
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

fn at(text: &str) -> Option<Timestamp> {
    Some(text.parse().unwrap())
}

/// Unwraps a failure: what was seen, and whether it was before the start.
fn failed_as(change: LaunchChange) -> (Failure, bool) {
    let LaunchChange::Failed {
        failure,
        before_start,
        ..
    } = change
    else {
        panic!("{change:?}");
    };
    (failure, before_start)
}

#[test]
fn a_fact_names_the_try_the_launch_and_the_pod() {
    let fact = fact_of(WatchedEvent::Applied, &pod(json!({"phase": "Pending"}))).unwrap();
    assert_eq!((fact.ti_id.to_string().as_str(), fact.launch), (TI_ID, 3));
    assert_eq!(
        (fact.pod_name.as_str(), fact.pod_uid.as_str()),
        ("d-t-abcdefgh", "u1")
    );
    assert_eq!(fact.resource_version.as_deref(), Some("42"));
    assert_eq!(fact.what, LaunchChange::Exists);
}

#[test]
fn pods_that_do_not_say_which_launch_they_are_are_not_ours() {
    for annotations in [
        json!(null),
        json!({"longshore.dev/launch": "3"}),
        json!({"task_instance_id": TI_ID}),
        json!({"task_instance_id": "x", "longshore.dev/launch": "3"}),
        json!({"task_instance_id": TI_ID, "longshore.dev/launch": "-1"}),
    ] {
        let mut pod = pod(json!({"phase": "Failed"}));
        pod.metadata.annotations = serde_json::from_value(annotations).unwrap();
        assert_eq!(fact_of(WatchedEvent::Applied, &pod), None);
    }
}

#[test]
fn pods_on_their_way_are_seen_or_run() {
    assert_eq!(applied(json!({})), LaunchChange::Exists);
    assert_eq!(applied(json!({"phase": "Unknown"})), LaunchChange::Exists);
    assert_eq!(
        applied(with(
            "Pending",
            &[("base", waiting("ContainerCreating", ""))]
        )),
        LaunchChange::Exists
    );
    assert_eq!(
        applied(json!({"phase": "Running"})),
        LaunchChange::Running { started_at: None }
    );
    let running = json!({"running": {"startedAt": "2026-11-21T10:00:00Z"}});
    assert_eq!(
        applied(with(
            "Running",
            &[("sidecar", json!({})), ("base", running)]
        )),
        LaunchChange::Running {
            started_at: at("2026-11-21T10:00:00Z")
        }
    );
}

#[test]
fn a_pod_that_is_deleted_without_a_final_state_is_gone() {
    for phase in [json!({}), json!({"phase": "Pending"})] {
        assert_eq!(deleted(phase), LaunchChange::Gone);
    }
    let (failure, before_start) = failed_as(deleted(with(
        "Pending",
        &[("base", waiting("ErrImagePull", ""))],
    )));
    assert!(before_start);
    assert_eq!(failure.reason.as_deref(), Some("ErrImagePull"));
}

#[test]
fn a_pod_that_is_deleted_may_have_run_unless_its_node_has_seen_it_off() {
    let restarted = json!({"phase": "Pending", "containerStatuses": [{
        "name": "base", "image": "", "imageID": "", "ready": false, "restartCount": 1,
        "state": waiting("ErrImagePull", ""), "lastState": ended(1, "Error", ""),
    }]});
    for status in [json!({"phase": "Running"}), restarted] {
        assert_eq!(deleted(status), LaunchChange::Lost);
    }
    let unseen = |status| fact_of(WatchedEvent::Vanished, &pod(status)).unwrap().what;
    assert_eq!(unseen(json!({"phase": "Pending"})), LaunchChange::Lost);
    let stuck = with("Pending", &[("base", waiting("ErrImagePull", ""))]);
    assert!(failed_as(unseen(stuck)).1);
    let bound = json!({
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": statuses(&[("base", waiting("ErrImagePull", ""))]),
    });
    assert_eq!(deleted(bound.clone()), LaunchChange::Lost, "by force");
    let mut pod = pod(bound);
    pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let fact = fact_of(WatchedEvent::Deleted, &pod).unwrap();
    assert!(failed_as(fact.what).1, "by its node");
}

/// What kubelets say of a container that they have not made, and of one that is lost.
#[test]
fn a_container_that_its_kubelet_does_not_find_ran_if_it_was_made() {
    let unknown = json!({"terminated": {
        "exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null, "finishedAt": null,
    }});
    let unmade = with("Failed", &[("base", unknown)]);
    let mut made = unmade.clone();
    made["containerStatuses"][0]["containerID"] = "containerd://1".into();
    assert!(failed_as(applied(unmade.clone())).1);
    assert!(!failed_as(applied(made)).1);
    let mut of_lost_node = unmade;
    of_lost_node["conditions"] = json!([{
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
    }]);
    assert!(!failed_as(applied(of_lost_node)).1);
}

#[test]
fn a_final_state_counts_also_when_the_deletion_tells_it() {
    assert!(matches!(
        deleted(json!({"phase": "Succeeded"})),
        LaunchChange::Succeeded { .. }
    ));
    assert!(matches!(
        deleted(json!({"phase": "Failed"})),
        LaunchChange::Failed { .. }
    ));
}

#[test]
fn a_success_tells_whether_the_pod_was_stopped() {
    // It ended at :05, with a grace of 30 s.
    for (deletion, expected) in [
        (json!({}), false),
        (json!({"deletionTimestamp": "2026-11-21T10:00:34Z"}), true),
        (json!({"deletionTimestamp": "2026-11-21T10:00:35Z"}), true),
        (json!({"deletionTimestamp": "2026-11-21T10:00:36Z"}), false),
    ] {
        let mut meta = deletion;
        meta["deletionGracePeriodSeconds"] = 30.into();
        let base = ("base", ended(0, "Completed", ""));
        let mut pod = pod(with("Succeeded", &[base]));
        let ours = serde_json::to_value(&pod.metadata).unwrap();
        for (key, value) in ours.as_object().unwrap() {
            meta[key] = value.clone();
        }
        pod.metadata = serde_json::from_value(meta).unwrap();
        let fact = fact_of(WatchedEvent::Applied, &pod).unwrap();
        let LaunchChange::Succeeded { was_stopped, .. } = fact.what else {
            panic!("{fact:?}");
        };
        assert_eq!(was_stopped, expected, "{:?}", pod.metadata);
    }
}

#[test]
fn the_result_is_the_termination_message_of_the_main_container() {
    let result = |message: &str| {
        let sidecar = ("sidecar", ended(0, "Completed", "\"not this\""));
        let base = ("base", ended(0, "Completed", message));
        let change = applied(with("Succeeded", &[sidecar, base]));
        let LaunchChange::Succeeded {
            started_at,
            ended_at,
            was_stopped: false,
            result,
            note,
        } = change
        else {
            panic!("{change:?}");
        };
        assert_eq!(started_at, at("2026-11-21T10:00:00Z"));
        assert_eq!(ended_at, at("2026-11-21T10:00:05Z"));
        (result, note)
    };
    assert_eq!(result(""), (None, None));
    assert_eq!(result(" \n"), (None, None));
    assert_eq!(result("{\"rows\": 3}\n"), (Some(json!({"rows": 3})), None));
    assert_eq!(result("null"), (Some(Value::Null), None));
    let longest = format!("\"{}\"", "x".repeat(4094));
    assert_eq!(result(&longest), (Some(json!("x".repeat(4094))), None));
    let (value, note) = result(&format!("\"{}\"", "x".repeat(4095)));
    assert_eq!(value, None);
    assert_eq!(
        note.unwrap(),
        "the result has 4097 bytes, and the limit is 4096"
    );
    for cut in ["x", "é"] {
        let message = format!("\"{}", cut.repeat(4095 / cut.len()));
        let (value, note) = result(&message);
        assert_eq!(value, None);
        assert_eq!(
            note.unwrap(),
            "the result reached the limit of 4096 bytes, and what its node kept is not JSON"
        );
    }
    let (value, note) = result("done");
    assert_eq!(value, None);
    assert!(note.unwrap().starts_with("the result is not JSON: "));
}

#[test]
fn a_process_that_ended_badly_failed_after_its_start() {
    let (failure, before_start) = failed_as(applied(with(
        "Failed",
        &[("base", ended(3, "Error", "\n no such file \nx"))],
    )));
    assert!(!before_start);
    assert_eq!(
        failure,
        Failure {
            message: "Error: container `base` ended with exit code 3: no such file".to_owned(),
            reason: Some("Error".to_owned()),
            exit_code: Some(3),
            container: Some("base".to_owned()),
        }
    );
    let killed = json!({"terminated": {"exitCode": 137, "signal": 9, "reason": "OOMKilled"}});
    let (failure, before_start) = failed_as(applied(with("Failed", &[("base", killed)])));
    assert!(!before_start);
    let expected = "OOMKilled: container `base` ended with exit code 137 by signal 9";
    assert_eq!(failure.message, expected);
}

#[test]
fn the_reason_of_the_pod_beats_that_of_the_container() {
    let status = json!({
        "phase": "Failed", "reason": "Evicted", "message": "the node was low on memory",
        "containerStatuses": statuses(&[("base", ended(137, "Error", ""))]),
    });
    let (failure, before_start) = failed_as(applied(status));
    assert!(!before_start);
    assert_eq!(failure.reason.as_deref(), Some("Evicted"));
    assert_eq!(failure.exit_code, Some(137));
    assert_eq!(
        failure.message,
        "Evicted: the node was low on memory; container `base` ended with exit code 137"
    );
}

#[test]
fn pods_that_died_before_their_process_ran_say_so() {
    let init_failed = json!({
        "phase": "Failed",
        "initContainerStatuses": statuses(&[
            ("first", ended(0, "Completed", "")), ("second", ended(2, "Error", "")),
        ]),
        "containerStatuses": statuses(&[("base", waiting("PodInitializing", ""))]),
    });
    let never_ran = with(
        "Failed",
        &[("base", ended(128, "StartError", "exec: no such file"))],
    );
    for (status, reason, container) in [
        (init_failed, Some("Error"), Some("second")),
        (never_ran, Some("StartError"), Some("base")),
        (
            json!({"phase": "Failed", "reason": "Evicted"}),
            Some("Evicted"),
            None,
        ),
        (json!({"phase": "Failed"}), None, None),
        (
            json!({"phase": "Pending", "reason": "ProviderFailed"}),
            Some("ProviderFailed"),
            None,
        ),
    ] {
        let (failure, before_start) = failed_as(applied(status));
        assert!(before_start, "{failure:?}");
        assert_eq!(failure.reason.as_deref(), reason);
        assert_eq!(failure.container.as_deref(), container);
    }
}

#[test]
fn a_process_that_was_lost_or_ran_before_has_run() {
    let restarted = json!({"phase": "Failed", "containerStatuses": [{
        "name": "base", "image": "", "imageID": "", "ready": false, "restartCount": 1,
        "state": waiting("CrashLoopBackOff", ""), "lastState": ended(1, "Error", ""),
    }]});
    let lost = with(
        "Failed",
        &[("base", json!({"running": {"startedAt": null}}))],
    );
    for status in [restarted, lost] {
        assert!(!failed_as(applied(status)).1);
    }
}

/// Its node may still start it: only its end says that it has not run.
#[test]
fn a_pending_pod_that_waits_for_what_will_not_come_is_stuck() {
    let stuck_as = |status: Value| {
        let pod = pod(status);
        assert_eq!(pod.phase(), LaunchedPhase::Stuck);
        let what = fact_of(WatchedEvent::Applied, &pod).unwrap().what;
        let LaunchChange::Stuck { failure } = what else {
            panic!("{what:?}");
        };
        failure
    };
    for reason in FATAL_WAITING_REASONS {
        let failure = stuck_as(with("Pending", &[("base", waiting(reason, "why"))]));
        assert_eq!(failure.reason.as_deref(), Some(reason));
        assert_eq!(
            failure.message,
            format!("{reason}: container `base` could not start: why")
        );
    }
    let init = json!({
        "phase": "Pending",
        "initContainerStatuses": statuses(&[("fetch", waiting("InvalidImageName", ""))]),
    });
    assert_eq!(stuck_as(init).container.as_deref(), Some("fetch"));
}

#[test]
fn waits_that_pass_are_waited_for() {
    for (container, state) in [
        ("base", waiting("ErrImagePull", "pull QPS exceeded")),
        ("base", waiting("ImagePullBackOff", "")),
        ("base", json!({"waiting": {}})),
    ] {
        assert_eq!(
            applied(with("Pending", &[(container, state)])),
            LaunchChange::Exists
        );
    }
    let sidecar = [
        ("base", json!({})),
        ("sidecar", waiting("ErrImagePull", "")),
    ];
    assert_eq!(applied(with("Pending", &sidecar)), LaunchChange::Exists);
}

#[test]
fn a_node_that_writes_the_epoch_does_not_know_the_time() {
    let state = json!({"terminated": {
        "exitCode": 1, "startedAt": "1970-01-01T00:00:00Z", "finishedAt": "1970-01-01T00:00:00Z",
    }});
    let change = applied(with("Failed", &[("base", state)]));
    let LaunchChange::Failed {
        started_at,
        ended_at,
        ..
    } = change
    else {
        panic!("{change:?}");
    };
    assert_eq!((started_at, ended_at), (None, None));
}

#[test]
fn a_pending_pod_says_what_keeps_it_from_its_start() {
    let unplaced = |phase: &str| {
        json!({"phase": phase, "conditions": [{
            "type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/1 nodes are available",
        }]})
    };
    let pulled = waiting("ErrImagePull", "no such image");
    for (status, expected) in [
        (
            unplaced("Pending"),
            Some("Unschedulable: 0/1 nodes are available"),
        ),
        (
            with("Pending", &[("base", pulled)]),
            Some("ErrImagePull: no such image"),
        ),
        (
            with("Pending", &[("base", waiting("ContainerCreating", ""))]),
            None,
        ),
        (json!({"phase": "Pending"}), None),
        (unplaced("Running"), None),
    ] {
        assert_eq!(
            pod(status.clone()).pending().as_deref(),
            expected,
            "{status}"
        );
    }
}
