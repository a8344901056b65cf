//! Which evictions begin, case by case.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use longshore_api::podops::{
    ANNOTATION_DELETE_TIMESTAMP, ANNOTATION_EVICTED_AT, CONDITION_SERVICE_READY, LABEL_CONTROL,
    LABEL_PREPARING_TO_DELETE, LABEL_TO_DELETE, OperationLabel,
};
use longshore_core::{Action, Next, Patch, Seen, UnknownCause};
use serde_json::{Value, json};

use super::*;
use crate::{model::stamp, rule::Rule};

mod recounts;
mod reservations;

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

fn before(seconds: i64) -> String {
    stamp(NOW - SignedDuration::from_secs(seconds))
}

/// `web-0` and so on, each Ready but for what words say.
fn pods(kinds: &[&str]) -> Vec<Pod> {
    let pods = kinds.iter().enumerate();
    pods.map(|(n, kind)| pod(&format!("web-{n}"), kind))
        .collect()
}

fn pod(name: &str, words: &str) -> Pod {
    let mut labels = json!({LABEL_CONTROL: "true", "app": "web"});
    let mut pod = json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": name, "resourceVersion": "7",
            "annotations": {}, "creationTimestamp": "2025-12-31T12:00:00Z",
        },
        "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
        "status": {"phase": "Running"},
    });
    let (mut is_ready, mut gate) = (true, "True");
    let mut label =
        |label: OperationLabel, id: &str, value: &str| labels[label.of(id)] = json!(value);
    for word in words.split_whitespace() {
        match word {
            "ready" | "other" => {}
            "unready" => is_ready = false,
            "evicted" => {
                pod["metadata"]["annotations"][ANNOTATION_EVICTED_AT] = json!(before(9));
            }
            "earlier" => {
                pod["metadata"]["annotations"][ANNOTATION_EVICTED_AT] = json!(before(10));
            }
            "forgotten" => {
                pod["metadata"]["annotations"][ANNOTATION_EVICTED_AT] = json!(before(121));
            }
            "pending" => pod["status"]["phase"] = json!("Pending"),
            "deleting" => {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            "begun" => {
                label(OperationLabel::Operating, "pod-delete", "1");
                label(OperationLabel::OperationType, "pod-delete", "delete");
                label(OperationLabel::PreCheck, "pod-delete", "1");
            }
            "operated" | "granted" | "completing" => {
                let of = match word {
                    "operated" => OperationLabel::PreCheck,
                    "granted" => OperationLabel::Operate,
                    _ => OperationLabel::Completing,
                };
                let exists = match word {
                    "completing" => OperationLabel::Operated,
                    _ => OperationLabel::Operating,
                };
                label(exists, "a", "1");
                label(OperationLabel::OperationType, "a", "update");
                label(of, "a", "1");
            }
            "closed" => gate = "False",
            _ => panic!("{word}"),
        }
    }
    if words.contains("other") {
        labels.as_object_mut().unwrap().remove(LABEL_CONTROL);
    }
    pod["metadata"]["labels"] = labels;
    pod["status"]["conditions"] = json!([
        {"type": "Ready", "status": if is_ready { "True" } else { "False" }},
        {"type": CONDITION_SERVICE_READY, "status": gate},
    ]);
    Pod::of(&pod).unwrap()
}

/// A budget of this name over all of them: so many are expected, have to stay, and were available.
fn budget(name: &str, numbers: [i64; 3], change: impl FnOnce(&mut Value)) -> Budget {
    let [expected, desired, healthy] = numbers;
    let mut budget = json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": name, "generation": 2, "resourceVersion": "9",
        },
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "expectedPods": expected, "desiredHealthy": desired, "currentHealthy": healthy,
            "disruptionsAllowed": (healthy - desired).max(0), "observedGeneration": 2,
        },
    });
    change(&mut budget);
    serde_json::from_value(budget).unwrap()
}

fn nothing(_: &mut Value) {}

