//! An event costs what it concerns, however much else the namespace has.

use kube::core::WatchEvent;
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, OperationLabel, detail_annotation};
use longshore_kit::SystemClock;
use serde_json::json;

use super::*;
use crate::model::reads;

/// So many pods, and so many rules.
const N: usize = 100;

/// A pod that waits for rules.
fn pod(n: usize, group: usize, version: u64) -> Parsed<Pod> {
    let pod = json!({"metadata": {
        "namespace": "default", "name": format!("web-{n}"), "uid": format!("p{n}"),
        "resourceVersion": version.to_string(),
        "labels": {
            LABEL_CONTROL: CONTROLLED, "app": "web", "group": group.to_string(),
            OperationLabel::Operating.of("a"): "1", OperationLabel::PreCheck.of("a"): "1",
        },
    }});
    serde_json::from_value(pod).unwrap()
}

/// A rule over one group, whose status has the pod of the rule's number as its target, and says why the pod of the
/// group's number waits.
fn rule(n: usize, group: usize, version: u64, why: &str) -> Parsed<Rule> {
    let detail = json!({
        "name": format!("web-{group}"), "stage": "PreCheck",
        "rejectInfo": [{"ruleName": "half", "reason": why}],
    });
    let rule = json!({
        "metadata": {
            "namespace": "default", "name": format!("rule-{n}"), "uid": format!("r{n}"),
            "resourceVersion": version.to_string(), "generation": 1,
        },
        "spec": {"selector": {"matchLabels": {"app": "web", "group": group.to_string()}}},
        "status": {
            "targets": [format!("web-{n}")], "details": [detail], "observedGeneration": 1,
        },
    });
    serde_json::from_value(rule).unwrap()
}

/// Each rule selects one pod.
fn filled() -> Caches {
    let caches = Caches::new(&PodOpsConfig::default(), Arc::new(SystemClock));
    caches
        .rules
        .replace((0..N).map(|n| rule(n, n, 1, "full")).collect(), 1);
    caches
        .pods
        .replace((0..N).map(|n| pod(n, n, 1)).collect(), 1);
    reads::take();
    caches
}

fn key(name: &str) -> PodKey {
    PodKey {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

fn pod_of(n: usize) -> Requeued {
    Requeued::Pod(key(&format!("web-{n}")))
}

fn rule_of(n: usize) -> Requeued {
    Requeued::Rule(key(&format!("rule-{n}")))
}

#[test]
fn an_event_of_a_pod_reads_that_pod_and_requeues_the_rules_that_are_about_it() {
    let caches = filled();
    let update = caches.pods.apply_event(WatchEvent::Modified(pod(7, 7, 2)));
    let keys = caches.by_pod(update.unwrap());
    assert_eq!(reads::take(), 1, "objects were read");
    assert_eq!(keys, [rule_of(7), pod_of(7)]);
    // It leaves one rule and comes to another.
    let update = caches.pods.apply_event(WatchEvent::Modified(pod(7, 8, 3)));
    let keys = caches.by_pod(update.unwrap());
    assert_eq!(reads::take(), 1, "objects were read");
    assert_eq!(keys, [rule_of(7), rule_of(8), pod_of(7)]);
}

#[test]
fn an_event_of_a_pod_requeues_the_rules_whose_annotations_it_has() {
    let caches = filled();
    let mut object = pod(7, 7, 2).raw().to_value().unwrap();
    object["metadata"]["annotations"] =
        json!({detail_annotation("rule-9"): "{}", detail_annotation("gone"): "{}"});
    let pod = serde_json::from_value(object).unwrap();
    let update = caches.pods.apply_event(WatchEvent::Modified(pod));
    let keys = caches.by_pod(update.unwrap());
    let gone = Requeued::Rule(key("gone"));
    assert_eq!(keys, [gone, rule_of(7), rule_of(9), pod_of(7)]);
}

#[test]
fn an_event_of_a_rule_reads_that_rule_and_requeues_the_pods_of_which_it_says_something_else() {
    let caches = filled();
    let update = caches
        .rules
        .apply_event(WatchEvent::Modified(rule(7, 7, 2, "half full")));
    let keys = caches.by_rule(update.unwrap());
    assert_eq!(reads::take(), 1, "objects were read");
    assert_eq!(keys, [pod_of(7), rule_of(7)]);
}

#[test]
fn pods_are_requeued_once_for_what_a_rule_says_or_says_no_more() {
    let caches = filled();
    let table = [
        ("another selector", rule(7, 8, 2, "full"), vec![7, 8]),
        ("nothing new", rule(7, 8, 3, "full"), vec![]),
        ("another reason", rule(7, 8, 4, "half full"), vec![8]),
    ];
    for (what, rule, expected) in table {
        let update = caches.rules.apply_event(WatchEvent::Modified(rule));
        let keys = caches.by_rule(update.unwrap());
        let pods: Vec<Requeued> = expected.into_iter().map(pod_of).collect();
        assert_eq!(keys[..keys.len() - 1], pods, "{what}");
    }
    let update = caches
        .rules
        .apply_event(WatchEvent::Deleted(rule(7, 8, 5, "full")));
    assert_eq!(caches.by_rule(update.unwrap()), [pod_of(8), rule_of(7)]);
}
