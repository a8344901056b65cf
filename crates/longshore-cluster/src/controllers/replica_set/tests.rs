//! What a ReplicaSet decides, as tables.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, from_value, json};

use super::{
    decide::decide,
    model::{Desired, Keeper, Observed},
    ranking::in_order_of_deletion,
    status,
};
use crate::controllers::workloads::{
    Body,
    hands::{Request, Target},
};

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn set(n_replicas: usize) -> Desired {
    let set = Body {
        meta: from_value(
            json!({"name": "web", "namespace": "default", "uid": "u", "generation": 2}),
        )
        .unwrap(),
        data: json!({"spec": {
            "replicas": n_replicas, "minReadySeconds": 60, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web", "tier": "a"}}, "spec": {"containers": []}},
        }}),
    };
    Desired::of(Keeper::ReplicaSet, set).unwrap()
}

/// A pod that runs on a node and belongs to the set, changed by a merge.
fn pod(name: &str, change: Value) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "labels": {"app": "web"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}],
        },
        "spec": {"nodeName": "n", "containers": []},
        "status": {"phase": "Running"},
    });
    json_patch::merge(&mut pod, &change);
    from_value(pod).unwrap()
}

fn ready(since: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}})
}

#[test]
fn the_missing_are_made_and_the_surplus_goes() {
    let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let held =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
    let over = json!({"status": {"phase": "Failed"}});
    let stray = json!({"metadata": {"labels": {"app": null}}});
    let orphan = json!({"metadata": {"ownerReferences": null}});
    for (what, n_replicas, pods, n_claims, n_create, n_delete) in [
        ("none yet", 3, vec![], 0, 3, 0),
        ("as asked", 1, vec![json!({})], 0, 0, 0),
        (
            "too many",
            1,
            vec![json!({}), json!({}), json!({})],
            0,
            0,
            2,
        ),
        ("one goes", 2, vec![json!({}), terminating], 0, 1, 0),
        ("one is held", 1, vec![held], 0, 1, 0),
        ("one is over", 1, vec![over.clone()], 0, 1, 0),
        ("one stays over", 0, vec![over], 0, 0, 0),
        ("a stray is let go and replaced", 1, vec![stray], 1, 1, 0),
        ("an orphan counts", 1, vec![orphan], 1, 0, 0),
    ] {
        let pods = pods
            .into_iter()
            .enumerate()
            .map(|(i, change)| pod(&format!("p{i}"), change));
        let observed = Observed {
            pods: pods.collect(),
            now: now(),
        };
        let plan = decide(&set(n_replicas), &observed);
        let found = (plan.claims.len(), plan.n_create, plan.delete.len());
        assert_eq!(found, (n_claims, n_create, n_delete), "{what}");
    }
}

#[test]
fn the_pod_that_serves_least_goes_first() {
    let recently = "2026-01-01T00:59:50Z";
    let restarted = |n: i32| {
        let mut change = ready("2026-01-01T00:00:00Z");
        change["status"]["containerStatuses"] = json!([{
            "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": n,
        }]);
        change
    };
    let cost = |mut change: Value, cost: &str| {
        change["metadata"]["annotations"] =
            json!({"controller.kubernetes.io/pod-deletion-cost": cost});
        change
    };
    let long = ready("2026-01-01T00:00:00Z");
    let pods = [
        pod("h-dear", cost(long.clone(), "5")),
        pod("g-old", restarted(0)),
        pod("f-restarted", restarted(3)),
        pod("e-young", ready(recently)),
        pod("d-cheap", cost(long, "-1")),
        pod("c-unready", json!({})),
        pod("b-pending", json!({"status": {"phase": "Pending"}})),
        pod(
            "a-unassigned",
            json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}}),
        ),
    ];
    let ordered = in_order_of_deletion(&pods, now());
    let names: Vec<_> = ordered
        .iter()
        .filter_map(|it| it.metadata.name.as_deref())
        .collect();
    let mut expected = names.clone();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn crowded_nodes_are_thinned_out() {
    let since = "2026-01-01T00:00:00Z";
    let on = |node: &str| {
        let mut change = ready(since);
        change["spec"]["nodeName"] = json!(node);
        change
    };
    let pods = [pod("a", on("x")), pod("b", on("y")), pod("c", on("y"))];
    let ordered = in_order_of_deletion(&pods, now());
    assert_eq!(ordered[0].metadata.name.as_deref(), Some("b"));
    assert_eq!(ordered[2].metadata.name.as_deref(), Some("a"));
}

#[test]
fn replicas_are_available_when_they_have_been_ready_for_long_enough() {
    let pods = vec![
        pod("a", ready("2026-01-01T00:59:30Z")),
        pod("b", ready("2026-01-01T00:00:00Z")),
        pod("c", json!({"metadata": {"labels": {"tier": "a"}}})),
    ];
    let desired = set(3);
    let plan = decide(&desired, &Observed { pods, now: now() });
    assert_eq!(plan.again.unwrap().as_secs(), 30);
    let Some(Request::PatchStatus { patch, .. }) = status::write(&desired, &plan, None, now())
    else {
        panic!("the status is written");
    };
    let expected = json!({
        "replicas": 3, "fullyLabeledReplicas": 1, "readyReplicas": 2, "availableReplicas": 1,
        "observedGeneration": 2,
    });
    assert_eq!(patch["status"], expected);
}

#[test]
fn a_replication_controller_does_the_same_by_plain_labels() {
    let controller = |selector: Value| Body {
        meta: from_value(json!({"name": "web", "namespace": "default", "uid": "u"})).unwrap(),
        data: json!({"spec": {"replicas": 1, "selector": selector, "template": {}}}),
    };
    let of = |selector| Desired::of(Keeper::ReplicationController, controller(selector));
    let desired = of(json!({"app": "web"})).unwrap();
    assert_eq!(
        (
            desired.reference()["apiVersion"].as_str(),
            desired.reference()["kind"].as_str()
        ),
        (Some("v1"), Some("ReplicationController"))
    );
    let orphan = pod("a", json!({"metadata": {"ownerReferences": null}}));
    let other = pod(
        "b",
        json!({"metadata": {"ownerReferences": null, "labels": {"app": "b"}}}),
    );
    let observed = Observed {
        pods: vec![orphan, other],
        now: now(),
    };
    let plan = decide(&desired, &observed);
    assert_eq!((plan.claims.len(), plan.n_create), (1, 0));
    let Some(Request::PatchStatus { target, .. }) = status::write(&desired, &plan, None, now())
    else {
        panic!("the status is written");
    };
    assert_eq!(target, Target::ReplicationController);
    for nothing in [json!({}), Value::Null] {
        assert!(of(nothing.clone()).is_err(), "{nothing}");
    }
}