fn observed(pods: Vec<Pod>, budgets: Vec<Budget>) -> Observed {
    Observed {
        now: NOW,
        pods: Seen::Present(pods),
        budgets: Seen::Present(budgets),
        rules: Seen::Present(Vec::new()),
        others: Seen::Absent,
        failed: BTreeSet::new(),
        given_up: BTreeSet::new(),
        recounted: BTreeSet::new(),
    }
}

/// What a round writes: the reservations, and whose operations begin.
fn written(observed: &Observed) -> (Vec<Patch>, Vec<String>) {
    let (mut reserves, mut begins) = (Vec::new(), Vec::new());
    for action in decide(observed).actions {
        let Action::Call(effect) = action else {
            panic!("{action:?}");
        };
        match effect.clone() {
            EvictionEffect::Reserve(patch) => reserves.push(patch),
            EvictionEffect::Begin(patch) => begins.push(patch.target.name),
            EvictionEffect::CountAgain(_) => panic!("{effect:?}"),
        }
    }
    (reserves, begins)
}

/// The same after these reservations were written, and before the disruption controller has counted.
fn after(observed: &Observed, reserves: &[Patch]) -> Observed {
    let mut observed = observed.clone();
    let Seen::Present(budgets) = &mut observed.budgets else {
        return observed;
    };
    for Patch { target, patch, .. } in reserves {
        let mut budgets = budgets.iter_mut();
        let budget = budgets.find(|it| it.name == target.name).unwrap();
        let status = &patch["status"];
        for (name, at) in status["disruptedPods"].as_object().unwrap() {
            let at = at.as_str().unwrap().parse().unwrap();
            budget.disrupted.insert(name.clone(), at);
        }
        if let Some(allowed) = status["disruptionsAllowed"].as_i64() {
            budget.allowed = allowed;
        }
    }
    observed
}

/// Whose operations begin, in the round after the one that makes the reservations.
fn begun(observed: &Observed) -> String {
    let (reserves, _) = written(observed);
    let (_, begins) = written(&after(observed, &reserves));
    begins.join(" ")
}

/// Pods under a budget that wants two of three to stay, and whose operations begin.
const TWO_OF_THREE: &[(&str, [&str; 3], &str)] = &[
    ("all at once", ["evicted", "evicted", "evicted"], "web-0"),
    ("the longest wait", ["evicted", "earlier", ""], "web-1"),
    ("no client asks", ["", "", ""], ""),
    ("no client asks any more", ["forgotten", "", ""], ""),
    ("one has begun", ["evicted begun", "evicted", ""], ""),
    ("one is deleted", ["begun", "evicted", ""], ""),
    ("one is operated on", ["granted closed", "evicted", ""], ""),
    ("one is about to be", ["operated", "evicted", ""], ""),
    ("one is given back", ["completing", "evicted", ""], "web-1"),
    ("one is not Ready", ["unready", "evicted", ""], ""),
    ("one is closed", ["closed", "evicted", ""], ""),
    ("one goes", ["deleting", "evicted", ""], ""),
    ("out itself", ["unready evicted", "evicted", ""], "web-0"),
    (
        "has yet to run",
        ["unready pending evicted", "unready", "unready"],
        "web-0",
    ),
    ("too few", ["unready evicted", "unready", ""], ""),
    ("goes already", ["evicted deleting", "", ""], ""),
];

#[test]
fn as_many_begin_as_the_budget_can_spare() {
    for (what, kinds, expected) in TWO_OF_THREE {
        let observed = observed(pods(kinds), vec![budget("web", [3, 2, 3], nothing)]);
        assert_eq!(begun(&observed), *expected, "{what}");
    }
}

const ALL: [&str; 3] = ["evicted", "evicted", "evicted"];
const THREE: &str = "web-0 web-1 web-2";

fn check(cases: Vec<(&str, [&str; 3], Budget, &str)>) {
    for (what, kinds, budget, expected) in cases {
        let observed = observed(pods(&kinds), vec![budget]);
        assert_eq!(begun(&observed), expected, "{what}");
    }
}

