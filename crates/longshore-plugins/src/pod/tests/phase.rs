//! One row for each row of the spec's tables.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::phase;
use crate::{
    GracePeriods,
    phase::{ErrorKind, Phase, PhaseInfo},
};

/// When conditions last changed; rows say how long ago that is.
const SINCE: &str = "2026-01-01T00:00:00Z";
const STARTED: &str = "2026-01-01T00:10:00Z";
const FINISHED: &str = "2026-01-01T00:20:00Z";

fn after(pod: &Value, grace: &GracePeriods, seconds: i64) -> PhaseInfo {
    let since: Timestamp = SINCE.parse().unwrap();
    phase::of(pod, grace, since + SignedDuration::from_secs(seconds))
}

fn of(pod: &Value) -> PhaseInfo {
    after(pod, &GracePeriods::default(), 1)
}

/// What a row says: phase, version, reason, and of an error kind, code and message.
#[track_caller]
fn check(info: &PhaseInfo, phase: Phase, version: u32, reason: &str, error: Option<Error<'_>>) {
    let found = info
        .error
        .as_ref()
        .map(|error| (error.kind, error.code.as_str(), error.message.as_str()));
    assert_eq!(
        (info.phase, info.version, info.reason.as_str(), found),
        (phase, version, reason, error)
    );
}

type Error<'a> = (ErrorKind, &'a str, &'a str);

fn waiting(name: &str, reason: &str) -> Value {
    json!({"name": name, "ready": false, "state": {"waiting": {"reason": reason, "message": "why"}}})
}

fn running(name: &str) -> Value {
    json!({"name": name, "ready": true, "state": {"running": {"startedAt": STARTED}}})
}

fn ended(name: &str, code: i64, reason: &str) -> Value {
    json!({"name": name, "ready": false, "state": {"terminated": {
        "exitCode": code, "reason": reason, "message": "last words",
        "startedAt": STARTED, "finishedAt": FINISHED,
    }}})
}

fn pod(phase: &str, containers: &[Value]) -> Value {
    json!({
        "metadata": {"annotations": {}},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": phase, "containerStatuses": containers},
    })
}

fn with_primary(mut pod: Value) -> Value {
    pod["metadata"]["annotations"]["primary_container_name"] = json!("main");
    pod
}

#[test]
fn a_pod_that_succeeded() {
    let done = [ended("main", 0, "Completed")];
    check(&of(&pod("Succeeded", &done)), Phase::Success, 0, "", None);
    let oom = Some((
        ErrorKind::User,
        "OOMKilled",
        "Pod reported success despite being OOMKilled",
    ));
    for list in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        let mut pod = pod("Succeeded", &done);
        pod["status"][list] = json!([ended("x", 0, "OOMKilled")]);
        check(&of(&pod), Phase::RetryableFailure, 0, "", oom);
    }
}

/// However the program ends: by the signal that it gets at last, or by what it makes of the one before.
#[test]
fn a_pod_that_makes_room_for_another_one_costs_its_task_no_try() {
    let disrupted = |phase: &str, end: Value| {
        let mut pod = with_primary(pod(phase, &[end]));
        pod["status"]["conditions"] = json!([{
            "type": "DisruptionTarget", "status": "True",
            "reason": "PreemptionByScheduler", "message": "preempting",
        }]);
        of(&pod).error.unwrap()
    };
    for phase in ["Running", "Failed"] {
        for code in [1, 137, 143] {
            let error = disrupted(phase, ended("main", code, "Error"));
            assert_eq!(
                (error.kind, error.code.as_str()),
                (ErrorKind::System, "Interrupted")
            );
            let why = "the cluster ended the pod: PreemptionByScheduler: preempting";
            assert!(
                error.message.starts_with(why),
                "{phase} {code}: {}",
                error.message
            );
        }
        let error = disrupted(phase, ended("main", 137, "OOMKilled"));
        assert_eq!(
            (error.kind, error.code.as_str()),
            (ErrorKind::User, "OOMKilled")
        );
    }
}

