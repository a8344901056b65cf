//! Endpoints of pods in every state, and how little a change changes.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, from_value, json};

use super::{decide::decide, model::Desired};
use crate::controllers::workloads::{
    Body,
    hands::{Request, Target},
};

fn service(change: Value) -> Desired {
    let mut data = json!({"spec": {
        "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"}],
    }});
    json_patch::merge(&mut data, &change);
    let meta = json!({"name": "s", "namespace": "default", "uid": "u", "labels": {"team": "a"}});
    Desired::of(Body {
        meta: from_value(meta).unwrap(),
        data,
    })
    .unwrap()
}

fn pod(name: &str, is_ready: bool, change: Value) -> Pod {
    let ready = if is_ready { "True" } else { "False" };
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
        "status": {
            "phase": "Running", "podIP": format!("127.1.0.{}", name.len()),
            "conditions": [{"type": "Ready", "status": ready}],
        },
    });
    json_patch::merge(&mut pod, &change);
    from_value(pod).unwrap()
}

/// The slices after the requests.
fn apply(slices: &[Body], requests: &[Request]) -> Vec<Body> {
    let mut slices = slices.to_vec();
    for request in requests {
        match request {
            Request::Create { object, .. } => {
                let mut meta = object["metadata"].clone();
                meta["name"] = json!(format!("s-{}", slices.len()));
                meta["uid"] = meta["name"].clone();
                let mut data = object.clone();
                data.as_object_mut().unwrap().remove("metadata");
                slices.push(Body {
                    meta: from_value(meta).unwrap(),
                    data,
                });
            }
            Request::Patch { name, patch, .. } => {
                let slice = slices.iter_mut().find(|it| it.name() == name).unwrap();
                let mut patch = patch.clone();
                patch.as_object_mut().unwrap().remove("metadata");
                json_patch::merge(&mut slice.data, &patch);
            }
            Request::Delete { name, .. } => slices.retain(|it| it.name() != name),
            Request::PatchStatus { .. } | Request::Announce(_) => panic!("{request:?}"),
        }
    }
    slices
}

fn endpoints(slices: &[Body]) -> Vec<Value> {
    let all = slices
        .iter()
        .flat_map(|it| it.at("/endpoints").as_array().cloned());
    all.flatten().collect()
}

#[test]
fn a_pod_is_ready_serving_or_terminating() {
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let plain = service(json!({}));
    let eager = service(json!({"spec": {"publishNotReadyAddresses": true}}));
    for (what, service, pod, expected) in [
        (
            "ready",
            &plain,
            pod("a", true, json!({})),
            Some((true, true, false)),
        ),
        (
            "not ready",
            &plain,
            pod("a", false, json!({})),
            Some((false, false, false)),
        ),
        (
            "goes",
            &plain,
            pod("a", true, gone.clone()),
            Some((false, true, true)),
        ),
        (
            "goes, not ready",
            &plain,
            pod("a", false, gone.clone()),
            Some((false, false, true)),
        ),
        (
            "eager, not ready",
            &eager,
            pod("a", false, json!({})),
            Some((true, false, false)),
        ),
        (
            "eager, goes",
            &eager,
            pod("a", false, gone),
            Some((true, false, true)),
        ),
        (
            "no address",
            &plain,
            pod("a", true, json!({"status": {"podIP": null}})),
            None,
        ),
        (
            "over",
            &plain,
            pod("a", true, json!({"status": {"phase": "Failed"}})),
            None,
        ),
    ] {
        let slices = apply(&[], &decide(service, &[pod], &[]));
        let found = endpoints(&slices);
        let conditions = found.first().map(|it| {
            let is = |key: &str| it["conditions"][key].as_bool().unwrap();
            (is("ready"), is("serving"), is("terminating"))
        });
        assert_eq!(conditions, expected, "{what}");
        assert_eq!(slices.len(), 1, "{what}");
    }
}

#[test]
fn named_ports_are_those_of_each_pod() {
    let other = json!({"spec": {"containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 9090}]}]}});
    let pods = [pod("a", true, json!({})), pod("bb", true, other)];
    let slices = apply(&[], &decide(&service(json!({})), &pods, &[]));
    let ports: Vec<_> = slices
        .iter()
        .map(|it| it.at("/ports/0/port").clone())
        .collect();
    assert_eq!(ports, [json!(8080), json!(9090)]);
    let slice = &slices[0];
    let labels = slice.meta.labels.clone().unwrap();
    assert_eq!(labels["kubernetes.io/service-name"], "s");
    assert_eq!(labels["team"], "a");
    assert_eq!(
        slice.at("/ports/0"),
        &json!({"name": "http", "port": 8080, "protocol": "TCP"})
    );
}

#[test]
fn what_has_not_changed_is_not_written() {
    let service = service(json!({}));
    let pods = [pod("a", true, json!({})), pod("bb", true, json!({}))];
    let slices = apply(&[], &decide(&service, &pods, &[]));
    assert_eq!(decide(&service, &pods, &slices), []);
    let less = decide(&service, &pods[..1], &slices);
    assert!(
        matches!(
            less.as_slice(),
            [Request::Patch {
                target: Target::Slice,
                ..
            }]
        ),
        "{less:?}"
    );
    let slices = apply(&slices, &less);
    assert_eq!(endpoints(&slices).len(), 1);
    let slices = apply(&slices, &decide(&service, &[], &slices));
    assert_eq!(
        (slices.len(), endpoints(&slices).len()),
        (1, 0),
        "an empty one stays"
    );
    assert_eq!(decide(&service, &[], &slices), []);
}

#[test]
fn no_slice_is_larger_than_a_hundred() {
    let service = service(json!({}));
    let many: Vec<Pod> = (0..250)
        .map(|i| pod(&format!("p{i:03}"), true, json!({})))
        .collect();
    let slices = apply(&[], &decide(&service, &many, &[]));
    let sizes = |slices: &[Body]| -> Vec<usize> {
        slices
            .iter()
            .map(|it| it.at("/endpoints").as_array().unwrap().len())
            .collect()
    };
    assert_eq!(sizes(&slices), [100, 100, 50]);
    let requests = decide(&service, &many[1..], &slices);
    assert_eq!(requests.len(), 1, "one pod less changes one slice");
}

#[test]
fn a_host_name_that_is_none_is_not_copied_from_a_pod() {
    let service = service(json!({}));
    for (hostname, expected) in [
        ("db-0", json!("db-0")),
        ("q\n6.6.6.6\tpayments.default.svc", Value::Null),
        ("x pypi.org", Value::Null),
    ] {
        let spec = json!({"spec": {"hostname": hostname, "subdomain": "s"}});
        let slices = apply(&[], &decide(&service, &[pod("a", true, spec)], &[]));
        assert_eq!(endpoints(&slices)[0]["hostname"], expected, "{hostname:?}");
    }
}