#[test]
fn what_a_budget_asks_for_is_what_was_counted_for_its_present_spec() {
    let old = |it: &mut Value| it["status"]["observedGeneration"] = json!(1);
    let new = |it: &mut Value| it["status"] = Value::Null;
    let failed = |it: &mut Value| {
        it["status"]["conditions"] = json!([{
            "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no",
        }]);
    };
    check(vec![
        ("all must stay", ALL, budget("web", [3, 3, 3], nothing), ""),
        ("none must", ALL, budget("web", [3, 0, 3], nothing), THREE),
        (
            "one must",
            ALL,
            budget("web", [3, 1, 3], nothing),
            "web-0 web-1",
        ),
        ("an earlier spec", ALL, budget("web", [3, 0, 3], old), ""),
        ("not counted", ALL, budget("web", [3, 0, 3], new), ""),
        ("counted in vain", ALL, budget("web", [3, 0, 3], failed), ""),
        ("no pods then", ALL, budget("web", [0, 0, 0], nothing), ""),
    ]);
}

/// The disruption controller leaves the observed generation as it is where it cannot count.
#[test]
fn a_budget_whose_edit_cannot_be_counted_says_why() {
    let budget = budget("web", [3, 2, 3], |it| {
        it["status"]["observedGeneration"] = json!(1);
        it["status"]["conditions"] = json!([{
            "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale",
        }]);
    });
    let why = "the disruption controller cannot count the pods: no scale";
    assert_eq!(budget.counted, Err(why.to_owned()));
}

/// API servers print the first instant of the year 1 so.
#[test]
fn an_entry_without_a_time_is_no_disruption() {
    let budget = budget("web", [3, 2, 3], |it| {
        it["status"]["disruptedPods"] = json!({"web-0": null, "web-1": NOW.to_string()});
    });
    assert_eq!(
        budget.disrupted,
        BTreeMap::from([("web-1".to_owned(), NOW)])
    );
}

