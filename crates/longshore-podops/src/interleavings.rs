//! All that act on one pod, in any order: operations that begin, end and are taken back, traffic that comes and goes, a
//! node, and our controller, which acts upon what it saw some time ago and forgets everything now and then.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, CONDITION_SERVICE_READY, Detail, ID_POD_DELETE, LABEL_CONTROL,
    LABEL_TO_DELETE, OperationLabel, Stage, is_operation_permission,
};
use longshore_core::{Action, Patch, Seen};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    AdmitConfig,
    admit::{Operation, Request, mutate, validate},
    lifecycle::{Observed, RuleSays, released},
    model::{ConditionStatus, Labels, Namespace, Operations, Pod, has_prefix},
    pods,
    standing::transitions::{Transition, taken},
    traffic::{DrainDelay, Service, Traffic},
};

mod edges;

const PROTECTION: &str = "prot.podopslifecycle.kusionstack.io/traffic";

/// One actor does one thing.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// This operation begins, where it has not.
    Begin(usize),
    /// The operation begins again, however far it is.
    BeginAgain(usize),
    /// The operation ends, or where it may not touch the pod yet, is given up without an undo.
    Finish(usize),
    /// The operation ends if it may touch the pod.
    Work(usize),
    /// The operation is taken back.
    Undo(usize),
    /// The node says whether the pod is Ready.
    Node,
    /// Traffic comes or goes.
    Traffic,
    /// The EndpointSlice of a Service follows the pod.
    Slices,
    /// The container is broken, or whole again.
    Break,
    /// The rules allow, or do not.
    Rules,
    /// The controller looks at the pod.
    Look,
    /// The controller acts upon what it saw.
    Act,
    /// The pod shall go.
    Delete,
    /// The pod takes part no more.
    Free,
}

/// Operations: two share a type, and one is the deletion's.
const OPERATIONS: [(&str, &str); 4] = [
    ("a", "update"),
    ("b", "update"),
    ("c", "restart"),
    ("pod-delete", "delete"),
];

struct World {
    /// `None` once it is gone.
    pod: Option<Value>,
    version: u64,
    is_broken: bool,
    do_rules_allow: bool,
    /// Whether an EndpointSlice has it as ready.
    is_routed: bool,
    /// What the controller saw: the pod, and whether it was routed to.
    seen: Option<(Value, bool)>,
    n_writes: usize,
    /// The edges that operations have taken.
    taken: BTreeSet<Transition>,
}