#[test]
fn pods_that_nobody_knows_or_can_place() {
    check(&of(&pod("Unknown", &[])), Phase::Undefined, 0, "", None);
    check(
        &of(&pod("Unschedulable", &[])),
        Phase::Queued,
        0,
        "pod unschedulable",
        None,
    );
}

#[test]
fn a_running_pod_without_primary_container() {
    let done = || ended("main", 0, "Completed");
    for phase in ["Running", ""] {
        for (containers, expected, version) in [
            (vec![done()], Phase::Success, 0),
            (vec![done(), ended("x", 0, "Completed")], Phase::Success, 0),
            (vec![done(), running("x")], Phase::Running, 1),
            (vec![done(), waiting("x", "y")], Phase::Running, 1),
            (vec![done(), ended("x", 1, "Error")], Phase::Running, 1),
            (vec![done(), json!({"name": "x"})], Phase::Running, 1),
            (vec![], Phase::Running, 1),
        ] {
            check(&of(&pod(phase, &containers)), expected, version, "", None);
        }
    }
    // A sidecar is an init container that goes on.
    let mut with_sidecar = pod("Running", &[done()]);
    with_sidecar["status"]["initContainerStatuses"] = json!([running("sidecar")]);
    check(&of(&with_sidecar), Phase::Running, 1, "", None);
    let oom = pod("Running", &[ended("main", 0, "OOMKilled")]);
    assert_eq!(of(&oom).phase, Phase::RetryableFailure);
}

#[test]
fn a_running_pod_with_primary_container() {
    let primary = |container: Value| {
        let containers = [running("side"), container];
        of(&with_primary(pod("Running", &containers)))
    };
    check(&primary(running("main")), Phase::Running, 1, "", None);
    check(
        &primary(waiting("main", "CrashLoopBackOff")),
        Phase::Running,
        1,
        "",
        None,
    );
    check(
        &primary(ended("main", 0, "Completed")),
        Phase::Success,
        0,
        "",
        None,
    );
    let words = |code: i64, reason: &str| {
        format!(
            "\r\n[main] terminated with exit code ({code}). Reason [{reason}]. Message: \nlast words."
        )
    };
    for (code, reason, kind) in [
        (137, "OOMKilled", ErrorKind::User),
        (137, "Error", ErrorKind::System),
        (247, "Error", ErrorKind::System),
        (1, "Error", ErrorKind::User),
    ] {
        let words = words(code, reason);
        let error = Some((kind, reason, words.as_str()));
        check(
            &primary(ended("main", code, reason)),
            Phase::RetryableFailure,
            0,
            "",
            error,
        );
    }
}

#[test]
fn a_primary_container_without_status() {
    check(
        &of(&with_primary(pod("Running", &[]))),
        Phase::Running,
        0,
        "",
        None,
    );
    let mut nowhere = with_primary(pod("Running", &[]));
    nowhere["spec"]["containers"] = json!([{"name": "other"}]);
    let error = Some((
        ErrorKind::User,
        "PrimaryContainerNotFound",
        "Primary container [main] not found in pod's container statuses",
    ));
    check(&of(&nowhere), Phase::PermanentFailure, 0, "", error);
}

fn failed(reason: &str, containers: &[Value]) -> PhaseInfo {
    let mut pod = with_primary(pod("Failed", containers));
    pod["status"]["reason"] = json!(reason);
    pod["status"]["message"] = json!("told");
    of(&pod)
}

#[test]
fn a_pod_that_failed_by_itself() {
    let error = |kind, code, message| Some((kind, code, message));
    let unknown = of(&pod("Failed", &[]));
    check(
        &unknown,
        Phase::RetryableFailure,
        0,
        "",
        error(
            ErrorKind::System,
            "Interrupted",
            "Pod failed. No message received from kubernetes.",
        ),
    );
    for reason in ["Shutdown", "Terminated", "NodeShutdown", "NodeAffinity"] {
        let expected = error(ErrorKind::System, "Interrupted", "told");
        check(
            &failed(reason, &[]),
            Phase::RetryableFailure,
            0,
            "",
            expected,
        );
    }
    let expected = error(ErrorKind::User, "Evicted", "told");
    check(
        &failed("Evicted", &[]),
        Phase::RetryableFailure,
        0,
        "",
        expected,
    );
}

