//! The laws of every controller, over generated pods and rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longshore_api::podops::{
    CONDITION_SERVICE_READY, Detail, FINALIZER_PROTECTED, FINALIZER_SERVICES, LABEL_CONTROL,
    LABEL_TO_DELETE, OperationLabel, operation_permission,
};
use longshore_core::{Action, Never, Plan, Seen};
use longshore_test::laws::{Decider, check_decider};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    admit::grace::may_delete,
    lifecycle,
    lifecycle::RuleSays,
    model::{Labels, Namespace, Pod},
    pods,
    rule::{self, Answers, Heard, Question, Rule, Subject},
    traffic::{DrainDelay, Service, Traffic},
};

const NOW: jiff::Timestamp = jiff::Timestamp::constant(1_767_225_600, 0);

#[derive(Debug)]
struct OfPods;

impl Decider for OfPods {
    type Observed = lifecycle::Observed;
    type Status = Never;
    type Effect = Never;

    fn decide(&self, observed: &lifecycle::Observed) -> Plan<Never, Never> {
        pods::decide(observed)
    }

    fn max_actions(&self) -> usize {
        2
    }

    fn blinded(&self, observed: &lifecycle::Observed) -> Vec<lifecycle::Observed> {
        let no_pod = lifecycle::Observed {
            pod: Seen::Unknown("the watch is down".to_owned()),
            ..observed.clone()
        };
        let no_slices = lifecycle::Observed {
            traffic: Seen::Unknown("the watch is down".to_owned()),
            ..observed.clone()
        };
        let pod = observed.pod.present();
        // What Services do about a pod that goes anyway, or that nobody looks after, is of no interest.
        let is_held = pod.is_some_and(|pod| pod.has_gate && !pod.is_deleting);
        if is_held && observed.namespace == Namespace::Stays {
            vec![no_pod, no_slices]
        } else {
            vec![no_pod]
        }
    }

    fn intent_of(&self, action: &Action<Never, Never>) -> Option<String> {
        matches!(action, Action::Delete(_)).then(|| "granted".to_owned())
    }

    /// The label that grants it is on record before.
    fn is_intended(&self, observed: &lifecycle::Observed, _: &str) -> bool {
        observed.pod.present().is_some_and(may_delete)
    }
}

#[derive(Debug)]
struct OfRules;

impl Decider for OfRules {
    type Observed = rule::Observed;
    type Status = Never;
    type Effect = Question;

    fn decide(&self, observed: &rule::Observed) -> Plan<Never, Question> {
        rule::decide(observed)
    }

    /// A few annotations, or the status, and a question for each webhook and stage.
    fn max_actions(&self) -> usize {
        16 + 1
    }

    fn blinded(&self, observed: &rule::Observed) -> Vec<rule::Observed> {
        let unknown = || "the watch is down".to_owned();
        let no_rule = rule::Observed {
            rule: Seen::Unknown(unknown()),
            ..observed.clone()
        };
        let no_pods = rule::Observed {
            pods: Seen::Unknown(unknown()),
            ..observed.clone()
        };
        vec![no_rule, no_pods]
    }
}

/// A pod with any labels of two operations.
fn pods() -> impl Strategy<Value = Pod> {
    let labels = prop::collection::vec((any::<prop::sample::Index>(), 0..2_usize), 0..10);
    let extra = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let conditions = (prop::option::of(any::<bool>()), any::<bool>());
    (0..20_u8, labels, extra, conditions).prop_map(|(n, labels, extra, (gate, is_ready))| {
        let (is_permitted, is_to_go, is_deleting, is_held, is_protected) = extra;
        let mut all = json!({LABEL_CONTROL: "true", "app": "web"});
        for (index, id) in labels {
            let id = ["a", "pod-delete"][id];
            let value = if id == "a" { "update" } else { "delete" };
            all[index.get(&OperationLabel::ALL).of(id)] = json!(value);
        }
        if is_permitted {
            all[operation_permission("update")] = json!("1");
        }
        if is_to_go {
            all[LABEL_TO_DELETE] = json!("1");
        }
        let status = |is: bool| if is { "True" } else { "False" };
        let mut conditions = vec![json!({"type": "Ready", "status": status(is_ready)})];
        if let Some(gate) = gate {
            conditions.push(json!({"type": CONDITION_SERVICE_READY, "status": status(gate)}));
        }
        let mut finalizers = Vec::new();
        if is_held {
            finalizers.push("prot.podopslifecycle.kusionstack.io/a");
        }
        if is_protected {
            finalizers.push(FINALIZER_SERVICES);
        }
        let mut pod = json!({
            "metadata": {
                "namespace": "default", "name": format!("web-{n}"), "uid": format!("u{n}"),
                "resourceVersion": "7", "labels": all, "finalizers": finalizers,
            },
            "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
            "status": {"phase": "Running", "conditions": conditions},
        });
        if is_deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Pod::of(&pod).unwrap()
    })
}