#[test]
fn a_budget_is_about_the_pods_that_it_selects_and_those_that_run() {
    let generous = |it: &mut Value| it["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
    let elsewhere = |it: &mut Value| it["metadata"]["namespace"] = json!("other");
    let nobodys = |it: &mut Value| it["spec"]["selector"] = Value::Null;
    let everybodys = |it: &mut Value| it["spec"]["selector"] = json!({});
    let disrupting = |it: &mut Value| {
        it["status"]["disruptedPods"] = json!({"web-2": "2025-12-31T23:59:00Z"});
    };
    let long_ago = |it: &mut Value| {
        it["status"]["disruptedPods"] = json!({"web-2": "2025-12-31T23:57:00Z"});
    };
    let two = ["evicted", "evicted", ""];
    let unready = ["unready evicted", "unready", "unready"];
    check(vec![
        (
            "generous",
            unready,
            budget("web", [3, 3, 0], generous),
            "web-0",
        ),
        ("unready", unready, budget("web", [3, 3, 0], nothing), ""),
        ("elsewhere", ALL, budget("web", [3, 3, 3], elsewhere), THREE),
        ("of no pod", ALL, budget("web", [3, 3, 3], nobodys), THREE),
        ("everybody's", ALL, budget("web", [3, 3, 3], everybodys), ""),
        (
            "another is allowed to go",
            two,
            budget("web", [3, 2, 3], disrupting),
            "",
        ),
        (
            "and has not",
            two,
            budget("web", [3, 2, 3], long_ago),
            "web-0",
        ),
    ]);
}

#[test]
fn a_pod_of_several_budgets_needs_room_in_all_of_them() {
    let pods = || pods(&["ready evicted", "ready evicted", "ready"]);
    let roomy = || budget("roomy", [3, 1, 3], nothing);
    let full = budget("full", [3, 3, 3], nothing);
    assert_eq!(begun(&observed(pods(), vec![roomy(), full.clone()])), "");
    let one = budget("one", [3, 2, 3], nothing);
    assert_eq!(begun(&observed(pods(), vec![roomy(), one])), "web-0");
    let held = holders(&pods(), &[roomy(), full], &[], NOW);
    assert_eq!(
        held["web-0"],
        [Held {
            budget: "full".to_owned(),
            message: "PodDisruptionBudget shop/full: 3 of 3 must stay available, 3 are".to_owned(),
        }]
    );
}

#[test]
fn an_operation_that_a_rule_holds_takes_no_place() {
    let rule = |passed: bool| {
        Rule::of(&json!({
            "metadata": {"namespace": "shop", "name": "ptr", "generation": 1},
            "spec": {"selector": {}, "rules": []},
            "status": {"observedGeneration": 1, "targets": ["web-0"], "details": [
                {"name": "web-0", "stage": "PreCheck", "passed": passed},
            ]},
        }))
        .unwrap()
    };
    for (kind, passed, expected) in [
        ("ready operated", true, ""),
        ("ready operated", false, "web-1"),
        // It has been given a place, and rules may let it go at any time.
        ("ready evicted begun", false, ""),
    ] {
        let observed = Observed {
            rules: Seen::Present(vec![rule(passed)]),
            ..observed(
                pods(&[kind, "ready evicted", "ready"]),
                vec![budget("web", [3, 2, 3], nothing)],
            )
        };
        assert_eq!(begun(&observed), expected, "{kind} {passed}");
    }
}

#[test]
fn pods_without_the_label_count_where_somebody_has_seen_them() {
    let mut seen = observed(
        pods(&["ready evicted", "ready"]),
        vec![budget("web", [3, 2, 3], nothing)],
    );
    assert_eq!(begun(&seen), "");
    assert!(is_short(&seen), "the budget has counted a third one");
    seen.others = Seen::Present(vec![pod("other-0", "ready other")]);
    assert_eq!(begun(&seen), "web-0");
    seen.others = Seen::Present(vec![pod("other-0", "unready other")]);
    assert_eq!(begun(&seen), "");
    seen.others = Seen::unknown(UnknownCause::Unreachable, "down");
    assert_eq!(begun(&seen), "");
    assert_ne!(decide(&seen).next, Next::AwaitChange);
    // All pods that the budget has counted take part: no other pods are listed.
    let all = observed(
        pods(&["ready granted closed", "ready evicted", "ready"]),
        vec![budget("web", [3, 2, 3], nothing)],
    );
    assert!(!is_short(&all));
}

#[test]
fn what_begins_is_written_upon_the_version_that_was_counted() {
    let plan = decide(&observed(pods(&["ready evicted"]), Vec::new()));
    let [Action::Call(EvictionEffect::Begin(patch))] = plan.actions.as_slice() else {
        panic!("{plan:?}");
    };
    let now = stamp(NOW);
    assert_eq!(
        patch.patch["metadata"],
        json!({
            "resourceVersion": "7",
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

#[test]
fn a_pod_that_cannot_be_written_keeps_its_place_and_holds_nobody_else() {
    let mut seen = observed(
        pods(&["ready evicted", "ready evicted", "ready evicted"]),
        vec![budget("web", [3, 1, 3], nothing)],
    );
    seen.failed.insert("web-0".to_owned());
    assert_eq!(begun(&seen), "web-1");
    assert_ne!(decide(&seen).next, Next::AwaitChange);
}

#[test]
fn a_pod_that_cannot_be_written_for_long_gives_its_place_to_others_and_renews_nothing() {
    let entry = |seconds: i64| {
        move |it: &mut Value| {
            let at = NOW - SignedDuration::from_secs(seconds);
            it["status"]["disruptedPods"] = json!({"web-0": at.to_string()});
        }
    };
    let given_up = |numbers: [i64; 3], change: Box<dyn FnOnce(&mut Value)>| Observed {
        given_up: BTreeSet::from(["web-0".to_owned()]),
        ..observed(
            pods(&["earlier", "evicted", "ready"]),
            vec![budget("web", numbers, change)],
        )
    };
    let free = given_up([3, 2, 3], Box::new(nothing));
    assert_eq!(begun(&free), "web-1");
    // Its entry ends by itself, and then the other one has the place.
    for seconds in [10, 70] {
        let taken = given_up([3, 2, 2], Box::new(entry(seconds)));
        assert_eq!(written(&taken), (Vec::new(), Vec::new()), "{seconds}");
        assert_ne!(decide(&taken).next, Next::AwaitChange);
    }
}