/// The message about the end of a container, such as `1 Error`.
fn exited(container: &str, end: &str) -> String {
    let (code, reason) = end.split_once(' ').unwrap_or((end, ""));
    match code {
        "0" => format!("told\r\n[{container}] terminated with ExitCode 0."),
        _ => format!(
            "told\r\n[{container}] terminated with exit code ({code}). Reason [{reason}]. Message: \nlast words."
        ),
    }
}

#[test]
fn a_pod_that_failed_with_its_containers() {
    use ErrorKind::{System, User};
    for (reason, container, end, kind, code) in [
        // The program itself said that it failed: upstream takes it for a lost node.
        ("", "main", "1 Error", User, "Error"),
        ("", "main", "3", User, "Error"),
        ("", "main", "0 Completed", System, "Interrupted"),
        ("Error", "main", "1 Error", User, "Error"),
        ("Error", "main", "0 Completed", User, "Error"),
        ("", "main", "137 OOMKilled", User, "OOMKilled"),
        ("", "main", "137 Error", System, "Interrupted"),
        ("Error", "side", "137 Error", User, "Interrupted"),
    ] {
        let (exit, why) = end.split_once(' ').unwrap_or((end, ""));
        let status = ended(container, exit.parse().unwrap(), why);
        let message = exited(container, end);
        let error = Some((kind, code, message.as_str()));
        let pod = failed(reason, &[status]);
        check(&pod, Phase::RetryableFailure, 0, "", error);
    }
}

#[test]
fn of_a_container_that_was_restarted_its_last_end_counts() {
    let mut restarted = running("main");
    restarted["lastState"] = ended("main", 1, "Error")["state"].clone();
    let message = exited("main", "1 Error");
    let error = Some((ErrorKind::User, "Error", message.as_str()));
    let pod = failed("Error", &[restarted]);
    check(&pod, Phase::RetryableFailure, 0, "", error);
}

fn pending(conditions: Value, init: &[Value], containers: &[Value]) -> Value {
    let mut pod = pod("Pending", containers);
    pod["status"]["initContainerStatuses"] = json!(init);
    pod["status"]["conditions"] = conditions;
    pod
}

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "R", "message": "M",
        "lastTransitionTime": SINCE,
    })
}

fn not_ready(containers: &[Value]) -> Value {
    let conditions = json!([
        condition("PodScheduled", "True"),
        condition("Ready", "False")
    ]);
    pending(conditions, &[], containers)
}

#[test]
fn a_pod_that_waits_for_a_node() {
    for (conditions, reason) in [
        (json!([]), "Demistify Pending"),
        (Value::Null, "Demistify Pending"),
        (
            json!([condition("PodScheduled", "True")]),
            "Demistify Pending",
        ),
        (json!([condition("Ready", "False")]), "Demistify Pending"),
        (json!([condition("PodScheduled", "False")]), "R:M"),
        (json!([condition("Unschedulable", "True")]), "R:M"),
    ] {
        check(
            &of(&pending(conditions, &[], &[])),
            Phase::Queued,
            0,
            reason,
            None,
        );
    }
}

