//! Where pods stand, case by case.

use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, ANNOTATION_DELETE_TIMESTAMP, ANNOTATION_EVICTED_AT,
    ANNOTATION_HELD_UNTIL, ANNOTATION_PROTECTION_DEADLINE, ANNOTATION_SKIP_RULES,
    CONDITION_SERVICE_READY, Detail, ID_POD_DELETE, LABEL_CONTROL, LABEL_STAY_OFFLINE, RejectInfo,
    Stage, operation_permission,
};
use serde_json::{Value, json};

use super::*;
use crate::model::stamp;

const SINCE: Timestamp = Timestamp::constant(1_767_225_600, 0);
const HOLDER: &str = "prot.podopslifecycle.kusionstack.io/slb";

use OperationLabel::{
    Completing, DoneOperationType, Operate, Operated, Operating, OperationType, PostCheck,
    PostChecked, PreCheck, PreChecked, Preparing,
};

/// A pod that is Ready, with the gate like this, and these labels of operations.
fn pod(gate: &str, labels: &[(OperationLabel, &str)], change: impl FnOnce(&mut Value)) -> Pod {
    let mut all = json!({LABEL_CONTROL: "true", operation_permission("update"): "1"});
    for (label, id) in labels {
        let is_type = matches!(label, OperationType | DoneOperationType);
        all[label.of(id)] = json!(if is_type {
            "update".to_owned()
        } else {
            stamp(SINCE)
        });
    }
    let mut pod = json!({
        "metadata": {"name": "web-0", "namespace": "default", "labels": all, "annotations": {}, "finalizers": []},
        "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": CONDITION_SERVICE_READY, "status": gate},
        ]},
    });
    change(&mut pod);
    Pod::of(&pod).unwrap()
}

fn nothing(_: &mut Value) {}

fn held(pod: &mut Value) {
    pod["metadata"]["finalizers"] = json!(["other", HOLDER]);
}

/// Phase, and what holds the pod in it, in short.
fn stands(pod: &Pod, rules: &[RuleSays]) -> String {
    let standing = Standing::of(pod, rules);
    let blockers = standing.blockers.iter();
    let blockers: Vec<String> = blockers
        .map(|blocker| format!("{} {}", blocker.kind.as_str(), blocker.name))
        .collect();
    format!("{}: {}", standing.phase.as_str(), blockers.join(", "))
}

const CONTROLLER: &str = "Controller longshore controller --enable podops";

fn check(cases: &[(&str, &str, Pod)]) {
    for (phase, by, pod) in cases {
        assert_eq!(stands(pod, &[]), format!("{phase}: {by}"));
    }
}

