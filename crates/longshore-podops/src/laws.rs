//! The laws of every controller, over generated pods and rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, ANNOTATION_EVICTED_AT, CONDITION_SERVICE_READY, Detail,
    FINALIZER_PROTECTED, FINALIZER_SERVICES, LABEL_CONTROL, LABEL_RELEASED, LABEL_TO_DELETE,
    OperationLabel, operation_permission,
};
use longshore_core::{Action, Never, Plan, Seen, StatusForm};
use longshore_test::laws::{Decider, Read, all_reads, check_decider};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    admit::grace::may_delete,
    eviction::{self, Budget, EvictionEffect, EvictionPlan},
    lifecycle::{self, PodEffect, PodPlan, RuleSays, released},
    model::{Labels, Pod, stamp},
    pods,
    rule::{self, Answers, Begun, Heard, Inquiry, Polled, Polls, Rule, RuleAsk, RulePlan, Subject},
    traffic::{DrainDelay, Service, Traffic},
};

const NOW: jiff::Timestamp = jiff::Timestamp::constant(1_767_225_600, 0);

longshore_test::reads! {
    lifecycle::Observed { now, pod, rules, services, budgets, namespace, traffic, deadline }
    eviction::Observed { now, pods, budgets, rules, others, failed, given_up, recounted }
    rule::Observed { now, name, rule, pods, workloads, answers, polls, spent, skipped, form }
    released::Observed { now, pod }
}

#[derive(Debug)]
struct OfPods;

impl Decider for OfPods {
    type Observed = lifecycle::Observed;
    type Status = Never;
    type Effect = PodEffect;
    type Question = Never;

    fn decide(&self, observed: &lifecycle::Observed) -> PodPlan {
        pods::decide(observed)
    }

    fn max_actions(&self) -> usize {
        2
    }

    fn reads(
        &self,
        observed: &lifecycle::Observed,
    ) -> Result<Vec<Read<lifecycle::Observed>>, String> {
        all_reads(observed)
    }

    fn intent_of(&self, action: &Action<Never, PodEffect>) -> Option<String> {
        let removes = matches!(action, Action::Delete(_) | Action::Call(_));
        removes.then(|| "granted".to_owned())
    }

    /// The label that grants it is on record before.
    fn is_intended(&self, observed: &lifecycle::Observed, _: &str) -> bool {
        observed.pod.present().is_some_and(may_delete)
    }
}

#[derive(Debug)]
struct OfEvictions;

impl Decider for OfEvictions {
    type Observed = eviction::Observed;
    type Status = Never;
    type Effect = EvictionEffect;
    type Question = Never;

    fn decide(&self, observed: &eviction::Observed) -> EvictionPlan {
        eviction::decide(observed)
    }

    /// Operations that begin, budgets in which disruptions are reserved, and budgets that are to be counted again.
    fn max_actions(&self) -> usize {
        16 + 16 + 16
    }

    fn intent_of(&self, action: &Action<Never, EvictionEffect>) -> Option<String> {
        if let Action::Call(EvictionEffect::Begin(patch)) = action {
            return Some(patch.target.name.clone());
        }
        None
    }

    /// No operation begins before the budgets of its pod have the reservation on record.
    fn is_intended(&self, observed: &eviction::Observed, name: &str) -> bool {
        let pods = observed.pods.present().into_iter().flatten();
        let mut of_name = pods.filter(|pod| pod.target.name == name);
        let budgets = observed.budgets.present().map(Vec::as_slice);
        let budgets = budgets.unwrap_or_default();
        of_name.all(|pod| eviction::has_reservations(pod, budgets, observed.now))
    }

    fn reads(
        &self,
        observed: &eviction::Observed,
    ) -> Result<Vec<Read<eviction::Observed>>, String> {
        all_reads(observed)
    }
}

#[derive(Debug)]
struct OfRules;

impl Decider for OfRules {
    type Observed = rule::Observed;
    type Status = Never;
    type Effect = Never;
    type Question = RuleAsk;

    fn decide(&self, observed: &rule::Observed) -> RulePlan {
        rule::decide(observed)
    }

