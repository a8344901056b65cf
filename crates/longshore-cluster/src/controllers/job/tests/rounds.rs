//! One round of a Job, by its spec, its status and its pods.

use std::time::Duration;

use serde_json::{Value, json};

use super::world::{PAST, World, exit, job, pod};
use crate::controllers::{job::decide::Plan, workloads::hands::Request};

/// What a round does to pods: `+` makes one (`+3` the one of an index), `~p` lets go of p, `-p` deletes it.
pub(super) fn steps(plan: &Plan) -> Vec<String> {
    let mut steps = Vec::new();
    let mut show = |request: &Request| match request {
        Request::Patch { name, .. } => steps.push(format!("~{name}")),
        Request::Delete { name, .. } => steps.push(format!("-{name}")),
        Request::Create { .. } | Request::PatchStatus { .. } | Request::Announce(_) => {
            panic!("{request:?}")
        }
    };
    plan.claims.iter().chain(&plan.let_go).for_each(&mut show);
    for (free, delete) in &plan.retire {
        show(free);
        show(delete);
    }
    plan.delete.iter().for_each(&mut show);
    let made = plan.create.iter().map(|it| {
        let index = &it["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"];
        format!("+{}", index.as_str().unwrap_or(""))
    });
    steps.extend(made);
    steps
}

/// The conditions that a plan writes, with their reasons.
fn conditions(plan: &Plan) -> Vec<String> {
    let Some(Request::PatchStatus { patch, .. }) = &plan.status else {
        return Vec::new();
    };
    let conditions = patch["status"]["conditions"].as_array();
    let show = |it: &Value| {
        let text = |key: &str| it[key].as_str().unwrap().to_owned();
        format!("{}={}/{}", text("type"), text("status"), text("reason"))
    };
    conditions.into_iter().flatten().map(show).collect()
}

/// A case: what it is, the Job, its pods, the steps and the conditions.
pub(super) type Case = (
    &'static str,
    Value,
    Vec<Value>,
    Vec<&'static str>,
    Vec<&'static str>,
);

pub(super) fn check(cases: Vec<Case>) {
    for (what, job, pods, expected, written) in cases {
        let plan = World::new(job, pods).plan();
        assert_eq!(steps(&plan), expected, "{what}");
        assert_eq!(conditions(&plan), written, "{what}");
    }
}

pub(super) fn running(name: &str) -> Value {
    pod(name, "Running", json!({}))
}

pub(super) fn ended(name: &str, phase: &str) -> Value {
    pod(name, phase, exit(i32::from(phase == "Failed"), PAST))
}

fn going(name: &str) -> Value {
    pod(
        name,
        "Running",
        json!({"metadata": {"deletionTimestamp": PAST}}),
    )
}

/// A Job with a status.
fn with(spec: Value, status: Value) -> Value {
    let mut job = job(spec);
    job["status"] = status;
    job
}

#[test]
fn pods_are_made_until_enough_have_succeeded() {
    let three = || job(json!({"completions": 3, "parallelism": 2}));
    let done = vec!["SuccessCriteriaMet=True/CompletionsReached"];
    let all = json!({"succeeded": 2, "uncountedTerminatedPods": {"succeeded": ["a"]}});
    let both = vec![
        "SuccessCriteriaMet=True/CompletionsReached",
        "Complete=True/CompletionsReached",
    ];
    check(vec![
        ("none yet", three(), vec![], vec!["+", "+"], vec![]),
        (
            "as many as wanted",
            three(),
            vec![running("a"), running("b")],
            vec![],
            vec![],
        ),
        (
            "one is done",
            three(),
            vec![ended("a", "Succeeded")],
            vec!["~a", "+", "+"],
            vec![],
        ),
        (
            "the last ones",
            three(),
            vec![
                ended("a", "Succeeded"),
                ended("b", "Succeeded"),
                running("c"),
            ],
            vec!["~a", "~b"],
            vec![],
        ),
        (
            "too many",
            three(),
            vec![running("a"), running("b"), running("c")],
            vec!["~a", "-a"],
            vec![],
        ),
        (
            "one is enough",
            job(json!({})),
            vec![ended("a", "Succeeded")],
            vec!["~a"],
            done,
        ),
        (
            "nothing to do",
            job(json!({"completions": 0})),
            vec![],
            vec![],
            both.clone(),
        ),
        (
            "counted",
            with(json!({"completions": 3}), all),
            vec![],
            vec![],
            both,
        ),
    ]);
}

