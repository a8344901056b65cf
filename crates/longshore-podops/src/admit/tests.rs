//! Upstream's recorded verdicts, and what differs on purpose.

mod again;
mod eviction;
mod release;

use std::time::Duration;

use longshore_api::podops::{
    ANNOTATION_DELETE_TIMESTAMP, ANNOTATION_EVICTED_AT, ANNOTATION_HELD_UNTIL,
    CONDITION_SERVICE_READY, FINALIZER_SERVICES, LABEL_CONTROL, LABEL_PREPARING_TO_DELETE,
    LABEL_RELEASED, LABEL_TO_DELETE, OPERATION_PERMISSION_PREFIX, OperationLabel,
    detail_annotation, operation_permission,
};
use longshore_core::PatchKind;
use serde::Deserialize;

use super::*;
use crate::model::stamp;

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    name: String,
    operation: String,
    sub_resource: String,
    dry_run: bool,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    expect: Expected,
}

#[derive(Deserialize)]
struct Expected {
    mutating: Value,
    #[serde(default)]
    validating: Value,
}

impl Vector {
    fn request(&self) -> Request {
        Request {
            operation: match self.operation.as_str() {
                "CREATE" => Operation::Create,
                "UPDATE" => Operation::Update,
                "DELETE" => Operation::Delete,
                _ => Operation::Other,
            },
            sub_resource: self.sub_resource.clone(),
            is_dry_run: self.dry_run,
            object: self.object.clone(),
            old_object: self.old_object.clone(),
            options: Value::Null,
        }
    }
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../../testdata/pod-webhook-vectors.json")).unwrap()
}

/// What went wrong with a vector, if anything.
fn differs(vector: &Vector) -> Option<String> {
    let config = AdmitConfig {
        grace_delete: true,
        ..AdmitConfig::default()
    };
    let mut request = vector.request();
    let expected = &vector.expect.mutating;
    match mutate(&request, NOW) {
        Err(denial) => {
            let seen = json!({"allowed": false, "code": denial.code, "message": denial.message});
            return (seen != *expected).then(|| format!("mutating: {seen}"));
        }
        Ok(changed) => {
            let object = changed.unwrap_or_else(|| request.object.clone());
            let text = object["metadata"]["labels"].to_string();
            let labels: Value = serde_json::from_str(&text.replace(&stamp(NOW), "TS")).unwrap();
            let gates: Vec<&Value> = object["spec"]["readinessGates"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|gate| &gate["conditionType"])
                .collect();
            let is_object = !object.is_null();
            // No labels are written as none, as an empty object or not at all.
            let or_none = |labels: &Value| {
                if labels.is_null() {
                    json!({})
                } else {
                    labels.clone()
                }
            };
            let (labels, expected_labels) = (or_none(&labels), or_none(&expected["labels"]));
            let are_gates = !is_object || json!(gates) == expected["readinessGates"];
            if expected["allowed"] != true || labels != expected_labels || !are_gates {
                return Some(format!("mutating: {labels} {gates:?}, expected {expected}"));
            }
            request.object = object;
        }
    }
    let expected = &vector.expect.validating;
    if expected.is_null() {
        return None;
    }
    let verdict = validate(&config, &request, NOW);
    let seen = match verdict.denial {
        None => json!({"allowed": true}),
        Some(denial) => json!({
            "allowed": false, "code": denial.code, "reason": denial.reason, "message": null,
        }),
    };
    (seen != *expected).then(|| format!("validating: {seen}, expected {expected}"))
}

#[test]
fn every_recorded_verdict_holds() {
    // Ours names the annotation; upstream's is a message of Go's JSON decoder. A dry run is answered as the real request
    // would be, and not with what was sent.
    let different_words = [
        "1id/begin/gate=False/fin=None/avail=malformed",
        "create/dry",
    ];
    let vectors = vectors();
    assert_eq!(vectors.len(), 65);
    let differing: Vec<String> = vectors
        .iter()
        .filter_map(|vector| Some(format!("{}: {}", vector.name, differs(vector)?)))
        .collect();
    let unexpected: Vec<&String> = differing
        .iter()
        .filter(|text| !different_words.iter().any(|name| text.starts_with(name)))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    assert_eq!(differing.len(), different_words.len());
}