impl World {
    fn new() -> Self {
        let expected = json!({"expectedFinalizers": {"Service/default/s": PROTECTION}});
        let pod = json!({
            "metadata": {
                "name": "web-0", "namespace": "default", "uid": "u", "resourceVersion": "1",
                "labels": {LABEL_CONTROL: "true"},
                "annotations": {ANNOTATION_AVAILABLE_CONDITIONS: expected.to_string()},
                "finalizers": [],
            },
            "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
            "status": {"phase": "Running", "conditions": []},
        });
        Self {
            pod: Some(pod),
            version: 1,
            is_broken: false,
            do_rules_allow: true,
            is_routed: false,
            seen: None,
            n_writes: 0,
            taken: BTreeSet::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(i64::try_from(self.n_writes).unwrap() + 1).unwrap()
    }

    fn pod(&self) -> Option<Pod> {
        Some(Pod::of(self.pod.as_ref()?).unwrap())
    }

    /// A client writes the pod. False where the write is refused.
    fn write(&mut self, sub_resource: &str, change: impl FnOnce(&mut Value)) -> bool {
        let Some(old) = self.pod.clone() else {
            return false;
        };
        let mut object = old.clone();
        change(&mut object);
        if object == old {
            return true;
        }
        let mut request = Request {
            operation: Operation::Update,
            sub_resource: sub_resource.to_owned(),
            is_dry_run: false,
            object,
            old_object: old.clone(),
            options: Value::Null,
        };
        let asked = request.object.clone();
        match mutate(&request, self.now()) {
            Err(_) => return false,
            Ok(changed) => request.object = changed.unwrap_or(request.object),
        }
        // As the API server: status writes are not validated.
        let verdict = validate(&AdmitConfig::default(), &request, self.now());
        if verdict.denial.is_some() {
            return false;
        }
        self.version += 1;
        self.n_writes += 1;
        request.object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        assert_granted_safely(&old, &request.object, self.is_routed);
        let labels = |pod| Pod::of(pod).unwrap().labels;
        let edges = taken::by(&labels(&old), &labels(&asked), &labels(&request.object));
        self.taken.extend(edges);
        self.pod = Some(request.object);
        true
    }

    fn label(&mut self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> bool {
        self.write("", |pod| {
            change(pod["metadata"]["labels"].as_object_mut().unwrap())
        })
    }

    /// One actor does one thing; false where its write was refused.
    fn step(&mut self, step: Step) -> bool {
        let Some(pod) = self.pod() else {
            return true;
        };
        match step {
            Step::Begin(n) => self.begin(&pod, n),
            Step::BeginAgain(n) => self.begin_again(n),
            Step::Finish(n) => self.label(|labels| {
                labels.remove(&OperationLabel::Operating.of(OPERATIONS[n].0));
            }),
            Step::Work(n) => {
                let may = pod
                    .labels
                    .contains_key(&OperationLabel::Operate.of(OPERATIONS[n].0));
                may && self.step(Step::Finish(n))
            }
            Step::Undo(n) => {
                let (id, of) = OPERATIONS[n];
                let is_begun = pod.labels.contains_key(&OperationLabel::Operating.of(id));
                is_begun
                    && self.label(|labels| {
                        labels.insert(OperationLabel::UndoOperationType.of(id), json!(of));
                    })
            }
            Step::Node => {
                let gate = pod.service_ready == Some(ConditionStatus::True);
                let is_ready = gate && !self.is_broken;
                self.write("status", |pod| condition(pod, "Ready", is_ready))
            }
            Step::Traffic => {
                let wanted = pod.is_ready && pod.service_ready != Some(ConditionStatus::False);
                let mut finalizers = pod.finalizers.clone();
                finalizers.retain(|finalizer| finalizer != PROTECTION);
                if wanted {
                    finalizers.push(PROTECTION.to_owned());
                }
                self.write("", |pod| pod["metadata"]["finalizers"] = json!(finalizers))
            }
            Step::Slices => {
                self.is_routed = pod.is_ready;
                true
            }
            Step::Break => {
                self.is_broken = !self.is_broken;
                true
            }
            Step::Rules => {
                self.do_rules_allow = !self.do_rules_allow;
                true
            }
            Step::Look => {
                let is_routed = self.is_routed;
                self.seen = self.pod.clone().map(|pod| (pod, is_routed));
                true
            }
            Step::Act => self.act(),
            Step::Free => self.label(|labels| {
                labels.remove(LABEL_CONTROL);
            }),
            Step::Delete => self.label(|labels| {
                labels.insert(LABEL_TO_DELETE.to_owned(), json!("1"));
            }),
        }
    }

    fn begin(&mut self, pod: &Pod, n: usize) -> bool {
        let (id, _) = OPERATIONS[n];
        let is_over = !pod
            .labels
            .keys()
            .any(|key| key.ends_with(&format!("/{id}")));
        is_over && self.begin_again(n)
    }

    fn begin_again(&mut self, n: usize) -> bool {
        let (id, of) = OPERATIONS[n];
        self.label(|labels| {
            labels.insert(OperationLabel::Operating.of(id), json!("1"));
            labels.insert(OperationLabel::OperationType.of(id), json!(of));
        })
    }

    fn act(&mut self) -> bool {
        let Some((seen, was_routed)) = self.seen.take() else {
            return true;
        };
        let pod = Pod::of(&seen).unwrap();
        let says = |stage: Stage| RuleSays {
            rule: "rule".to_owned(),
            detail: Some(Detail {
                stage: stage.as_str().to_owned(),
                passed: self.do_rules_allow,
                ..Detail::default()
            }),
        };
        let stage = if pod
            .labels
            .keys()
            .any(|key| has_prefix(key, &[OperationLabel::PreCheck]))
        {
            Stage::PreCheck
        } else {
            Stage::PostCheck
        };
        let observed = Observed {
            now: self.now(),
            pod: Seen::Present(pod.clone()),
            rules: Seen::Present(vec![says(stage)]),
            services: BTreeMap::new(),
            budgets: Seen::Absent,
            namespace: Namespace::Stays,
            traffic: Seen::Present(traffic(was_routed)),
            deadline: None,
        };
        let plan = if pod.is_controlled() {
            pods::decide(&observed)
        } else {
            released::decide(&released::Observed {
                now: observed.now,
                pod: observed.pod.clone(),
            })
        };
        plan.actions.iter().all(|action| match action {
            Action::Patch(patch) => self.patch(patch),
            Action::Delete(_) => {
                assert!(crate::admit::grace::may_delete(&pod));
                let edge = taken::by_removal(&pod.labels, ID_POD_DELETE);
                self.taken.insert(edge);
                self.pod = None;
                true
            }
            Action::Announce(_) => true,
            Action::Persist(_)
            | Action::EnsureFinalizer { .. }
            | Action::Create(_)
            | Action::Call(_)
            | Action::Ask(_)
            | Action::Used(_)
            | Action::RemoveFinalizer { .. } => panic!("unexpected: {action:?}"),
        })
    }

    fn patch(&mut self, patch: &Patch) -> bool {
        let version = &patch.patch["metadata"]["resourceVersion"];
        if self
            .pod
            .as_ref()
            .is_none_or(|pod| pod["metadata"]["resourceVersion"] != *version)
        {
            return false;
        }
        if let Some(conditions) = patch.patch["status"]["conditions"].as_array() {
            let is_true = conditions[0]["status"] == "True";
            return self.write("status", |pod| {
                condition(pod, CONDITION_SERVICE_READY, is_true)
            });
        }
        self.write("", |pod| json_patch::merge(pod, &patch.patch))
    }

    /// Each actor does what it has to, until none has anything to do.
    fn settle(&mut self) {
        (self.is_broken, self.do_rules_allow) = (false, true);
        for _ in 0..200 {
            let before = self.version;
            for (n, (id, _)) in OPERATIONS.iter().enumerate() {
                if *id != "pod-delete" {
                    self.step(Step::Work(n));
                }
            }
            for step in [
                Step::Node,
                Step::Traffic,
                Step::Slices,
                Step::Look,
                Step::Act,
            ] {
                self.step(step);
            }
            if self.version == before {
                return;
            }
        }
        panic!("no rest: {:#}", self.pod.clone().unwrap_or_default());
    }
}

/// A Service whose traffic is gone as soon as its slice says so.
fn traffic(is_routed: bool) -> Traffic {
    let web = || "web".to_owned();
    Traffic {
        services: vec![Service {
            name: web(),
            selector: Labels::from([(LABEL_CONTROL.to_owned(), "true".to_owned())]),
            drain_delay: DrainDelay::Unsaid,
        }],
        routed_by: is_routed.then(web).into_iter().collect(),
        out_since: Timestamp::UNIX_EPOCH,
        drain_delay: Duration::ZERO,
    }
}

fn condition(pod: &mut Value, kind: &str, is_true: bool) {
    let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|condition| condition["type"] != kind);
    conditions.push(json!({"type": kind, "status": if is_true { "True" } else { "False" }}));
    conditions.sort_by_key(|condition| condition["type"].to_string());
}

/// An operation may touch a pod only when traffic has let go of it.
fn assert_granted_safely(old: &Value, new: &Value, is_routed: bool) {
    let (old, new) = (Pod::of(old).unwrap(), Pod::of(new).unwrap());
    let prefix = OperationLabel::Operate;
    for key in new.labels.keys().filter(|key| has_prefix(key, &[prefix])) {
        if old.labels.contains_key(key) || new.service_ready.is_none() {
            continue;
        }
        assert_eq!(new.protections().count(), 0, "{key} is granted: {new:#?}");
        assert_eq!(
            new.service_ready,
            Some(ConditionStatus::False),
            "{key}: {new:#?}"
        );
        assert!(!new.is_available(), "{key}: {new:#?}");
        assert!(!is_routed, "{key} is granted to a pod in a slice: {new:#?}");
    }
    // Traffic is let in again only when no operation is at work.
    let opens = old.service_ready == Some(ConditionStatus::False)
        && new.service_ready == Some(ConditionStatus::True);
    let works = Operations::of(&new.labels).unwrap();
    let mut works = works.iter().map(|(_, operation)| operation);
    let works =
        works.any(|it| it.has(OperationLabel::Operating) && it.has(OperationLabel::Operate));
    assert!(
        !(opens && works),
        "opened while an operation works: {new:#?}"
    );
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = || 0..OPERATIONS.len();
    let step = prop_oneof![
        3 => n().prop_map(Step::Begin),
        1 => n().prop_map(Step::BeginAgain),
        1 => n().prop_map(Step::Finish),
        3 => n().prop_map(Step::Work),
        1 => n().prop_map(Step::Undo),
        3 => Just(Step::Node),
        3 => Just(Step::Traffic),
        3 => Just(Step::Slices),
        1 => Just(Step::Break),
        1 => Just(Step::Rules),
        6 => Just(Step::Look),
        6 => Just(Step::Act),
    ];
    prop::collection::vec(step, 0..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_pod_serves_again_and_no_label_is_left_behind(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        // No other step ends this operation.
        world.step(Step::Undo(3));
        world.settle();
        world.step(Step::Work(3));
        world.settle();
        let pod = world.pod().unwrap();
        let left: Vec<_> = pod.labels.keys().filter(|key| {
            has_prefix(key, &OperationLabel::ALL) || is_operation_permission(key)
        }).collect();
        prop_assert!(left.is_empty(), "left: {left:?}");
        prop_assert!(pod.is_available() && pod.is_ready, "{pod:#?}");
        prop_assert_eq!(pod.protections().count(), 2);
    }

    #[test]
    fn every_pod_that_takes_part_no_more_is_opened_and_keeps_nothing_of_ours(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.step(Step::Free);
        world.settle();
        let pod = world.pod().unwrap();
        prop_assert!(pod.labels.is_empty(), "{pod:#?}");
        prop_assert_eq!(pod.service_ready, Some(ConditionStatus::True));
        prop_assert!(pod.is_ready && pod.protections().count() == 1, "{pod:#?}");
    }

    #[test]
    fn every_pod_that_shall_go_goes(steps in steps()) {
        let mut world = World::new();
        let mut steps = steps.into_iter();
        for step in steps.by_ref().take(40) {
            world.step(step);
        }
        while !world.step(Step::Delete) {
            world.settle();
        }
        for step in steps {
            world.step(step);
        }
        world.settle();
        prop_assert!(world.pod.is_none(), "{:#?}", world.pod());
    }
}