#[test]
fn a_work_queue_ends_with_the_first_success() {
    let queue = || job(json!({"completions": null, "parallelism": 2}));
    let done = vec!["SuccessCriteriaMet=True/CompletionsReached"];
    check(vec![
        ("a work queue", queue(), vec![], vec!["+", "+"], vec![]),
        (
            "a work queue that ends",
            queue(),
            vec![ended("a", "Succeeded"), running("b")],
            vec!["~a"],
            vec![],
        ),
        (
            "a work queue that is empty",
            queue(),
            vec![ended("a", "Succeeded")],
            vec!["~a"],
            done,
        ),
    ]);
}

#[test]
fn failures_are_tried_again_up_to_a_limit() {
    let none = || job(json!({"backoffLimit": 0}));
    let late = with(
        json!({"activeDeadlineSeconds": 60}),
        json!({"startTime": PAST}),
    );
    let target = |reason: &'static str| vec![reason];
    let restarting = json!({"status": {"containerStatuses": [{
        "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 2,
    }]}});
    let on_failure =
        json!({"backoffLimit": 2, "template": {"spec": {"restartPolicy": "OnFailure"}}});
    check(vec![
        (
            "once more",
            job(json!({})),
            vec![ended("a", "Failed")],
            vec!["~a", "+"],
            vec![],
        ),
        (
            "no more",
            none(),
            vec![ended("a", "Failed")],
            vec!["~a"],
            target("FailureTarget=True/BackoffLimitExceeded"),
        ),
        (
            "no more, and the others go",
            job(json!({"backoffLimit": 0, "completions": 2, "parallelism": 2})),
            vec![ended("a", "Failed"), running("b")],
            vec!["~a", "~b", "-b"],
            target("FailureTarget=True/BackoffLimitExceeded"),
        ),
        (
            "containers that fail",
            job(on_failure),
            vec![pod("a", "Running", restarting)],
            vec!["~a", "-a"],
            target("FailureTarget=True/BackoffLimitExceeded"),
        ),
        (
            "one that goes has failed",
            job(json!({})),
            vec![going("a")],
            vec!["~a", "+"],
            vec![],
        ),
        (
            "one that goes has not ended",
            job(json!({"podReplacementPolicy": "Failed"})),
            vec![going("a")],
            vec![],
            vec![],
        ),
        (
            "too late",
            late,
            vec![running("a")],
            vec!["~a", "-a"],
            target("FailureTarget=True/DeadlineExceeded"),
        ),
    ]);
}

#[test]
fn failed_pods_are_replaced_after_a_wait_that_doubles() {
    let at = |name: &str, phase: &str, at: &str| {
        pod(name, phase, exit(i32::from(phase == "Failed"), at))
    };
    for (what, pods, expected) in [
        (
            "long ago",
            vec![at("a", "Failed", "2026-01-01T00:30:00Z")],
            None,
        ),
        (
            "5 s ago",
            vec![at("a", "Failed", "2026-01-01T00:59:55Z")],
            Some(5),
        ),
        (
            "the second",
            vec![
                at("a", "Failed", "2026-01-01T00:59:00Z"),
                at("b", "Failed", "2026-01-01T00:59:55Z"),
            ],
            Some(15),
        ),
        (
            "the first after a success",
            vec![
                at("a", "Failed", "2026-01-01T00:59:00Z"),
                at("b", "Succeeded", "2026-01-01T00:59:30Z"),
                at("c", "Failed", "2026-01-01T00:59:55Z"),
            ],
            Some(5),
        ),
    ] {
        let plan = World::new(job(json!({"completions": 9})), pods).plan();
        assert_eq!(plan.again, expected.map(Duration::from_secs), "{what}");
        assert_eq!(plan.create.is_empty(), expected.is_some(), "{what}");
    }
}

