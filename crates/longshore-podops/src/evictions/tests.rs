//! What a round does not look at changes nothing that it decides.

use longshore_api::podops::{
    ANNOTATION_EVICTED_AT, CONDITION_SERVICE_READY, FINALIZER_PROTECTED, OperationLabel,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::stamp;

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

fn parsed<T: DeserializeOwned>(objects: &[Value]) -> Seen<Vec<Arc<Parsed<T>>>> {
    let objects = objects.iter().cloned();
    let objects = objects.map(|object| Arc::new(serde_json::from_value(object).unwrap()));
    Seen::Present(objects.collect())
}

fn app() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["web", "db", "queue"])
}

/// Pods that serve, wait for their eviction, or wait for rules.
fn pods() -> impl Strategy<Value = Vec<Value>> {
    let evicted = prop::option::of(0..150_i64);
    let pod = (app(), any::<bool>(), evicted, any::<bool>());
    prop::collection::vec(pod, 0..12).prop_map(|pods| {
        let pods = pods.into_iter().enumerate();
        pods.map(|(n, (app, is_ready, evicted, is_in_stage))| {
            let status = if is_ready { "True" } else { "False" };
            let mut pod = json!({
                "metadata": {
                    "namespace": "default", "name": format!("p{n}"), "uid": format!("u{n}"),
                    "resourceVersion": "7", "labels": {LABEL_CONTROL: CONTROLLED, "app": app},
                    "annotations": {},
                },
                "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]},
            });
            let metadata = &mut pod["metadata"];
            if let Some(seconds) = evicted {
                let at = stamp(NOW - jiff::SignedDuration::from_secs(seconds));
                metadata["annotations"][ANNOTATION_EVICTED_AT] = json!(at);
            }
            if is_in_stage {
                for label in [OperationLabel::Operating, OperationLabel::PreCheck] {
                    metadata["labels"][label.of("a")] = json!("1");
                }
            }
            pod
        })
        .collect()
    })
}

fn budgets() -> impl Strategy<Value = Vec<Value>> {
    let budget = (app(), 0..4_u8, 0..4_u8);
    prop::collection::vec(budget, 0..4).prop_map(|budgets| {
        let budgets = budgets.into_iter().enumerate();
        budgets
            .map(|(n, (app, desired, healthy))| {
                json!({
                    "metadata": {"namespace": "default", "name": format!("b{n}"), "generation": 1},
                    "spec": {"selector": {"matchLabels": {"app": app}}},
                    "status": {
                        "expectedPods": 4, "desiredHealthy": desired, "currentHealthy": healthy,
                        "observedGeneration": 1,
                    },
                })
            })
            .collect()
    })
}

/// Each says of one pod whether it may go on.
fn rules() -> impl Strategy<Value = Vec<Value>> {
    let rule = (app(), 0..12_u8, any::<bool>());
    prop::collection::vec(rule, 0..4).prop_map(|rules| {
        let rules = rules.into_iter().enumerate();
        rules
            .map(|(n, (app, pod, passed))| {
                let detail =
                    json!({"name": format!("p{pod}"), "stage": "PreCheck", "passed": passed});
                json!({
                    "metadata": {
                        "namespace": "default", "name": format!("r{n}"), "generation": 1,
                        "finalizers": [FINALIZER_PROTECTED],
                    },
                    "spec": {"selector": {"matchLabels": {"app": app}}},
                    "status": {"observedGeneration": 1, "details": [detail]},
                })
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pods_budgets_and_rules_that_are_left_out_change_no_decision(
        pods in pods(), budgets in budgets(), rules in rules(),
    ) {
        let all = Observed {
            now: NOW,
            pods: read_all(parsed(&pods)),
            budgets: read_all(parsed(&budgets)),
            rules: read_all(parsed(&rules)),
            others: Seen::Absent,
            failed: BTreeSet::new(),
            given_up: BTreeSet::new(),
            recounted: BTreeSet::new(),
        };
        let (pods, budgets) = concerned(parsed(&pods), parsed(&budgets), NOW);
        let some = Observed {
            pods,
            budgets,
            rules: read_some(parsed(&rules), Rule::rejects),
            ..all.clone()
        };
        let decided = |observed: &Observed| {
            (eviction::is_short(observed), format!("{:?}", eviction::decide(observed)))
        };
        prop_assert_eq!(decided(&some), decided(&all));
    }
}

#[test]
fn a_write_that_fails_for_the_same_reason_again_is_no_news() {
    let mut failed = Failures::default();
    let target = ObjectRef {
        resource: Resource::POD,
        namespace: "default".to_owned(),
        name: "web-0".to_owned(),
        uid: Some("u".to_owned()),
    };
    let after = |seconds: i64| NOW + jiff::SignedDuration::from_secs(seconds);
    assert!(failed.note(&target, "a policy refuses it", after(0)));
    for n in 1..100 {
        // When it may be tried again, the reason is still known.
        let waiting = failed.at(after(5 * n));
        assert!(waiting.is_empty(), "{waiting:?}");
        assert!(!failed.note(&target, "a policy refuses it", after(5 * n)));
        assert_eq!(failed.at(after(5 * n)).len(), 1);
    }
    assert!(failed.note(&target, "a quota refuses it", after(500)));
    // It was written, and much later not.
    assert!(failed.at(after(600)).is_empty());
    assert!(failed.note(&target, "a quota refuses it", after(600)));
}

#[test]
fn a_pod_that_was_refused_for_a_minute_gives_others_their_turn_for_some_minutes() {
    let mut refused = Failures::default();
    let target = ObjectRef {
        resource: Resource::POD,
        namespace: "default".to_owned(),
        name: "web-0".to_owned(),
        uid: Some("u".to_owned()),
    };
    let after = |seconds: i64| NOW + jiff::SignedDuration::from_secs(seconds);
    let is_given_up = |refused: &Failures, seconds| !refused.lasting(after(seconds)).is_empty();
    for seconds in [0, 20, 40, 49] {
        refused.note(&target, "a policy refuses it", after(seconds));
        assert!(!is_given_up(&refused, seconds), "{seconds}");
    }
    // For another reason: it is still refused.
    refused.note(&target, "another policy refuses it", after(65));
    assert!(is_given_up(&refused, 65));
    assert!(is_given_up(&refused, 300));
    assert!(!is_given_up(&refused, 400));
    // It is tried again, for another minute.
    refused.note(&target, "a policy refuses it", after(401));
    assert!(!is_given_up(&refused, 401));
    // Two failures that are far apart are two.
    refused.note(&target, "a policy refuses it", after(520));
    assert!(!is_given_up(&refused, 520));
}