#[test]
fn a_malformed_annotation_is_refused_by_its_name() {
    let vector = vectors()
        .into_iter()
        .find(|vector| vector.name.ends_with("malformed"));
    let verdict = validate(&AdmitConfig::default(), &vector.unwrap().request(), NOW);
    let denial = verdict.denial.unwrap();
    assert_eq!(denial.code, 403);
    let begin = "failed to validate PodOpsLifecycleWebhook, the annotation pod.kusionstack.io/available-conditions is not";
    assert!(denial.reason.starts_with(begin), "{}", denial.reason);
}

/// A pod that takes part, with a change.
fn pod(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "metadata": {
            "name": "web-0", "namespace": "default", "uid": "u",
            "labels": {LABEL_CONTROL: "true"},
        },
        "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
        "status": {"phase": "Running"},
    });
    change(&mut pod);
    pod
}

fn deletion(pod: Value) -> Request {
    Request {
        operation: Operation::Delete,
        sub_resource: String::new(),
        is_dry_run: false,
        object: Value::Null,
        old_object: pod,
        options: json!({}),
    }
}

fn graceful() -> AdmitConfig {
    AdmitConfig {
        grace_delete: true,
        ..AdmitConfig::default()
    }
}

#[test]
fn a_delete_is_refused_in_upstreams_words_and_begins_the_operation() {
    let request = deletion(pod(|pod| {
        let one = "prot.podopslifecycle.kusionstack.io/a";
        pod["metadata"]["finalizers"] =
            json!([one, "other", "prot.podopslifecycle.kusionstack.io/b"]);
    }));
    let verdict = validate(&graceful(), &request, NOW);
    let denial = verdict.denial.unwrap();
    assert_eq!(denial.code, 403);
    assert_eq!(
        denial.reason,
        "failed to validate GraceDeleteWebhook, pod deletion process is underway and being managed by \
         PodOpsLifecycle with finalizers: [prot.podopslifecycle.kusionstack.io/a \
         prot.podopslifecycle.kusionstack.io/b]"
    );
    let now = stamp(NOW);
    let begin = verdict.begin.unwrap();
    assert_eq!(begin.kind, PatchKind::Json);
    // For this pod only, and only while it takes part.
    assert_eq!(begin.patch.as_array().unwrap()[..2], tests_of_the_pod());
    assert_eq!(
        applied(&begin, &request.old_object),
        json!({
            "labels": {
                LABEL_TO_DELETE: now,
                LABEL_PREPARING_TO_DELETE: now,
                OperationLabel::Operating.of("pod-delete"): now,
                OperationLabel::OperationType.of("pod-delete"): "delete",
            },
            "annotations": {ANNOTATION_DELETE_TIMESTAMP: now},
        })
    );
}

/// What the API server tests before it applies a patch.
fn tests_of_the_pod() -> [Value; 2] {
    [
        json!({"op": "test", "path": "/metadata/uid", "value": "u"}),
        json!({"op": "test", "path": "/metadata/labels/kusionstack.io~1control", "value": "true"}),
    ]
}

/// The labels and annotations that a patch adds to a pod, or null where it removes one.
fn applied(begin: &Patch, pod: &Value) -> Value {
    let mut changes = json!({});
    let mut patched = pod.clone();
    for operation in begin.patch.as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        let value = &operation["value"];
        let (parent, key) = path.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        let kind = parent.rsplit('/').next().unwrap();
        match operation["op"].as_str().unwrap() {
            // A member that is missing is null there.
            "test" => assert_eq!(pod.pointer(path).unwrap_or(&Value::Null), value, "{path}"),
            "remove" => {
                assert!(pod.pointer(path).is_some(), "{path}");
                changes[kind][key] = Value::Null;
            }
            "add" if kind == "metadata" => patched["metadata"][key] = value.clone(),
            "add" => {
                assert!(patched.pointer(parent).is_some(), "{parent}");
                changes[kind][key] = value.clone();
            }
            other => panic!("{other}"),
        }
    }
    changes
}