#[test]
fn an_operation_that_does_not_go_on_is_held_by_somebody_with_a_name() {
    let begun = [(Operating, "a"), (OperationType, "a")];
    let with = |more: &[(OperationLabel, &'static str)]| [&begun[..], more].concat();
    let checked = with(&[(PreChecked, "a"), (Preparing, "a")]);
    let granted = with(&[(PreChecked, "a"), (Operate, "a")]);
    let done = [(Operated, "a"), (DoneOperationType, "a")];
    let post_check = [&done[..], &[(PostCheck, "a")]].concat();
    let completing = [&done[..], &[(PostChecked, "a"), (Completing, "a")]].concat();
    let other = [(Operating, "b"), (OperationType, "b"), (PreCheck, "b")];
    let waiting = [&granted[1..], &other].concat();
    let holder = format!("Protection {HOLDER}");
    let others = format!("Operation b, {CONTROLLER}");
    check(&[
        (
            "PreCheck",
            CONTROLLER,
            pod("True", &with(&[(PreCheck, "a")]), nothing),
        ),
        ("Preparing", CONTROLLER, pod("True", &checked, held)),
        ("Preparing", &holder, pod("False", &checked, held)),
        ("Preparing", CONTROLLER, pod("False", &checked, nothing)),
        ("Operating", "Operator a", pod("False", &granted, nothing)),
        ("Operating", &others, pod("False", &waiting, nothing)),
        ("PostCheck", CONTROLLER, pod("False", &post_check, nothing)),
        ("Completing", CONTROLLER, pod("False", &completing, nothing)),
        (
            "Completing",
            "Expected Service/default/web",
            pod("True", &completing, expecting),
        ),
    ]);
}

fn expecting(pod: &mut Value) {
    let expected = json!({"expectedFinalizers": {"Service/default/web": HOLDER}});
    pod["metadata"]["annotations"][ANNOTATION_AVAILABLE_CONDITIONS] = json!(expected.to_string());
}

#[test]
fn a_pod_that_nobody_operates_on_serves_or_is_held_by_somebody_with_a_name() {
    let deleted = |pod: &mut Value| {
        held(pod);
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    };
    let not_ready = |pod: &mut Value| pod["status"]["conditions"][0]["status"] = json!("False");
    let label = |key: &'static str| {
        move |pod: &mut Value| pod["metadata"]["labels"][key] = json!(stamp(SINCE))
    };
    let invalid = |pod: &mut Value| pod["metadata"]["labels"][Operating.prefix()] = json!("x");
    let ended = |pod: &mut Value| pod["status"]["phase"] = json!("Failed");
    let person = format!("Person {LABEL_STAY_OFFLINE}");
    let to_go = format!("Finalizer other, Protection {HOLDER}");
    let labels = format!("Invalid labels, {CONTROLLER}");
    let malformed = |pod: &mut Value| {
        pod["metadata"]["annotations"][ANNOTATION_AVAILABLE_CONDITIONS] = json!("?");
    };
    let conditions = format!("Invalid {ANNOTATION_AVAILABLE_CONDITIONS}");
    check(&[
        ("Completing", &conditions, pod("True", &[], malformed)),
        (
            "ServiceAvailable",
            "",
            pod("True", &[], label(LABEL_SERVICE_AVAILABLE)),
        ),
        ("Completing", CONTROLLER, pod("False", &[], nothing)),
        ("Completing", CONTROLLER, pod("True", &[], nothing)),
        ("Completing", "Node Ready", pod("True", &[], not_ready)),
        (
            "Completing",
            "Expected Service/default/web",
            pod("True", &[], expecting),
        ),
        (
            "Completing",
            &person,
            pod("True", &[], label(LABEL_STAY_OFFLINE)),
        ),
        ("Terminating", &to_go, pod("True", &[], deleted)),
        ("Ended", "", pod("True", &[], ended)),
        ("Completing", &labels, pod("False", &[], invalid)),
    ]);
}

#[test]
fn what_cannot_be_followed_is_named_next_to_what_holds_the_pod_meanwhile() {
    let untyped = [(Operating, "a"), (PreCheck, "a")];
    let empty = |pod: &mut Value| pod["metadata"]["labels"][OperationType.of("a")] = json!("");
    let granted = [(Operating, "a"), (PreChecked, "a"), (Operate, "a")];
    check(&[
        ("PreCheck", "Untyped a", pod("True", &untyped, nothing)),
        ("PreCheck", "Untyped a", pod("True", &untyped, empty)),
        ("Operating", "Untyped a", pod("False", &granted, nothing)),
    ]);
    let protected = [
        (Operating, "a"),
        (OperationType, "a"),
        (PreChecked, "a"),
        (Preparing, "a"),
    ];
    let deadline = |pod: &mut Value| {
        held(pod);
        pod["metadata"]["annotations"][ANNOTATION_PROTECTION_DEADLINE] = json!("soon");
    };
    let both = format!("Protection {HOLDER}, Invalid {ANNOTATION_PROTECTION_DEADLINE}");
    check(&[("Preparing", &both, pod("False", &protected, deadline))]);
    let skips = |pod: &mut Value| {
        pod["metadata"]["annotations"][ANNOTATION_SKIP_RULES] = json!("half");
    };
    let checked = [(Operating, "a"), (OperationType, "a"), (PreCheck, "a")];
    let rules = [RuleSays {
        rule: "ptr".to_owned(),
        detail: None,
    }];
    assert_eq!(
        stands(&pod("True", &checked, skips), &rules),
        format!("PreCheck: Rule ptr, Invalid {ANNOTATION_SKIP_RULES}")
    );
}

#[test]
fn a_rule_is_named_with_what_it_says_and_since_when() {
    let detail = |passed, stage: Stage| Detail {
        stage: stage.as_str().to_owned(),
        passed,
        reject_info: vec![RejectInfo {
            rule_name: "half".to_owned(),
            reason: "too many".to_owned(),
        }],
        ..Detail::default()
    };
    let says = |rule: &str, detail| RuleSays {
        rule: rule.to_owned(),
        detail,
    };
    let rules = [
        says("passes", Some(detail(true, Stage::PreCheck))),
        says("holds", Some(detail(false, Stage::PreCheck))),
        says("new", None),
    ];
    let labels = [(Operating, "a"), (OperationType, "a"), (PreCheck, "a")];
    let standing = Standing::of(&pod("True", &labels, nothing), &rules);
    let texts: Vec<String> = standing
        .blockers
        .iter()
        .map(|blocker| format!("{}: {}", blocker.name, blocker.message))
        .collect();
    assert_eq!(
        texts,
        [
            "holds: holds: half: too many",
            "new: waiting for podtransitionrule new processing"
        ]
    );
    assert!(
        standing
            .blockers
            .iter()
            .all(|blocker| blocker.since == Some(SINCE))
    );
    assert_eq!(
        (standing.phase, standing.since),
        (Phase::PreCheck, Some(SINCE))
    );
}

#[test]
fn an_operation_that_others_wait_for_holds_the_pod_since_it_has_begun() {
    let labels = [
        (OperationType, "a"),
        (PreChecked, "a"),
        (Operate, "a"),
        (Operating, "b"),
        (OperationType, "b"),
        (PreCheck, "b"),
    ];
    let begun_at = SINCE - SignedDuration::from_mins(10);
    let begun = |pod: &mut Value| {
        pod["metadata"]["labels"][Operating.of("b")] = json!(stamp(begun_at));
    };
    let standing = Standing::of(&pod("False", &labels, begun), &[]);
    let mut blockers = standing.blockers.iter();
    let held = blockers.find(|blocker| blocker.kind == BlockerKind::Operation);
    let held = held.unwrap();
    assert_eq!((held.name.as_str(), held.since), ("b", Some(begun_at)));
}

#[test]
fn a_hold_that_no_webhook_can_have_written_gives_nobody_time() {
    let labels = [Operating, OperationType, Operate].map(|label| (label, ID_POD_DELETE));
    for (seconds, expected) in [(10, true), (3_600, false), (4_000_000_000, false)] {
        let until = SINCE + SignedDuration::from_secs(seconds);
        let marked = |pod: &mut Value| {
            pod["metadata"]["annotations"] = json!({
                ANNOTATION_DELETE_TIMESTAMP: stamp(SINCE), ANNOTATION_HELD_UNTIL: stamp(until),
            });
        };
        let standing = Standing::of(&pod("False", &labels, marked), &[]);
        let mut blockers = standing.blockers.iter();
        let is_given = blockers.any(|it| it.message.contains("whose delete is held"));
        assert_eq!(is_given, expected, "{seconds}: {:?}", standing.blockers);
    }
}

#[test]
fn an_instant_that_nobody_can_have_meant_is_not_shown() {
    let day = SignedDuration::from_hours(24);
    for (text, expected) in [
        (stamp(SINCE), Some(SINCE)),
        (stamp(SINCE + day), Some(SINCE + day)),
        (stamp(EARLIEST), Some(EARLIEST)),
        ("1".to_owned(), None),
        ("true".to_owned(), None),
        ("1767225600".to_owned(), None),
        (stamp(SINCE + day + day), None),
    ] {
        let offline = |pod: &mut Value| {
            pod["metadata"]["labels"][LABEL_STAY_OFFLINE] = json!(text);
        };
        let standing = Standing::of(&pod("True", &[], offline), &[]).seen_at(SINCE);
        let [person] = standing.blockers.as_slice() else {
            panic!("{standing:?}");
        };
        assert_eq!(
            (person.kind, person.since),
            (BlockerKind::Person, expected),
            "{text}"
        );
        let serves = |pod: &mut Value| {
            pod["metadata"]["labels"][LABEL_SERVICE_AVAILABLE] = json!(text);
        };
        let standing = Standing::of(&pod("True", &[], serves), &[]).seen_at(SINCE);
        assert_eq!(standing.since, expected, "{text}");
    }
    let begun = |pod: &mut Value| {
        pod["metadata"]["labels"][Operating.of("a")] = json!("1");
        pod["metadata"]["labels"][OperationType.of("a")] = json!("update");
    };
    let standing = Standing::of(&pod("True", &[], begun), &[]).seen_at(SINCE);
    assert_eq!(standing.operations[0].since, None);
}

#[test]
fn an_eviction_that_waits_is_held_by_its_budgets() {
    let evicted = |pod: &mut Value| {
        pod["metadata"]["annotations"] = json!({ANNOTATION_EVICTED_AT: stamp(SINCE)});
        pod["metadata"]["labels"][LABEL_SERVICE_AVAILABLE] = json!(stamp(SINCE));
    };
    let held = Held {
        budget: "web".to_owned(),
        message: "PodDisruptionBudget default/web: 2 of 3 must stay available, 2 are".to_owned(),
    };
    let standing = |pod: &Pod| Standing::of(pod, &[]).held_by(std::slice::from_ref(&held));
    let waiting = standing(&pod("True", &[], evicted));
    assert_eq!(waiting.phase, Phase::ServiceAvailable);
    let [blocker] = waiting.blockers.as_slice() else {
        panic!("{waiting:?}");
    };
    // The budget may be younger than the eviction.
    assert_eq!((blocker.kind, blocker.since), (BlockerKind::Budget, None));
    assert_eq!(waiting.evicted_at, Some(SINCE));
    assert_eq!(
        (&blocker.name, &blocker.message),
        (&held.budget, &held.message)
    );
    let nobody_asked = standing(&pod("True", &[], nothing));
    assert!(
        nobody_asked
            .kinds()
            .iter()
            .all(|kind| *kind != BlockerKind::Budget)
    );
}