#[test]
fn policies_say_what_a_failure_means() {
    let policy = |rule: Value| json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [rule]}});
    let on = |action: &str| {
        let codes = json!({"operator": "In", "values": [42]});
        job(policy(json!({"action": action, "onExitCodes": codes})))
    };
    let on_condition = job(policy(json!({
        "action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    })));
    let disrupted =
        json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}});
    let with_code = |code: i32| pod("a", "Failed", exit(code, PAST));
    let exceeded = || vec!["FailureTarget=True/BackoffLimitExceeded"];
    let by_policy = vec!["FailureTarget=True/PodFailurePolicy"];
    check(vec![
        (
            "counted",
            on("Count"),
            vec![with_code(42)],
            vec!["~a"],
            exceeded(),
        ),
        (
            "another code",
            on("Ignore"),
            vec![with_code(43)],
            vec!["~a"],
            exceeded(),
        ),
        (
            "ignored",
            on("Ignore"),
            vec![with_code(42)],
            vec!["~a", "+"],
            vec![],
        ),
        (
            "the end of the Job",
            on("FailJob"),
            vec![with_code(42)],
            vec!["~a"],
            by_policy,
        ),
        (
            "evicted",
            on_condition,
            vec![pod("a", "Failed", disrupted)],
            vec!["~a", "+"],
            vec![],
        ),
    ]);
    let plan = World::new(on("FailJob"), vec![with_code(42)]).plan();
    let Some(Request::PatchStatus { patch, .. }) = &plan.status else {
        panic!("written");
    };
    let message =
        "Container c for pod default/a failed with exit code 42 matching FailJob rule at index 0";
    assert_eq!(patch["status"]["conditions"][0]["message"], message);
    let plan = World::new(on("Ignore"), vec![with_code(42)]).plan();
    let Some(Request::PatchStatus { patch, .. }) = &plan.status else {
        panic!("written");
    };
    let named = &patch["status"]["uncountedTerminatedPods"]["failed"];
    assert_eq!(named, &Value::Null, "an ignored failure is not counted");
}

#[test]
fn a_suspended_job_has_no_pods_and_begins_anew() {
    let suspended = json!({"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"});
    let was = json!({"conditions": [suspended]});
    check(vec![
        (
            "suspended",
            job(json!({"suspend": true})),
            vec![running("a"), running("b")],
            vec!["~a", "-a", "~b", "-b"],
            vec!["Suspended=True/JobSuspended"],
        ),
        (
            "resumed",
            with(json!({}), was),
            vec![],
            vec!["+"],
            vec!["Suspended=False/JobResumed"],
        ),
    ]);
    let plan = World::new(job(json!({"suspend": true})), vec![running("a")]).plan();
    let Some(Request::PatchStatus { patch, .. }) = &plan.status else {
        panic!("written");
    };
    assert_eq!(patch["status"]["startTime"], Value::Null);
    let named = &patch["status"]["uncountedTerminatedPods"]["failed"];
    assert_eq!(named, &Value::Null, "a suspended pod has not failed");
}

#[test]
fn a_job_that_has_ended_keeps_nothing_and_goes_in_time() {
    let ended = |ttl: Value| {
        let complete = json!({"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:59:00Z"});
        let status = json!({"conditions": [complete], "succeeded": 1});
        with(json!({"ttlSecondsAfterFinished": ttl}), status)
    };
    for (what, ttl, is_over, again) in [
        ("for ever", Value::Null, false, None),
        ("at once", json!(0), true, None),
        ("after two minutes", json!(120), false, Some(60)),
    ] {
        let plan = World::new(ended(ttl), vec![]).plan();
        assert_eq!(
            (plan.is_over, plan.again),
            (is_over, again.map(Duration::from_secs)),
            "{what}"
        );
        assert_eq!(plan.status, None, "{what}");
    }
    let late = World::new(ended(Value::Null), vec![running("a")]).plan();
    assert_eq!(steps(&late), ["~a", "-a"], "a pod that was made too late");
}

#[test]
fn pods_of_others_are_adopted_let_go_or_left_alone() {
    let owner = |uid: &str, name: &str| json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true}]);
    let orphan = pod(
        "a",
        "Running",
        json!({"metadata": {"ownerReferences": null, "finalizers": null}}),
    );
    let earlier = pod(
        "a",
        "Running",
        json!({"metadata": {"ownerReferences": owner("old", "j")}}),
    );
    let other = pod(
        "a",
        "Running",
        json!({"metadata": {"ownerReferences": owner("v", "k")}}),
    );
    let plan = World::new(job(json!({})), vec![orphan]).plan();
    let Request::Patch { patch, .. } = &plan.claims[0] else {
        panic!("{:?}", plan.claims);
    };
    let metadata = &patch["metadata"];
    assert_eq!(
        metadata["finalizers"],
        json!(["batch.kubernetes.io/job-tracking"])
    );
    assert_eq!(metadata["ownerReferences"][0]["uid"], "u");
    let elsewhere = job(json!({"managedBy": "example.com/other"}));
    let mut deleted = job(json!({}));
    deleted["deletedAt"] = json!(PAST);
    check(vec![
        (
            "of an earlier Job",
            job(json!({})),
            vec![earlier],
            vec!["~a"],
            vec![],
        ),
        (
            "of another Job",
            job(json!({})),
            vec![other],
            vec!["+"],
            vec![],
        ),
        (
            "of another controller",
            elsewhere,
            vec![running("a")],
            vec![],
            vec![],
        ),
        (
            "of a Job that goes",
            deleted,
            vec![running("a")],
            vec!["~a"],
            vec![],
        ),
    ]);
}
