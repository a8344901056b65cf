//! Deployments played against ReplicaSets that get one pod ready at a time.

use jiff::{Timestamp, ToSpan};
use serde_json::{Value, from_value, json};

use super::{
    decide::{Plan, decide},
    model::{Desired, Observed, Strategy},
    status,
};
use crate::controllers::workloads::{Body, hands::Request};

/// A deployment and the ReplicaSets of its namespace.
struct World {
    deployment: Body,
    sets: Vec<Body>,
    now: Timestamp,
    n_made: usize,
}

impl World {
    fn new(n_replicas: usize, change: Value) -> World {
        let mut data = json!({
            "spec": {
                "replicas": n_replicas, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
                "selector": {"matchLabels": {"app": "web"}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                "template": template("1"),
            },
            "status": {},
        });
        json_patch::merge(&mut data, &change);
        let meta = json!({"name": "web", "namespace": "default", "uid": "u", "generation": 1});
        World {
            deployment: Body {
                meta: from_value(meta).unwrap(),
                data,
            },
            sets: Vec::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            n_made: 0,
        }
    }

    fn change(&mut self, spec: Value) {
        json_patch::merge(&mut self.deployment.data["spec"], &spec);
        self.deployment.meta.generation = self.deployment.meta.generation.map(|it| it + 1);
    }

    fn roll_to(&mut self, version: &str) {
        self.change(json!({"template": template(version)}));
    }

    /// One round of the deployment's controller; whether it has written anything.
    fn round(&mut self) -> bool {
        self.now = self.now.checked_add(1.second()).unwrap();
        let desired = Desired::of(self.deployment.clone()).unwrap();
        let observed = Observed {
            sets: self.sets.clone(),
            pods: Vec::new(),
        };
        let plan = decide(&desired, &observed);
        plan.requests.iter().for_each(|request| self.apply(request));
        let (patch, _) = status::write(&desired, &plan, None, self.now);
        let is_quiet = plan.requests.is_empty() && patch.is_none();
        if let Some(patch) = patch {
            json_patch::merge(&mut self.deployment.data["status"], &patch["status"]);
        }
        assert_bounds(&desired, &self.sets, &plan);
        !is_quiet
    }

    fn apply(&mut self, request: &Request) {
        match request {
            Request::Create { object, .. } => {
                self.n_made += 1;
                let mut data = object.clone();
                let mut meta = data["metadata"].take();
                meta["uid"] = meta["name"].clone();
                meta["generation"] = json!(1);
                meta["creationTimestamp"] = json!(format!("2026-01-01T00:00:{:02}Z", self.n_made));
                data["status"] = json!({"replicas": 0, "observedGeneration": 1});
                self.sets.push(Body {
                    meta: from_value(meta).unwrap(),
                    data,
                });
            }
            Request::Patch { name, patch, .. } => {
                let of_sets = self.sets.iter_mut().find(|set| set.name() == name);
                let body = of_sets.unwrap_or(&mut self.deployment);
                let mut meta = json!(body.meta);
                json_patch::merge(&mut meta, &patch["metadata"]);
                body.meta = from_value(meta).unwrap();
                if !patch["spec"].is_null() {
                    json_patch::merge(&mut body.data["spec"], &patch["spec"]);
                }
            }
            Request::Delete { name, .. } => self.sets.retain(|set| set.name() != name),
            Request::Announce(_) => {}
            Request::PatchStatus { .. } => panic!("{request:?}"),
        }
    }

    /// Every set has its pods; of those that are missing, one becomes available.
    fn pods_move(&mut self) -> bool {
        let mut has_moved = false;
        for set in &mut self.sets {
            let wanted = set.count("/spec/replicas");
            let available = set.count("/status/availableReplicas").min(wanted);
            let next = (available + 1).min(wanted);
            let status = json!({
                "replicas": wanted, "readyReplicas": next, "availableReplicas": next, "observedGeneration": set.meta.generation,
            });
            has_moved |= set.data["status"] != status;
            set.data["status"] = status;
        }
        has_moved
    }

    /// Rounds and pods take turns until nothing changes.
    fn settle(&mut self) {
        for _ in 0..200 {
            let (by_round, by_pods) = (self.round(), self.pods_move());
            if !by_round && !by_pods {
                return;
            }
        }
        panic!("no end: {:?}", self.deployment.data["status"]);
    }

    fn sizes(&self) -> Vec<i64> {
        self.sets
            .iter()
            .map(|set| set.count("/spec/replicas"))
            .collect()
    }

    fn revisions(&self) -> Vec<&str> {
        let key = "deployment.kubernetes.io/revision";
        self.sets
            .iter()
            .filter_map(|set| set.annotation(key))
            .collect()
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let conditions = self.deployment.at("/status/conditions").as_array().unwrap();
        let found = conditions.iter().find(|it| it["type"] == kind).unwrap();
        let text = |key: &str| found[key].as_str().unwrap().to_owned();
        (text("status"), text("reason"))
    }
}

fn template(version: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": format!("i:{version}")}]}})
}

/// What a rolling update promises at every step.
fn assert_bounds(desired: &Desired, sets: &[Body], plan: &Plan) {
    let n: i64 = sets.iter().map(|set| set.count("/spec/replicas")).sum();
    let n_before = plan.sets.n_replicas();
    let most = (desired.n_replicas + desired.max_surge()).max(n_before);
    assert!(n <= most, "{n} pods, at most {most}");
    let sure = |set: &Body| {
        set.count("/status/availableReplicas")
            .min(set.count("/spec/replicas"))
    };
    let sure: i64 = sets.iter().map(sure).sum();
    if desired.strategy == Strategy::Recreate {
        return;
    }
    let least = (desired.n_replicas - desired.max_unavailable()).min(plan.sets.n_available());
    assert!(sure >= least, "{sure} available pods, at least {least}");
}

#[test]
fn a_deployment_comes_up_rolls_and_rolls_back() {
    let mut world = World::new(4, json!({}));
    world.settle();
    assert_eq!(world.sizes(), [4]);
    assert_eq!(
        world.condition("Progressing"),
        ("True".into(), "NewReplicaSetAvailable".into())
    );
    assert_eq!(
        world.condition("Available"),
        ("True".into(), "MinimumReplicasAvailable".into())
    );
    let name = world.sets[0].name().to_owned();
    world.roll_to("2");
    world.settle();
    assert_eq!(
        (world.sizes(), world.revisions()),
        (vec![0, 4], vec!["1", "2"])
    );
    world.roll_to("1");
    world.settle();
    assert_eq!(
        (world.sizes(), world.revisions()),
        (vec![4, 0], vec!["3", "2"])
    );
    assert_eq!(
        world.sets[0].name(),
        name,
        "a template that is known has its ReplicaSet"
    );
    let history = world.sets[0].annotation("deployment.kubernetes.io/revision-history");
    assert_eq!(history, Some("1"));
    let revision = world
        .deployment
        .annotation("deployment.kubernetes.io/revision");
    assert_eq!(revision, Some("3"));
    let status = &world.deployment.data["status"];
    let expected = json!({"observedGeneration": 3, "replicas": 4, "updatedReplicas": 4, "readyReplicas": 4, "availableReplicas": 4});
    let mut found = status.clone();
    found.as_object_mut().unwrap().remove("conditions");
    assert_eq!(found, expected);
}

#[test]
fn every_bound_of_a_rolling_update_holds() {
    for (surge, unavailable) in [
        (json!(1), json!(0)),
        (json!(0), json!(1)),
        (json!(0), json!(0)),
        (json!("50%"), json!("50%")),
        (json!("100%"), json!(0)),
    ] {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let mut world = World::new(6, json!({"spec": {"strategy": {"rollingUpdate": rolling}}}));
        world.settle();
        world.roll_to("2");
        // The next one comes before this one is done.
        for _ in 0..3 {
            world.round();
            world.pods_move();
        }
        world.roll_to("3");
        world.settle();
        assert_eq!(world.sizes(), [0, 0, 6], "{surge} {unavailable}");
    }
}

#[test]
fn a_paused_deployment_only_scales() {
    let mut world = World::new(4, json!({}));
    world.settle();
    world.change(json!({"paused": true, "template": template("2"), "replicas": 6}));
    world.settle();
    assert_eq!(world.sizes(), [6]);
    assert_eq!(world.condition("Progressing").1, "DeploymentPaused");
    world.change(json!({"paused": false}));
    world.settle();
    assert_eq!(world.sizes(), [0, 6]);
}

#[test]
fn scaling_in_the_middle_of_a_rollout_keeps_the_parts() {
    let mut world = World::new(
        10,
        json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}}}),
    );
    world.settle();
    world.roll_to("2");
    world.round();
    world.round();
    let before = world.sizes();
    assert!(before.iter().all(|size| *size > 0), "{before:?}");
    world.change(json!({"replicas": 20}));
    world.round();
    let after = world.sizes();
    assert_eq!(after.iter().sum::<i64>(), 23);
    assert!(
        after[0] > before[0] && after[1] > before[1],
        "{before:?} -> {after:?}"
    );
    world.settle();
    assert_eq!(world.sizes(), [0, 20]);
}