    /// A few annotations, or the status with two Events, and a question for each webhook and stage.
    fn max_actions(&self) -> usize {
        16 + 4
    }

    fn intent_of(&self, action: &Action<Never, Never, RuleAsk>) -> Option<String> {
        if let Action::Ask(RuleAsk {
            inquiry: Inquiry::Poll(poll),
            ..
        }) = action
        {
            return Some(poll.task_id.clone());
        }
        None
    }

    /// A question about a task needs the task in the status, with the time at which it began.
    fn is_intended(&self, observed: &rule::Observed, task_id: &str) -> bool {
        let states = observed.rule.present().map(|rule| &rule.status.rule_states);
        let status = states
            .into_iter()
            .flatten()
            .filter_map(|state| state.webhook_status.as_ref());
        let mut tasks = status.flat_map(|status| &status.task_states);
        tasks.any(|task| task.task_id == task_id && task.begin_time.is_some())
    }

    fn reads(&self, observed: &rule::Observed) -> Result<Vec<Read<rule::Observed>>, String> {
        all_reads(observed)
    }
}

#[derive(Debug)]
struct OfReleasedPods;

impl Decider for OfReleasedPods {
    type Observed = released::Observed;
    type Status = Never;
    type Effect = Never;
    type Question = Never;

    fn decide(&self, observed: &released::Observed) -> Plan<Never> {
        released::decide(observed)
    }

    /// The gate with its Event, or the label.
    fn max_actions(&self) -> usize {
        2
    }

    fn reads(
        &self,
        observed: &released::Observed,
    ) -> Result<Vec<Read<released::Observed>>, String> {
        all_reads(observed)
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
    // When its eviction was asked for, in seconds before now.
    let evicted = prop::option::of(0..150_i64);
    let conditions = (prop::option::of(any::<bool>()), any::<bool>(), evicted);
    (0..20_u8, labels, extra, conditions).prop_map(|(n, labels, extra, conditions)| {
        let (gate, is_ready, evicted) = conditions;
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
        if let Some(seconds) = evicted {
            let at = NOW - jiff::SignedDuration::from_secs(seconds);
            pod["metadata"]["annotations"] = json!({ANNOTATION_EVICTED_AT: stamp(at)});
        }
        if is_deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Pod::of(&pod).unwrap()
    })
}

fn observed_pods() -> impl Strategy<Value = lifecycle::Observed> {
    let stage = prop::sample::select(vec!["PreCheck", "PostCheck", "Unknown"]);
    let rules = prop::option::of((stage, any::<bool>()));
    // Whether it goes, where it was seen.
    let namespace = prop::option::of(any::<bool>());
    // The labels of the pods are as old as can be: each deadline has passed.
    let deadline = prop::option::of(Just(Duration::from_secs(60)));
    let around = (namespace, deadline, traffic(), budget_objects(), services());
    (pods(), rules, around).prop_map(|(mut pod, says, around)| {
        let (namespace, deadline, traffic, budgets, services) = around;
        if !services.is_empty() {
            let held = services
                .keys()
                .map(|holder| (holder, "prot.podopslifecycle.kusionstack.io/s"));
            let expected = json!({"expectedFinalizers": held.collect::<BTreeMap<_, _>>()});
            let annotation = ANNOTATION_AVAILABLE_CONDITIONS.to_owned();
            pod.annotations.insert(annotation, expected.to_string());
        }
        let loaded = pods::Loaded {
            namespace: namespace.map_or(Seen::Absent, |goes| {
                Seen::Present(cached(namespace_that(goes)))
            }),
            budgets: Seen::Present(budgets.into_iter().map(cached).collect()),
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
            services,
            traffic,
        };
        loaded.assemble(NOW, deadline)
    })
}

/// An object as a cache has it.
fn cached<T: DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).unwrap())
}