fn observed_pods() -> impl Strategy<Value = lifecycle::Observed> {
    let stage = prop::sample::select(vec!["PreCheck", "PostCheck", "Unknown"]);
    let rules = prop::option::of((stage, any::<bool>()));
    let namespace = prop::sample::select(vec![Namespace::Stays, Namespace::Goes]);
    // The labels of the pods are as old as can be: each deadline has passed.
    let deadline = prop::option::of(Just(Duration::from_secs(60)));
    let around = (namespace, deadline, traffic());
    (pods(), rules, around).prop_map(|(pod, says, (namespace, deadline, traffic))| {
        lifecycle::Observed {
            now: NOW,
            namespace,
            deadline,
            pod: Seen::Present(pod),
            rules: Seen::Present(
                says.into_iter()
                    .map(|(stage, passed)| RuleSays {
                        rule: "rule".to_owned(),
                        detail: Some(Detail {
                            stage: stage.to_owned(),
                            passed,
                            ..Detail::default()
                        }),
                    })
                    .collect(),
            ),
            services: BTreeMap::new(),
            traffic,
        }
    })
}

/// What routes to it: nothing that is looked after, no Service, one that does, and one that did a while ago.
fn traffic() -> impl Strategy<Value = Seen<Traffic>> {
    let delays = vec![
        DrainDelay::Unsaid,
        DrainDelay::Of(Duration::ZERO),
        DrainDelay::Invalid("soon".to_owned()),
    ];
    let delays = prop::collection::vec(prop::sample::select(delays), 0..3);
    (any::<bool>(), delays, any::<bool>(), 0..10_i64).prop_map(|(is_on, delays, is_routed, out)| {
        if !is_on {
            return Seen::Absent;
        }
        let service = |(n, drain_delay): (usize, DrainDelay)| Service {
            name: format!("s{n}"),
            selector: Labels::from([("app".to_owned(), "web".to_owned())]),
            drain_delay,
        };
        let services: Vec<Service> = delays.into_iter().enumerate().map(service).collect();
        let names = services.iter().map(|service| service.name.clone());
        Seen::Present(Traffic {
            routed_by: names.filter(|_| is_routed).collect(),
            services,
            out_since: NOW - jiff::SignedDuration::from_secs(out),
            drain_delay: crate::DRAIN_DELAY,
        })
    })
}

fn observed_rules() -> impl Strategy<Value = rule::Observed> {
    let policy = prop::sample::select(vec![json!("50%"), json!(1), json!("x"), Value::Null]);
    let pods = prop::collection::btree_map(0..30_u8, pods(), 0..20);
    let heard = prop::sample::select(vec![None, Some(Ok(())), Some(Err("no".to_owned()))]);
    let again_in = prop::sample::select(vec![None, Some(0), Some(5)]);
    let heard = prop::collection::vec((heard, again_in), 0..3);
    let generated = (policy, pods, any::<bool>(), any::<bool>(), heard);
    generated.prop_map(|(max, pods, is_held, is_deleting, heard)| {
        let mut rule = json!({
            "metadata": {"namespace": "default", "name": "rule", "uid": "r", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "rules": [
                {"name": "max", "availablePolicy": {"maxUnavailableValue": max}},
                {"name": "hook", "webhook": {"clientConfig": {"url": "http://x"}}},
            ]},
        });
        if is_held {
            rule["metadata"]["finalizers"] = json!([FINALIZER_PROTECTED]);
        }
        if is_deleting {
            rule["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let heard = pods.values().zip(heard).map(|(pod, (outcome, again_in))| {
            let again_at = again_in.map(|seconds| NOW + jiff::SignedDuration::from_secs(seconds));
            (Subject::of(pod).occasion, Heard { outcome, again_at })
        });
        rule::Observed {
            now: NOW,
            rule: Seen::Present(Rule::of(&rule).unwrap()),
            answers: Answers::from([("hook".to_owned(), heard.collect())]),
            pods: Seen::Present(pods.into_values().collect()),
            skipped: BTreeSet::new(),
        }
    })
}

#[test]
fn decisions_about_pods_keep_the_laws() {
    let broken = check_decider(&OfPods, &observed_pods(), 256);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn decisions_about_rules_keep_the_laws() {
    let broken = check_decider(&OfRules, &observed_rules(), 128);
    assert!(broken.is_empty(), "{broken:#?}");
}
