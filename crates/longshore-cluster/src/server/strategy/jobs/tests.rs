//! Jobs as the server completes and judges them, as tables.

use super::*;

fn job(change: Value) -> Value {
    let mut job = json!({
        "metadata": {"name": "j", "uid": "u"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "dnsPolicy": "ClusterFirst",
            "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always"}],
        }}},
    });
    json_patch::merge(&mut job["spec"], &change);
    set_defaults(meta::member(&mut job, "spec"));
    select_own_pods(&mut job);
    job
}

fn indexed(change: Value) -> Value {
    let mut spec = json!({"completionMode": "Indexed", "completions": 5});
    json_patch::merge(&mut spec, &change);
    job(spec)
}

#[test]
fn a_new_job_is_complete() {
    let plain = job(json!({}));
    assert_eq!(violations(&plain, None), []);
    let labels = json!({
        "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u", "job-name": "j",
    });
    assert_eq!(plain["metadata"]["labels"], labels);
    for (what, change, pointer, expected) in [
        ("one pod", json!({}), "/spec/completions", json!(1)),
        (
            "a work queue",
            json!({"parallelism": 3}),
            "/spec/completions",
            Value::Null,
        ),
        (
            "one at a time",
            json!({"completions": 3}),
            "/spec/parallelism",
            json!(1),
        ),
        ("six retries", json!({}), "/spec/backoffLimit", json!(6)),
        (
            "retries of each index",
            json!({"backoffLimitPerIndex": 1}),
            "/spec/backoffLimit",
            json!(2_147_483_647),
        ),
        (
            "replaced when they go",
            json!({}),
            "/spec/podReplacementPolicy",
            json!("TerminatingOrFailed"),
        ),
        (
            "replaced when they have failed",
            json!({"podFailurePolicy": {"rules": []}}),
            "/spec/podReplacementPolicy",
            json!("Failed"),
        ),
        (
            "conditions that hold",
            json!({"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "A"}]}]}}),
            "/spec/podFailurePolicy/rules/0/onPodConditions/0/status",
            json!("True"),
        ),
        (
            "its own selector",
            json!({}),
            "/spec/selector/matchLabels",
            json!({"batch.kubernetes.io/controller-uid": "u"}),
        ),
        (
            "a selector by hand",
            json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}}),
            "/spec/selector/matchLabels",
            json!({"a": "b"}),
        ),
    ] {
        let job = job(change);
        let found = job.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(found, expected, "{what}");
    }
}

/// Cases: a Job, and the fields that are refused.
fn check(cases: Vec<(Value, Vec<&str>)>) {
    for (job, expected) in cases {
        let found = violations(&job, None);
        let fields: Vec<&str> = found.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, expected, "{}: {found:?}", job["spec"]);
    }
}

#[test]
fn specs_are_judged() {
    let template = |change: Value| json!({"template": change});
    check(vec![
        (job(json!({"parallelism": -1})), vec!["spec.parallelism"]),
        (job(json!({"backoffLimit": -1})), vec!["spec.backoffLimit"]),
        (
            job(json!({"completionMode": "Often"})),
            vec!["spec.completionMode"],
        ),
        (
            job(json!({"parallelism": 1, "completionMode": "Indexed"})),
            vec!["spec.completions"],
        ),
        (
            indexed(json!({"parallelism": 100_001})),
            vec!["spec.parallelism"],
        ),
        (
            indexed(json!({"maxFailedIndexes": 2})),
            vec!["spec.backoffLimitPerIndex"],
        ),
        (
            indexed(json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 6})),
            vec!["spec.maxFailedIndexes"],
        ),
        (
            job(json!({"backoffLimitPerIndex": 0})),
            vec!["spec.backoffLimitPerIndex"],
        ),
        (job(json!({"managedBy": "me"})), vec!["spec.managedBy"]),
        (
            job(json!({"podReplacementPolicy": "Never"})),
            vec!["spec.podReplacementPolicy"],
        ),
        (
            job(template(json!({"spec": {"restartPolicy": "Always"}}))),
            vec!["spec.template.spec.restartPolicy"],
        ),
        (
            job(template(
                json!({"metadata": {"labels": {"job-name": "other"}}}),
            )),
            vec!["spec.template.metadata.labels[job-name]"],
        ),
        (
            job(json!({"selector": {"matchLabels": {"a": "b"}}})),
            vec!["spec.selector", "spec.template.metadata.labels"],
        ),
        (
            job(json!({"manualSelector": true})),
            vec!["spec.selector", "spec.template.metadata.labels"],
        ),
    ]);
    let mut long = indexed(json!({}));
    long["metadata"]["name"] = json!("a".repeat(62));
    let found = violations(&long, None);
    assert!(
        found.iter().any(|it| it.field == "metadata.name"),
        "{found:?}"
    );
}