#[test]
fn old_replica_sets_are_kept_up_to_the_limit() {
    let mut world = World::new(1, json!({"spec": {"revisionHistoryLimit": 2}}));
    for version in ["1", "2", "3", "4", "5"] {
        world.roll_to(version);
        world.settle();
    }
    assert_eq!(world.revisions(), ["3", "4", "5"]);
}

#[test]
fn a_rollout_without_progress_is_stuck_at_its_deadline() {
    let mut world = World::new(2, json!({}));
    world.settle();
    world.roll_to("broken");
    while world.round() {}
    world.now = world.now.checked_add(11.minutes()).unwrap();
    world.round();
    assert_eq!(
        world.condition("Progressing"),
        ("False".into(), "ProgressDeadlineExceeded".into())
    );
    assert_eq!(
        world.condition("Available").0,
        "True",
        "the old pods still serve"
    );
    world.settle();
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable");
}

#[test]
fn a_taken_name_is_avoided() {
    let mut world = World::new(1, json!({}));
    world.settle();
    let mut foreign = world.sets.remove(0);
    foreign.meta.owner_references = None;
    foreign.meta.labels = None;
    let name = foreign.name().to_owned();
    world.sets.push(foreign);
    world.settle();
    assert_eq!(world.deployment.at("/status/collisionCount"), &json!(1));
    assert_eq!(world.sets.len(), 2);
    assert_ne!(world.sets[1].name(), name);
}

#[test]
fn recreation_waits_for_the_old_pods() {
    let mut world = World::new(
        3,
        json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}),
    );
    world.settle();
    world.roll_to("2");
    world.round();
    assert_eq!(world.sizes(), [0]);
    world.round();
    assert_eq!(world.sizes(), [0], "its status still counts pods");
    world.settle();
    assert_eq!(world.sizes(), [0, 3]);
}