#[test]
fn the_first_annotations_of_a_pod_do_not_replace_those_of_somebody_else() {
    let begin = |pod| validate(&graceful(), &deletion(pod), NOW).begin.unwrap();
    let guard = json!({"op": "test", "path": "/metadata/annotations", "value": null});
    let without = begin(pod(|_| {}));
    assert!(
        without.patch.as_array().unwrap().contains(&guard),
        "{without:?}"
    );
    let with = begin(pod(|pod| {
        pod["metadata"]["annotations"] = json!({"a": "b"})
    }));
    assert!(
        !with.patch.to_string().contains("\"/metadata/annotations\""),
        "{with:?}"
    );
}

#[test]
fn an_operation_that_has_begun_keeps_its_time() {
    let operating = OperationLabel::Operating.of("pod-delete");
    let request = deletion(pod(|pod| {
        pod["metadata"]["labels"][&operating] = json!("1")
    }));
    let begin = validate(&graceful(), &request, NOW).begin.unwrap();
    let changes = applied(&begin, &request.old_object);
    let labels = changes["labels"].as_object().unwrap();
    assert!(!labels.contains_key(&operating), "{labels:?}");
    assert!(labels.contains_key(LABEL_TO_DELETE), "{labels:?}");
}

#[test]
fn a_delete_that_is_repeated_soon_writes_nothing() {
    let asked = |seconds: i64| {
        let asked_at = stamp(Timestamp::constant(1_767_225_600 - seconds, 0));
        let request = deletion(pod(|pod| {
            pod["metadata"]["labels"][LABEL_TO_DELETE] = json!("1");
            pod["metadata"]["annotations"] = json!({ANNOTATION_DELETE_TIMESTAMP: asked_at});
        }));
        (validate(&graceful(), &request, NOW), request.old_object)
    };
    let (verdict, _) = asked(4);
    assert!(verdict.denial.is_some());
    assert_eq!(verdict.begin, None);
    let (verdict, pod) = asked(5);
    let again = applied(&verdict.begin.unwrap(), &pod);
    assert_eq!(again["labels"], Value::Null);
}