#[test]
fn policies_are_judged() {
    let failure = |rule: Value| job(json!({"podFailurePolicy": {"rules": [rule]}}));
    let codes = |change: Value| {
        let mut codes = json!({"operator": "In", "values": [1, 2]});
        json_patch::merge(&mut codes, &change);
        failure(json!({"action": "FailJob", "onExitCodes": codes}))
    };
    let success = |rule: Value| indexed(json!({"successPolicy": {"rules": [rule]}}));
    let rule = "spec.podFailurePolicy.rules[0]";
    let at = |key: &str| format!("{rule}{key}");
    let (action, values) = (at(".action"), at(".onExitCodes.values"));
    let (name, zero, condition) = (
        at(".onExitCodes.containerName"),
        at(".onExitCodes.values[0]"),
        at(".onPodConditions[0].type"),
    );
    let (count, indexes) = (
        "spec.successPolicy.rules[0].succeededCount",
        "spec.successPolicy.rules[0].succeededIndexes",
    );
    check(vec![
        (codes(json!({})), vec![]),
        (codes(json!({"containerName": "c"})), vec![]),
        (codes(json!({"containerName": "d"})), vec![name.as_str()]),
        (codes(json!({"values": []})), vec![values.as_str()]),
        (codes(json!({"values": [2, 1]})), vec![values.as_str()]),
        (codes(json!({"values": [0]})), vec![zero.as_str()]),
        (failure(json!({"action": "Ignore"})), vec![rule]),
        (
            failure(json!({"action": "FailIndex", "onPodConditions": [{"type": "A"}]})),
            vec![action.as_str()],
        ),
        (
            failure(json!({"action": "Ignore", "onPodConditions": [{"type": "a b"}]})),
            vec![condition.as_str()],
        ),
        (
            success(json!({"succeededIndexes": "0,2-4", "succeededCount": 4})),
            vec![],
        ),
        (
            success(json!({"succeededIndexes": "0,2-4", "succeededCount": 5})),
            vec![count],
        ),
        (success(json!({"succeededCount": 6})), vec![count]),
        (success(json!({"succeededIndexes": "2,1"})), vec![indexes]),
        (success(json!({"succeededIndexes": "5"})), vec![indexes]),
        (success(json!({})), vec!["spec.successPolicy.rules[0]"]),
        (
            job(json!({"successPolicy": {"rules": [{"succeededCount": 1}]}})),
            vec!["spec.successPolicy"],
        ),
    ]);
}

/// Cases: what it is, the stored Job, a change of its spec, and the fields that are refused.
fn check_changes(cases: Vec<(&str, &Value, Value, Vec<&str>)>) {
    for (what, old, change, expected) in cases {
        let mut new = old.clone();
        json_patch::merge(&mut new["spec"], &change);
        let found = violations(&new, Some(old));
        let fields: Vec<&str> = found.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, expected, "{what}: {found:?}");
    }
}

#[test]
fn numbers_of_a_job_may_change_as_far_as_counts_stay_true() {
    let (plain, indexed) = (job(json!({})), indexed(json!({})));
    let refused = || vec!["spec.completions"];
    let both = json!({"completions": 3, "parallelism": 3});
    check_changes(vec![
        ("parallelism", &plain, json!({"parallelism": 3}), vec![]),
        (
            "retries",
            &plain,
            json!({"backoffLimit": 3, "suspend": true}),
            vec![],
        ),
        ("completions", &plain, json!({"completions": 3}), refused()),
        (
            "completions alone",
            &indexed,
            json!({"completions": 3}),
            refused(),
        ),
        ("completions and parallelism", &indexed, both, vec![]),
        (
            "the manager",
            &plain,
            json!({"managedBy": "a.b/c"}),
            vec!["spec.managedBy"],
        ),
    ]);
}

