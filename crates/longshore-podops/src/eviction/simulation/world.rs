//! The pods, their budget, and what each of those around them does.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use longshore_api::podops::{CONDITION_SERVICE_READY, LABEL_CONTROL, OperationLabel};
use longshore_core::{Action, Patch, PatchKind, Seen};
use serde_json::{Value, json};

use super::{
    super::{Budget, EvictionEffect, Observed, decide, is_short},
    Step,
};
use crate::{
    AdmitConfig,
    admit::{Operation, Request, mutate, validate_eviction},
    lifecycle::{self, PodEffect},
    model::{ConditionStatus, Namespace, Operations, Pod},
    pods,
};

pub(super) struct World {
    pods: BTreeMap<String, Value>,
    replicas: usize,
    /// Whether each second pod is without the label.
    is_mixed: bool,
    desired: i64,
    /// So many pods must be Ready: as many as have to stay, or as many as were left when the budget was raised.
    floor: i64,
    /// Whether pods may be evicted at all, whatever is edited.
    is_generous: bool,
    budget: Value,
    version: u64,
    n_made: usize,
    /// By uid: the pods that run, those that are broken, and those that a client evicts.
    started: BTreeSet<String>,
    broken: BTreeSet<String>,
    pub(super) wanted: BTreeSet<String>,
    seen_pods: Vec<Pod>,
    seen_budget: Option<Budget>,
    pub(super) is_disturbed: bool,
    seconds: i64,
}