fn namespace_that(goes: bool) -> Value {
    let mut namespace = json!({"metadata": {"name": "default"}});
    if goes {
        namespace["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    namespace
}

/// Services that hold a finalizer which the pod lacks: one that selects it, one that does not, and one that is gone.
fn services() -> impl Strategy<Value = BTreeMap<String, Seen<Value>>> {
    let selecting = |value: &str| json!({"spec": {"selector": {"app": value}}});
    let service = prop::sample::select(vec![
        Seen::Present(selecting("web")),
        Seen::Present(selecting("other")),
        Seen::Absent,
    ]);
    prop::collection::btree_map("Service/default/[st]", service, 0..3)
}

/// Pods that have the mark of those that take part no more, and others.
fn observed_released_pods() -> impl Strategy<Value = released::Observed> {
    (pods(), any::<bool>(), any::<bool>()).prop_map(|(mut pod, is_marked, takes_part)| {
        if is_marked {
            pod.labels.insert(LABEL_RELEASED.to_owned(), stamp(NOW));
        }
        if !takes_part {
            pod.labels.remove(LABEL_CONTROL);
        }
        released::Observed {
            now: NOW,
            pod: Seen::Present(pod),
        }
    })
}

fn budgets() -> impl Strategy<Value = Vec<Budget>> {
    budget_objects().prop_map(|budgets| {
        let budgets = budgets.into_iter().map(serde_json::from_value);
        budgets.collect::<Result<_, _>>().unwrap()
    })
}

/// Budgets with any numbers, over all of them.
fn budget_objects() -> impl Strategy<Value = Vec<Value>> {
    let numbers = (0..4_u8, 0..4_u8, 0..4_u8, any::<bool>(), 0..2_u8);
    // Entries of pods, made so many seconds before now, and what is left.
    let entries = prop::collection::btree_map(0..30_u8, 0..150_i64, 0..8);
    let disruptions = (0..3_u8, entries);
    let budget = (numbers, disruptions).prop_map(|(numbers, (allowed, entries))| {
        let (expected, desired, healthy, spares, seen) = numbers;
        let entries = entries.into_iter().map(|(n, seconds)| {
            let at = NOW - jiff::SignedDuration::from_secs(seconds);
            (format!("web-{n}"), at.to_string())
        });
        let entries: BTreeMap<String, String> = entries.collect();
        let policy = if spares {
            "AlwaysAllow"
        } else {
            "IfHealthyBudget"
        };
        json!({
            "metadata": {
                "namespace": "default", "name": format!("b{expected}"), "uid": format!("u{expected}"),
                "generation": 1, "resourceVersion": "7",
            },
            "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "unhealthyPodEvictionPolicy": policy,
            },
            "status": {
                "expectedPods": expected, "desiredHealthy": desired, "currentHealthy": healthy,
                "disruptionsAllowed": allowed, "disruptedPods": entries,
                "observedGeneration": seen,
            },
        })
    });
    prop::collection::vec(budget, 0..3)
}

fn observed_evictions() -> impl Strategy<Value = eviction::Observed> {
    let pods = prop::collection::vec(pods(), 0..12).prop_map(|pods| {
        let named = |pod: Pod| (pod.target.name.clone(), pod);
        pods.into_iter().map(named).collect::<BTreeMap<_, _>>()
    });
    let others = prop::option::of(prop::collection::vec(pods_without_label(), 0..3));
    (pods, budgets(), others).prop_map(|(pods, budgets, others)| eviction::Observed {
        now: NOW,
        pods: Seen::Present(pods.into_values().collect()),
        budgets: Seen::Present(budgets),
        rules: Seen::Present(Vec::new()),
        others: others.map_or(Seen::Absent, Seen::Present),
        failed: BTreeSet::new(),
        given_up: BTreeSet::new(),
        recounted: BTreeSet::new(),
    })
}

fn pods_without_label() -> impl Strategy<Value = Pod> {
    pods().prop_map(|mut pod| {
        pod.labels.remove(LABEL_CONTROL);
        pod.target.name.push_str("-other");
        pod
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
    let task = prop::option::of(0..3_u8);
    let heard = prop::collection::vec((heard, again_in, task), 0..3);
    let held = (any::<bool>(), any::<bool>());
    let form = prop::sample::select(vec![
        StatusForm::Full,
        StatusForm::Short,
        StatusForm::Unwritable,
    ]);
    let generated = (policy, pods, held, heard, (tasks(), form));
    generated.prop_map(
        |(max, pods, (is_held, is_deleting), heard, ((status, polls), form))| {
            let mut rule = json!({
                "metadata": {"namespace": "default", "name": "rule", "uid": "r", "generation": 1},
                "spec": {"selector": {"matchLabels": {"app": "web"}}, "rules": [
                    {"name": "max", "availablePolicy": {"maxUnavailableValue": max}},
                    {"name": "hook", "webhook": {"clientConfig": {
                        "url": "http://x", "poll": {"url": "http://x/tasks"},
                    }}},
                ]},
                "status": {"ruleStates": [{"name": "hook", "webhookStatus": status}]},
            });
            if is_held {
                rule["metadata"]["finalizers"] = json!([FINALIZER_PROTECTED]);
            }
            if is_deleting {
                rule["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let heard = pods
                .values()
                .zip(heard)
                .map(|(pod, (outcome, again_in, task))| {
                    let again_at =
                        again_in.map(|seconds| NOW + jiff::SignedDuration::from_secs(seconds));
                    let begun = |task: u8| Begun {
                        id: task.to_string(),
                        message: String::new(),
                        at: NOW,
                    };
                    let heard = Heard {
                        outcome,
                        again_at: again_at.filter(|_| task.is_none()),
                        task: task.map(begun),
                    };
                    (Subject::of(pod).occasion, heard)
                });
            rule::Observed {
                now: NOW,
                name: "rule".to_owned(),
                rule: Seen::Present(Rule::of(&rule).unwrap()),
                answers: Answers::from([("hook".to_owned(), heard.collect())]),
                polls,
                spent: Vec::new(),
                workloads: Seen::Present(Vec::new()),
                pods: Seen::Present(pods.into_values().collect()),
                skipped: BTreeSet::new(),
                form,
            }
        },
    )
}

/// Tasks of the status, some of which have ended, and what was answered about them.
fn tasks() -> impl Strategy<Value = (Value, Polls)> {
    let ago = prop::sample::select(vec![0_i64, 4, 6, 59, 61, 599, 601]);
    let pods = prop::collection::btree_set(0..30_u8, 0..6);
    let answer = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let task = (any::<bool>(), ago, pods, prop::option::of(answer));
    prop::collection::vec(task, 0..3).prop_map(|tasks| {
        let (mut running, mut ended, mut polls) = (Vec::new(), Vec::new(), Polls::new());
        for (n, (is_running, ago, pods, answer)) in tasks.into_iter().enumerate() {
            let at = NOW - jiff::SignedDuration::from_secs(ago);
            let names: Vec<String> = pods.iter().map(|n| format!("web-{n}")).collect();
            let task = json!({
                "taskId": n.to_string(), "processing": names, "beginTime": at.to_string(),
                "lastTime": at.to_string(),
            });
            if let (true, Some((is_finished, is_stopped, is_asked, has_some))) =
                (is_running, answer)
            {
                let polled = Polled {
                    at: Some(at),
                    approved: names.into_iter().filter(|_| has_some).take(1).collect(),
                    is_finished,
                    is_stopped,
                    again_at: Some(NOW).filter(|_| !is_asked),
                    ..Polled::default()
                };
                polls.insert(("hook".to_owned(), n.to_string()), polled);
            }
            if is_running {
                running.push(task);
            } else {
                ended.push(task);
            }
        }
        (json!({"taskStates": running, "history": ended}), polls)
    })
}

#[test]
fn decisions_about_pods_keep_the_laws() {
    let broken = check_decider(&OfPods, &observed_pods(), 256);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn decisions_about_evictions_keep_the_laws() {
    let broken = check_decider(&OfEvictions, &observed_evictions(), 256);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn decisions_about_rules_keep_the_laws() {
    let broken = check_decider(&OfRules, &observed_rules(), 128);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn decisions_about_pods_that_take_part_no_more_keep_the_laws() {
    let broken = check_decider(&OfReleasedPods, &observed_released_pods(), 256);
    assert!(broken.is_empty(), "{broken:#?}");
}