#[test]
fn the_template_may_change_where_pods_run_before_the_job_begins() {
    let pod = |change: Value| json!({"template": {"spec": change}});
    let container = json!({"name": "c", "image": "other", "imagePullPolicy": "Always"});
    let image = pod(json!({"containers": [container]}));
    let node = pod(json!({"nodeSelector": {"a": "b"}}));
    let affinity = pod(json!({"affinity": {"nodeAffinity": {}}}));
    let plain = job(json!({}));
    let suspended = job(json!({"suspend": true}));
    let mut begun = suspended.clone();
    begun["status"] = json!({"startTime": "2026-01-01T00:00:00Z"});
    let refused = || vec!["spec.template"];
    check_changes(vec![
        ("the image", &plain, image.clone(), refused()),
        ("the node", &plain, node.clone(), refused()),
        (
            "the node before it begins",
            &suspended,
            node.clone(),
            vec![],
        ),
        (
            "the affinity before it begins",
            &suspended,
            affinity,
            vec![],
        ),
        ("the image before it begins", &suspended, image, refused()),
        ("the node after it has begun", &begun, node, refused()),
    ]);
}

fn conditions(kinds: &[&str]) -> Value {
    kinds
        .iter()
        .map(|kind| json!({"type": kind, "status": "True"}))
        .collect()
}

const START: &str = "2026-01-01T00:00:00Z";
const END: &str = "2026-01-01T00:01:00Z";

/// The status of a Job that runs, changed by a merge.
fn running(change: Value) -> Value {
    let mut status = json!({"startTime": START, "active": 2, "failed": 1, "succeeded": 1});
    json_patch::merge(&mut status, &change);
    status
}

/// Cases: what it is, the change of a status, and the fields that are refused.
fn check_statuses(before: &Value, cases: Vec<(&str, Value, Vec<&str>)>) {
    for (what, after, expected) in cases {
        let (mut old, mut new) = (job(json!({})), job(json!({})));
        old["status"] = before.clone();
        new["status"] = after;
        let found = status_violations(&new, &old);
        let fields: Vec<&str> = found.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, expected, "{what}: {found:?}");
    }
}

#[test]
fn counts_of_a_job_go_forward() {
    let twice = json!({"uncountedTerminatedPods": {"failed": ["a"], "succeeded": ["a"]}});
    check_statuses(
        &running(json!({})),
        vec![
            ("as it is", running(json!({})), vec![]),
            (
                "less failed",
                running(json!({"failed": 0})),
                vec!["status.failed"],
            ),
            (
                "less succeeded",
                running(json!({"succeeded": 0})),
                vec!["status.succeeded"],
            ),
            (
                "negative",
                running(json!({"ready": -1})),
                vec!["status.ready"],
            ),
            (
                "more ready",
                running(json!({"ready": 3})),
                vec!["status.ready"],
            ),
            (
                "counted twice",
                running(twice),
                vec!["status.uncountedTerminatedPods.failed[0]"],
            ),
            (
                "never begun",
                running(json!({"startTime": null})),
                vec!["status.startTime"],
            ),
            (
                "indexes of none",
                running(json!({"completedIndexes": "0"})),
                vec!["status.completedIndexes"],
            ),
        ],
    );
}

#[test]
fn a_job_ends_once_and_for_a_reason() {
    let ended = |kinds: &[&str], change: Value| {
        let mut status = running(json!({"active": 0, "conditions": conditions(kinds)}));
        json_patch::merge(&mut status, &change);
        status
    };
    let all = ["SuccessCriteriaMet", "Complete"];
    let complete = |change: Value| ended(&all, change);
    let at = |end: &str| json!({"completionTime": end});
    let time = || vec!["status.completionTime"];
    let reason = || vec!["status.conditions"];
    check_statuses(
        &running(json!({})),
        vec![
            ("complete", complete(at(END)), vec![]),
            (
                "failed",
                ended(&["FailureTarget", "Failed"], json!({})),
                vec![],
            ),
            (
                "complete for no reason",
                ended(&["Complete"], at(END)),
                reason(),
            ),
            ("complete at no time", complete(json!({})), time()),
            (
                "complete before it began",
                complete(at("2025-01-01T00:00:00Z")),
                time(),
            ),
            (
                "complete with pods",
                complete(json!({"active": 2, "completionTime": END})),
                vec!["status.active"],
            ),
            (
                "failed for no reason",
                ended(&["Failed"], json!({})),
                reason(),
            ),
        ],
    );
    let both = vec!["status.conditions", "status.conditions"];
    check_statuses(
        &complete(at(END)),
        vec![("complete no longer", running(json!({})), both)],
    );
}