#[test]
fn a_container_that_does_not_start() {
    let fatal = |kind, phase| Some((kind, phase));
    let user = |phase| fatal(ErrorKind::User, phase);
    use Phase::{PermanentFailure, RetryableFailure};
    // Seconds since the condition changed, and the failure, if it is one by then, with its period.
    for (reason, seconds, failure, period) in [
        ("ErrImagePull", 9999, None, ""),
        ("ContainerCreating", 9999, None, ""),
        ("PodInitializing", 9999, None, ""),
        ("CreateContainerError", 179, None, ""),
        ("CreateContainerError", 180, user(PermanentFailure), "3m0s"),
        (
            "CreateContainerConfigError",
            0,
            user(PermanentFailure),
            "0s",
        ),
        ("InvalidImageName", 0, user(PermanentFailure), ""),
        ("ImagePullBackOff", 179, None, ""),
        ("ImagePullBackOff", 180, user(RetryableFailure), "3m0s"),
        (
            "RunContainerError",
            0,
            fatal(ErrorKind::System, RetryableFailure),
            "",
        ),
    ] {
        let pod = not_ready(&[waiting("main", reason)]);
        let info = after(&pod, &GracePeriods::default(), seconds);
        let code = format!("R|{reason}");
        assert_eq!(info.occurred_at, Some(SINCE.parse().unwrap()), "{reason}");
        let Some((kind, phase)) = failure else {
            check(
                &info,
                Phase::Initializing,
                0,
                &format!("[{code}]: M|why"),
                None,
            );
            continue;
        };
        let message = match period {
            "" => "M|why".to_owned(),
            _ => format!("Grace period [{period}] exceeded|M|why"),
        };
        check(&info, phase, 0, "", Some((kind, &code, &message)));
        assert!(info.cleanup_on_failure, "{reason}");
    }
}

#[test]
fn a_registry_that_is_asked_too_often_is_not_the_users_fault() {
    let mut container = waiting("main", "ImagePullBackOff");
    container["state"]["waiting"]["message"] = json!("429 Too Many Requests");
    let pod = not_ready(&[container]);
    let info = after(&pod, &GracePeriods::default(), 180);
    let error = info.error.unwrap();
    assert_eq!(info.phase, Phase::RetryableFailure);
    assert_eq!(error.kind, ErrorKind::System);
}

#[test]
fn the_first_stuck_init_container_says_why() {
    let conditions = json!([condition("Ready", "False")]);
    let init = [
        ended("done", 0, "Completed"),
        waiting("stuck", "InvalidImageName"),
    ];
    let info = of(&pending(
        conditions.clone(),
        &init,
        &[waiting("main", "PodInitializing")],
    ));
    assert_eq!(info.error.unwrap().code, "R|InvalidImageName");
    // A container that is ready waits for nothing.
    let mut ready = waiting("a", "InvalidImageName");
    ready["ready"] = json!(true);
    let containers = [ready, waiting("main", "ContainerCreating")];
    let info = of(&pending(conditions, &[], &containers));
    assert_eq!(info.phase, Phase::Initializing);
}

#[test]
fn a_pod_may_be_pending_only_so_long() {
    let grace = GracePeriods {
        pod_pending_timeout: std::time::Duration::from_secs(60),
        ..GracePeriods::default()
    };
    let pod = pending(json!([condition("PodScheduled", "False")]), &[], &[]);
    check(&after(&pod, &grace, 59), Phase::Queued, 0, "R:M", None);
    let info = after(&pod, &grace, 60);
    let error = Some((ErrorKind::System, "PodPendingTimeout", "R:M"));
    check(&info, Phase::RetryableFailure, 0, "", error);
    assert!(info.cleanup_on_failure);
    // A failure of its own comes first, and a clock that runs behind the node's is no reason.
    let invalid = not_ready(&[waiting("main", "InvalidImageName")]);
    assert_eq!(after(&invalid, &grace, 60).phase, Phase::PermanentFailure);
    assert_eq!(after(&pod, &grace, -60).phase, Phase::Queued);
}

#[test]
fn a_change_happened_when_a_container_last_started_or_ended() {
    let at = |pod: &Value| of(pod).occurred_at.map(|at| at.to_string());
    let both = [running("main"), ended("side", 0, "Completed")];
    assert_eq!(at(&pod("Running", &both)).as_deref(), Some(FINISHED));
    assert_eq!(
        at(&pod("Running", &[running("main")])).as_deref(),
        Some(STARTED)
    );
    assert_eq!(at(&pod("Pending", &[])), None);
}

#[test]
fn no_pod_makes_the_reader_panic() {
    for nonsense in [
        Value::Null,
        json!([]),
        json!({"status": {"phase": 1, "conditions": {}, "containerStatuses": [1, null]}}),
        json!({"status": {"phase": "Pending", "conditions": [1], "containerStatuses": "x"}}),
        json!({"status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {}}}]}}),
    ] {
        of(&nonsense);
    }
}
