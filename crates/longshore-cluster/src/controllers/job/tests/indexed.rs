//! One round of a Job whose pods have an index each.

use serde_json::{Value, json};

use super::{
    rounds::{check, ended, running},
    world::{World, index, job},
};

fn indexed(change: Value) -> Value {
    let mut spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3});
    json_patch::merge(&mut spec, &change);
    job(spec)
}

fn of(name: &str, phase: &str, number: usize) -> Value {
    let mut pod = if phase == "Running" {
        running(name)
    } else {
        ended(name, phase)
    };
    json_patch::merge(&mut pod, &index(number));
    pod
}

#[test]
fn an_indexed_job_has_one_pod_for_each_index() {
    let rule = json!({"successPolicy": {"rules": [{"succeededIndexes": "0"}]}});
    let met = vec!["SuccessCriteriaMet=True/SuccessPolicy"];
    let done = ["SuccessCriteriaMet=True/CompletionsReached"];
    let all = || {
        vec![
            of("a", "Succeeded", 0),
            of("b", "Succeeded", 1),
            of("c", "Succeeded", 2),
        ]
    };
    let ended = vec![done[0], "Complete=True/CompletionsReached"];
    check(vec![
        (
            "none yet",
            indexed(json!({})),
            vec![],
            vec!["+0", "+1", "+2"],
            vec![],
        ),
        (
            "one is missing",
            indexed(json!({})),
            vec![of("a", "Running", 0), of("b", "Running", 2)],
            vec!["+1"],
            vec![],
        ),
        (
            "one has failed",
            indexed(json!({})),
            vec![
                of("a", "Succeeded", 0),
                of("b", "Failed", 1),
                of("c", "Running", 2),
            ],
            vec!["~a", "~b", "+1"],
            vec![],
        ),
        (
            "two of an index",
            indexed(json!({})),
            vec![
                of("a", "Running", 0),
                of("b", "Running", 0),
                of("c", "Running", 1),
            ],
            vec!["~a", "-a"],
            vec![],
        ),
        (
            "one without an index",
            indexed(json!({})),
            vec![running("a")],
            vec!["~a", "-a"],
            vec![],
        ),
        (
            "all",
            indexed(json!({})),
            all(),
            vec!["~a", "~b", "~c"],
            ended,
        ),
        (
            "enough",
            indexed(rule),
            vec![of("a", "Succeeded", 0), of("b", "Running", 1)],
            vec!["~a", "~b", "-b"],
            met,
        ),
    ]);
}

#[test]
fn each_index_may_have_its_own_failures() {
    let each = |change: Value| {
        let mut spec = json!({"backoffLimit": 100, "backoffLimitPerIndex": 1});
        json_patch::merge(&mut spec, &change);
        indexed(spec)
    };
    let failed_before = |name: &str, number: usize| {
        let mut pod = of(name, "Failed", number);
        let annotations = &mut pod["metadata"]["annotations"];
        annotations["batch.kubernetes.io/job-index-failure-count"] = json!("1");
        pod
    };
    let rest = || vec![of("b", "Succeeded", 1), of("c", "Succeeded", 2)];
    let mut awaiting = rest();
    awaiting.push(of("a", "Failed", 0));
    let mut over = rest();
    over.push(failed_before("a", 0));
    let some = vec![failed_before("a", 0), of("b", "Running", 1)];
    check(vec![
        (
            "the pod waits for the next",
            each(json!({})),
            awaiting,
            vec!["~b", "~c", "+0"],
            vec![],
        ),
        (
            "an index is given up",
            each(json!({})),
            over,
            vec!["~a", "~b", "~c"],
            vec!["FailureTarget=True/FailedIndexes"],
        ),
        (
            "too many are",
            each(json!({"maxFailedIndexes": 0})),
            some,
            vec!["~a", "~b", "-b"],
            vec!["FailureTarget=True/MaxFailedIndexesExceeded"],
        ),
    ]);
    let plan = World::new(each(json!({})), vec![of("a", "Failed", 0)]).plan();
    let annotations = &plan.create[0]["metadata"]["annotations"];
    assert_eq!(
        annotations["batch.kubernetes.io/job-index-failure-count"],
        "1"
    );
    let fresh = &plan.create[1]["metadata"]["annotations"];
    assert_eq!(fresh["batch.kubernetes.io/job-index-failure-count"], "0");
}

#[test]
fn a_pod_of_an_index_knows_it() {
    let plan = World::new(indexed(json!({"completions": 1})), vec![]).plan();
    let made = &plan.create[0];
    let metadata = &made["metadata"];
    assert_eq!(metadata["generateName"], "j-0-");
    assert_eq!(
        metadata["labels"]["batch.kubernetes.io/job-completion-index"],
        "0"
    );
    assert_eq!(
        metadata["finalizers"],
        json!(["batch.kubernetes.io/job-tracking"])
    );
    assert_eq!(made["spec"]["hostname"], "j-0");
    let variable = &made["spec"]["containers"][0]["env"][0];
    assert_eq!(variable["name"], "JOB_COMPLETION_INDEX");
    let field = &variable["valueFrom"]["fieldRef"]["fieldPath"];
    assert_eq!(
        field,
        "metadata.labels['batch.kubernetes.io/job-completion-index']"
    );
}