impl World {
    pub(super) fn new(replicas: usize, desired: i64, is_mixed: bool) -> Self {
        let mut world = Self {
            pods: BTreeMap::new(),
            replicas,
            is_mixed,
            desired,
            floor: desired,
            is_generous: usize::try_from(desired).is_ok_and(|desired| desired < replicas),
            budget: json!({
                "metadata": {
                    "namespace": "default", "name": "web", "uid": "b", "generation": 1,
                    "resourceVersion": "1",
                },
                "spec": {"selector": {"matchLabels": {"app": "web"}}},
            }),
            version: 1,
            n_made: 0,
            started: BTreeSet::new(),
            broken: BTreeSet::new(),
            wanted: BTreeSet::new(),
            seen_pods: Vec::new(),
            seen_budget: None,
            is_disturbed: false,
            seconds: 1,
        };
        world.replace();
        let all: Vec<usize> = (0..replicas).collect();
        all.iter().for_each(|n| world.start(*n));
        for _ in 0..5 {
            all.iter().for_each(|n| world.round(*n));
            world.node();
        }
        world.count();
        world.look(true);
        world
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_000_000 + self.seconds).unwrap()
    }

    fn name(&self, n: usize) -> Option<String> {
        let names: Vec<&String> = self.pods.keys().collect();
        names
            .get(n % names.len().max(1))
            .map(|name| (*name).clone())
    }

    fn pod(&self, name: &str) -> Option<Pod> {
        Some(Pod::of(self.pods.get(name)?).unwrap())
    }

    pub(super) fn all(&self) -> Vec<Pod> {
        self.pods
            .values()
            .map(|pod| Pod::of(pod).unwrap())
            .collect()
    }

    /// The pods with the label, or the pods without it.
    fn labelled(&self, is_labelled: bool) -> Vec<Pod> {
        let mut pods = self.all();
        pods.retain(|pod| pod.is_controlled() == is_labelled);
        pods
    }

    fn write(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let Some(old) = self.pods.get(name).cloned() else {
            return;
        };
        let mut object = old.clone();
        change(&mut object);
        if object == old {
            return;
        }
        let request = Request {
            operation: Operation::Update,
            sub_resource: String::new(),
            is_dry_run: false,
            object: object.clone(),
            old_object: old,
            options: Value::Null,
        };
        let mut object = mutate(&request, self.now()).unwrap().unwrap_or(object);
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.pods.insert(name.to_owned(), object);
    }

    /// Our controllers write; a conflict is nothing.
    fn patch(&mut self, patch: &Patch) {
        let name = patch.target.name.clone();
        let Some(pod) = self.pods.get(&name) else {
            return;
        };
        if let Some(operations) = patch.patch.as_array() {
            let (tests, changes): (Vec<_>, Vec<_>) = operations
                .iter()
                .cloned()
                .partition(|it| it["op"] == "test");
            // A member that is missing is null there, as for API servers.
            let at = |path: &Value| pod.pointer(path.as_str().unwrap()).unwrap_or(&Value::Null);
            if tests.iter().all(|test| *at(&test["path"]) == test["value"]) {
                let changes: json_patch::Patch =
                    serde_json::from_value(Value::Array(changes)).unwrap();
                self.write(&name, |pod| json_patch::patch(pod, &changes).unwrap());
            }
            return;
        }
        let version = &patch.patch["metadata"]["resourceVersion"];
        if !version.is_null() && pod["metadata"]["resourceVersion"] != *version {
            return;
        }
        if let Some(conditions) = patch.patch["status"]["conditions"].as_array() {
            let is_true = conditions[0]["status"] == "True";
            self.write(&name, |pod| {
                condition(pod, CONDITION_SERVICE_READY, is_true)
            });
        } else {
            self.write(&name, |pod| match patch.kind {
                PatchKind::Json => apply(pod, &patch.patch),
                PatchKind::Merge | PatchKind::Strategic => json_patch::merge(pod, &patch.patch),
            });
        }
    }

    /// Writes the status of the budget.
    fn count_as(&mut self, status: Value) {
        if self.budget["status"] != status {
            self.version += 1;
            self.budget["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.budget["status"] = status;
        }
    }

    /// Our controller reserves disruptions; a conflict is nothing.
    fn reserve(&mut self, patch: &Patch) {
        if patch.patch["metadata"]["resourceVersion"] == self.budget["metadata"]["resourceVersion"]
        {
            let before = self.budget["status"]["disruptionsAllowed"].as_i64();
            let mut status = self.budget["status"].clone();
            json_patch::merge(&mut status, &patch.patch["status"]);
            let after = status["disruptionsAllowed"].as_i64();
            assert!(after <= before && after >= Some(0), "{before:?}: {patch:?}");
            self.count_as(status);
        }
    }

    /// The pods that are Ready and that no operation takes out, counted without our help.
    fn available(&self) -> i64 {
        let is_available = |pod: &&Pod| {
            let operations = Operations::of(&pod.labels).unwrap();
            let mut operations = operations.iter();
            let is_out = operations.any(|(_, it)| !it.has(OperationLabel::Completing));
            pod.is_ready && pod.service_ready != Some(ConditionStatus::False) && !is_out
        };
        let pods = self.all();
        i64::try_from(pods.iter().filter(is_available).count()).unwrap()
    }

    fn ready(&self) -> i64 {
        let pods = self.all();
        i64::try_from(pods.iter().filter(|pod| pod.is_ready).count()).unwrap()
    }

    pub(super) fn step(&mut self, step: Step) {
        self.seconds += 1;
        if self.seconds % 30 == 0 {
            self.node();
        }
        match step {
            Step::Evict(n) => {
                if let Some(pod) = self.name(n).and_then(|name| self.pod(&name)) {
                    self.wanted.extend(pod.target.uid.clone());
                    self.evict(&pod.target.name);
                }
            }
            Step::Operate(n) => self.disturb(n, |world, name| {
                if !world.pod(name).unwrap().is_controlled() {
                    return;
                }
                let labels = json!({
                    OperationLabel::Operating.of("a"): "1",
                    OperationLabel::OperationType.of("a"): "update",
                });
                world.write(name, |pod| {
                    json_patch::merge(&mut pod["metadata"]["labels"], &labels)
                });
            }),
            Step::Finish(n) => self.finish(n),
            Step::Break(n) => self.disturb(n, |world, name| {
                let uid = world.pod(name).unwrap().target.uid.unwrap();
                if !world.broken.remove(&uid) {
                    world.broken.insert(uid);
                }
                world.node();
            }),
            Step::Replace => self.replace(),
            Step::Start(n) => self.start(n),
            Step::Node => self.node(),
            Step::Count => self.count(),
            Step::Look { pods } => self.look(pods),
            Step::Act(n) => self.act(n),
            Step::Round(n) => self.round(n),
            Step::Edit(n) => self.edit(n),
            Step::Fail => self.fail(),
            Step::Pass => {
                self.node();
                self.seconds += 130;
            }
        }
        self.floor = self.floor.max(self.desired.min(self.staying()));
        assert!(
            self.is_disturbed || self.ready() >= self.floor,
            "{} of {} are Ready after {step:?}",
            self.ready(),
            self.floor
        );
    }

    /// The number of pods that are Ready and whose gates are open.
    fn staying(&self) -> i64 {
        let pods = self.all();
        let staying = pods.iter().filter(|pod| {
            let is_open = !pod.has_gate || pod.service_ready != Some(ConditionStatus::False);
            pod.is_ready && is_open
        });
        i64::try_from(staying.count()).unwrap()
    }

    /// Pods that are out of service already are not brought back. Our watches deliver the edit at once: no controller
    /// can know of an edit that its watch has not delivered.
    fn edit(&mut self, n: usize) {
        if self.is_generous {
            self.desired = i64::try_from(n % self.replicas).unwrap();
            self.floor = self.desired.min(self.staying());
        }
        self.version += 1;
        let metadata = &mut self.budget["metadata"];
        metadata["generation"] = json!(metadata["generation"].as_i64().unwrap() + 1);
        metadata["resourceVersion"] = json!(self.version.to_string());
        self.look(false);
    }

    /// As the disruption controller does it.
    fn fail(&mut self) {
        let mut status = self.budget["status"].clone();
        status["disruptionsAllowed"] = json!(0);
        status["conditions"] = json!([{
            "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no",
        }]);
        self.count_as(status);
    }

    /// A client that no budget binds takes a pod away. Our watches deliver that at once: what they have not delivered
    /// cannot be counted.
    fn disturb(&mut self, n: usize, change: impl FnOnce(&mut Self, &str)) {
        if let Some(name) = self.name(n) {
            self.is_disturbed = true;
            change(self, &name);
            self.look(true);
        }
    }

    fn finish(&mut self, n: usize) {
        if let Some(name) = self.name(n) {
            let label = OperationLabel::Operating.of("a");
            self.write(&name, |pod| {
                pod["metadata"]["labels"]
                    .as_object_mut()
                    .unwrap()
                    .remove(&label);
            });
        }
    }

    /// As an API server with our webhook does it.
    fn evict(&mut self, name: &str) {
        let Some(pod) = self.pods.get(name).cloned() else {
            return;
        };
        let request = Request {
            operation: Operation::Create,
            sub_resource: "eviction".to_owned(),
            is_dry_run: false,
            object: json!({"metadata": {"name": name}}),
            old_object: Value::Null,
            options: Value::Null,
        };
        let config = AdmitConfig {
            grace_delete: true,
            ..AdmitConfig::default()
        };
        let verdict = validate_eviction(&config, &request, Some(&pod), &[], self.now());
        if let Some(note) = verdict.begin {
            self.patch(&note);
        }
        if verdict.denial.is_none() {
            self.evict_unasked(name);
        }
    }

    /// As an API server does it.
    fn evict_unasked(&mut self, name: &str) {
        let pod = self.pod(name).unwrap();
        let number = |key: &str| self.budget["status"][key].as_i64().unwrap_or_default();
        let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
        if !pod.is_ready && healthy >= desired && desired > 0 {
            self.pods.remove(name);
            return;
        }
        let n_allowed = number("disruptionsAllowed");
        let generation = self.budget["metadata"]["generation"].as_i64().unwrap();
        if n_allowed > 0 && number("observedGeneration") >= generation {
            let mut status = self.budget["status"].clone();
            status["disruptionsAllowed"] = json!(n_allowed - 1);
            status["disruptedPods"][name] = json!(self.now().to_string());
            self.count_as(status);
            self.pods.remove(name);
        }
    }

    fn replace(&mut self) {
        while self.pods.len() < self.replicas {
            self.n_made += 1;
            // The next pod of a StatefulSet has the name of the last one.
            let mut names = (0..self.replicas).map(|n| format!("web-{n}"));
            let name = names.find(|name| !self.pods.contains_key(name)).unwrap();
            let is_labelled = !self.is_mixed || !name.ends_with(['1', '3']);
            let mut pod = json!({
                "metadata": {
                    "namespace": "default", "name": name, "uid": format!("u{}", self.n_made),
                    "resourceVersion": "1", "finalizers": [],
                    "labels": {LABEL_CONTROL: "true", "app": "web"},
                },
                "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
                "status": {"phase": "Running", "conditions": []},
            });
            if !is_labelled {
                pod["metadata"]["labels"] = json!({"app": "web"});
                pod["spec"] = json!({});
            }
            self.pods.insert(name, pod);
        }
    }

    fn start(&mut self, n: usize) {
        let pod = self.name(n).and_then(|name| self.pod(&name));
        self.started.extend(pod.and_then(|pod| pod.target.uid));
    }

    fn node(&mut self) {
        for pod in self.all() {
            let uid = pod.target.uid.as_ref().unwrap();
            let runs = self.started.contains(uid) && !self.broken.contains(uid);
            let is_open = !pod.has_gate || pod.service_ready == Some(ConditionStatus::True);
            let is_ready = runs && is_open;
            self.write(&pod.target.name, |pod| condition(pod, "Ready", is_ready));
        }
    }

    /// As the disruption controller does it: a pod that has an entry does not count for two minutes.
    fn count(&mut self) {
        let mut disrupted = self.budget["status"]["disruptedPods"].clone();
        if let Some(entries) = disrupted.as_object_mut() {
            entries.retain(|name, at| self.pods.contains_key(name) && self.now() < ends_at(at));
        }
        let counts = |pod: &&Pod| pod.is_ready && disrupted[&pod.target.name].is_null();
        let pods = self.all();
        let healthy = i64::try_from(pods.iter().filter(counts).count()).unwrap();
        let status = json!({
            "observedGeneration": self.budget["metadata"]["generation"],
            "expectedPods": self.pods.len(), "disruptedPods": disrupted,
            "currentHealthy": healthy, "desiredHealthy": self.desired,
            "disruptionsAllowed": (healthy - self.desired).max(0),
        });
        self.count_as(status);
    }

    fn look(&mut self, pods: bool) {
        self.seen_budget = serde_json::from_value(self.budget.clone()).ok();
        if pods {
            self.seen_pods = self.labelled(true);
        }
    }

    /// A round that is killed after so many writes. The next one begins when the watch has delivered them.
    fn act(&mut self, n_writes: usize) {
        let mut observed = Observed {
            now: self.now(),
            pods: Seen::Present(self.seen_pods.clone()),
            budgets: Seen::Present(self.seen_budget.clone().into_iter().collect()),
            rules: Seen::Present(Vec::new()),
            others: Seen::Absent,
            failed: BTreeSet::new(),
            given_up: BTreeSet::new(),
            recounted: BTreeSet::new(),
        };
        if is_short(&observed) {
            observed.others = Seen::Present(self.labelled(false));
        }
        for action in decide(&observed).actions.iter().take(n_writes) {
            let Action::Call(effect) = action else {
                panic!("{action:?}");
            };
            let patch = match effect {
                EvictionEffect::Begin(patch) => patch,
                EvictionEffect::Reserve(patch) | EvictionEffect::CountAgain(patch) => {
                    self.reserve(patch);
                    continue;
                }
            };
            let before = self.available();
            self.patch(patch);
            let after = self.available();
            assert!(
                after == before || after >= self.desired,
                "{after} of {} are left after {patch:?}",
                self.desired
            );
        }
        self.look(true);
    }

    fn round(&mut self, n: usize) {
        let pod = self.name(n).and_then(|name| self.pod(&name));
        let Some(pod) = pod.filter(Pod::is_controlled) else {
            return;
        };
        let plan = pods::decide(&lifecycle::Observed {
            now: self.now(),
            pod: Seen::Present(pod),
            rules: Seen::Present(Vec::new()),
            services: BTreeMap::new(),
            budgets: Seen::Present(self.seen_budget.clone().into_iter().collect()),
            namespace: Namespace::Stays,
            traffic: Seen::Absent,
            deadline: None,
        });
        for action in &plan.actions {
            match action {
                Action::Patch(patch) => self.patch(patch),
                Action::Call(PodEffect::Evict(target)) => self.evict(&target.name),
                Action::Delete(delete) => {
                    self.pods.remove(&delete.target.name);
                }
                Action::Announce(_) => {}
                Action::Persist(_)
                | Action::EnsureFinalizer { .. }
                | Action::Create(_)
                | Action::Ask(_)
                | Action::Used(_)
                | Action::RemoveFinalizer { .. } => panic!("unexpected: {action:?}"),
            }
        }
    }

    /// Each actor does what it has to, until all evictions are done.
    pub(super) fn settle(&mut self) {
        self.broken.clear();
        // API servers let no pod go while too few are left, and those that are out of service already do not come back.
        let left = self.staying();
        if self.is_generous && left < self.desired {
            self.edit(usize::try_from(left).unwrap());
        }
        for _ in 0..300 {
            for n in 0..self.replicas {
                self.step(Step::Finish(n));
                self.step(Step::Start(n));
                self.step(Step::Round(n));
            }
            let rest = [
                Step::Node,
                Step::Count,
                Step::Look { pods: true },
                Step::Act(16),
                Step::Replace,
            ];
            rest.into_iter().for_each(|step| self.step(step));
            let pods = self.all();
            let wanted = pods.iter().filter(|pod| {
                let uid = pod.target.uid.as_ref();
                uid.is_some_and(|uid| self.wanted.contains(uid))
            });
            let names: Vec<String> = wanted.map(|pod| pod.target.name.clone()).collect();
            if names.is_empty() {
                return;
            }
            names.iter().for_each(|name| self.evict(name));
        }
    }
}

/// Applies a JSON patch of a pod as it was read a moment ago: its tests hold.
fn apply(pod: &mut Value, patch: &Value) {
    for operation in patch.as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        let parent = pod.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match operation["op"].as_str().unwrap() {
            "test" => {}
            "add" => drop(parent.insert(key, operation["value"].clone())),
            "remove" => drop(parent.remove(&key)),
            other => panic!("{other}"),
        }
    }
}

/// When an entry of a pod ends that is not gone by then.
fn ends_at(entry: &Value) -> Timestamp {
    let at: Timestamp = entry.as_str().unwrap().parse().unwrap();
    at + SignedDuration::from_mins(2)
}

fn condition(pod: &mut Value, kind: &str, is_true: bool) {
    let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|condition| condition["type"] != kind);
    conditions.push(json!({"type": kind, "status": if is_true { "True" } else { "False" }}));
    conditions.sort_by_key(|condition| condition["type"].to_string());
}