#[test]
fn who_may_go_goes() {
    let operating = |pod: &mut Value| {
        let labels = &mut pod["metadata"]["labels"];
        labels[OperationLabel::Operating.of("pod-delete")] = json!("1");
        labels[OperationLabel::OperationType.of("pod-delete")] = json!("delete");
        labels[OperationLabel::Operate.of("pod-delete")] = json!("1");
    };
    let pods = [
        ("its operation may touch it", pod(operating)),
        (
            "terminating",
            pod(|pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
        ),
        (
            "succeeded",
            pod(|pod| pod["status"]["phase"] = json!("Succeeded")),
        ),
        (
            "failed",
            pod(|pod| pod["status"]["phase"] = json!("Failed")),
        ),
        ("without a gate", pod(|pod| pod["spec"] = json!({}))),
        (
            "not controlled",
            pod(|pod| pod["metadata"]["labels"] = json!({LABEL_CONTROL: "True"})),
        ),
    ];
    for (name, pod) in pods {
        let eviction = validate_eviction(&graceful(), &deletion(Value::Null), Some(&pod), &[], NOW);
        assert_eq!(eviction, Verdict::default(), "{name}");
        let verdict = validate(&graceful(), &deletion(pod), NOW);
        assert_eq!(verdict, Verdict::default(), "{name}");
    }
    let off = validate(&AdmitConfig::default(), &deletion(pod(|_| {})), NOW);
    assert_eq!(off, Verdict::default());
}

#[test]
fn a_forced_delete_passes_only_where_it_is_allowed_to() {
    let forced = Request {
        options: json!({"gracePeriodSeconds": 0}),
        ..deletion(pod(|_| {}))
    };
    assert!(validate(&graceful(), &forced, NOW).denial.is_some());
    let config = AdmitConfig {
        force_delete_passes: true,
        ..graceful()
    };
    assert_eq!(validate(&config, &forced, NOW), Verdict::default());
    assert!(
        validate(&config, &deletion(pod(|_| {})), NOW)
            .denial
            .is_some()
    );
}

/// Every way in which a request says that it is a dry run.
fn dry_runs(request: &Request) -> [Request; 3] {
    let of_review = Request {
        is_dry_run: true,
        ..request.clone()
    };
    let of_options = Request {
        options: json!({"dryRun": ["All"]}),
        ..request.clone()
    };
    // API servers follow it, and say nothing of it in the review.
    let of_eviction = Request {
        object: json!({"deleteOptions": {"dryRun": ["All"]}}),
        ..request.clone()
    };
    [of_review, of_options, of_eviction]
}

#[test]
fn a_dry_run_of_whatever_kind_gives_the_real_answer_and_writes_nothing() {
    let request = deletion(pod(|_| {}));
    let real = validate(&graceful(), &request, NOW);
    assert!(real.begin.is_some());
    for dry in dry_runs(&request) {
        let dry = validate(&graceful(), &dry, NOW);
        assert_eq!(real.denial, dry.denial);
        assert_eq!(dry.begin, None);
    }
    let (pod, request) = (pod(|_| {}), deletion(Value::Null));
    let evict = |request: &Request| validate_eviction(&graceful(), request, Some(&pod), &[], NOW);
    assert!(evict(&request).begin.is_some());
    // The real one is asked to come again, and is let through in the end.
    for dry in dry_runs(&request) {
        assert_eq!(evict(&dry), Verdict::default());
    }
}

#[test]
fn a_delete_that_is_held_says_until_when_and_no_longer_than_that() {
    let config = AdmitConfig {
        hold_deletes: Some(Duration::from_secs(10)),
        ..graceful()
    };
    let until = |pod: Value| {
        let begin = validate(&config, &deletion(pod.clone()), NOW).begin?;
        let until = &applied(&begin, &pod)["annotations"][ANNOTATION_HELD_UNTIL];
        Some(until.as_str().map(str::to_owned))
    };
    let in_seconds = |seconds| stamp(NOW + jiff::SignedDuration::from_secs(seconds));
    let known = |held_until: i64| {
        pod(|pod| {
            pod["metadata"]["labels"][LABEL_TO_DELETE] = json!("1");
            pod["metadata"]["annotations"] = json!({
                ANNOTATION_DELETE_TIMESTAMP: stamp(NOW),
                ANNOTATION_HELD_UNTIL: in_seconds(held_until),
            });
        })
    };
    assert_eq!(until(pod(|_| {})), Some(Some(in_seconds(12))));
    assert_eq!(until(known(3)), Some(Some(in_seconds(12))));
    assert_eq!(until(known(12)), None);
    // No webhook of ours can have written that.
    assert_eq!(until(known(3600)), Some(Some(in_seconds(12))));
    let evicted = validate_eviction(
        &config,
        &deletion(Value::Null),
        Some(&pod(|_| {})),
        &[],
        NOW,
    );
    let annotations = &evicted.begin.unwrap().patch["metadata"]["annotations"];
    assert_eq!(annotations[ANNOTATION_HELD_UNTIL], Value::Null);
    let dry = Request {
        is_dry_run: true,
        ..deletion(pod(|_| {}))
    };
    assert_eq!(validate(&config, &dry, NOW).begin, None);
}

#[test]
fn a_longer_prefix_is_somebody_elses() {
    let longer = |label: OperationLabel| format!("{}.example.org/x", label.prefix());
    let pod = pod(|pod| {
        for label in OperationLabel::ALL {
            pod["metadata"]["labels"][longer(label)] = json!("1");
        }
        let permission = format!("{}.example.org/x", OPERATION_PERMISSION_PREFIX);
        pod["metadata"]["labels"][permission] = json!("1");
    });
    let request = Request {
        operation: Operation::Update,
        object: pod.clone(),
        old_object: pod,
        ..deletion(Value::Null)
    };
    assert_eq!(mutate(&request, NOW), Ok(None));
    assert_eq!(validate(&graceful(), &request, NOW).denial, None);
}

#[test]
fn an_object_that_is_no_pod_is_refused() {
    let request = Request {
        operation: Operation::Update,
        object: json!({"metadata": {"labels": {"a": 1}}}),
        ..deletion(json!({"metadata": {}}))
    };
    assert_eq!(mutate(&request, NOW).unwrap_err().code, 400);
    assert_eq!(
        validate(&graceful(), &request, NOW).denial.unwrap().code,
        400
    );
}
