//! What Endpoints say of pods in every state.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, from_value, json};

use super::{decide::decide, decide::is_ours};
use crate::controllers::{
    endpoint_slices::model::Desired,
    workloads::{Body, hands::Request},
};

fn service(change: Value) -> Desired {
    let mut data = json!({"spec": {
        "clusterIP": "10.96.0.9", "selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
    }});
    json_patch::merge(&mut data["spec"], &change);
    let meta = json!({"name": "s", "namespace": "default", "uid": "u", "labels": {"team": "a"}});
    Desired::of(Body {
        meta: from_value(meta).unwrap(),
        data,
    })
    .unwrap()
}

fn pod(name: &str, is_ready: bool, is_going: bool) -> Pod {
    let ready = if is_ready { "True" } else { "False" };
    let deleted_at = is_going.then_some("2026-01-01T00:00:00Z");
    from_value(json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "labels": {"app": "web"},
            "deletionTimestamp": deleted_at,
        },
        "spec": {"nodeName": "n", "containers": []},
        "status": {
            "phase": "Running", "podIP": format!("127.1.0.{}", name.len()),
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }))
    .unwrap()
}

/// The subsets as `ip,ip!unready:port,port`.
fn shown(subsets: &Value) -> Vec<String> {
    let list = |value: &Value, key: &str| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .map(|it| it[key].to_string().replace('"', ""))
            .collect()
    };
    let subsets = subsets.as_array().into_iter().flatten();
    let show = |it: &Value| {
        let ready = list(&it["addresses"], "ip").join(",");
        let unready = list(&it["notReadyAddresses"], "ip").join(",");
        format!("{ready}!{unready}:{}", list(&it["ports"], "port").join(","))
    };
    subsets.map(show).collect()
}

#[test]
fn addresses_are_ready_unready_or_not_there() {
    let two = json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]});
    for (what, change, pods, expected) in [
        ("nobody", json!({}), vec![], vec![]),
        (
            "one of each",
            json!({}),
            vec![
                pod("a", true, false),
                pod("bb", false, false),
                pod("ccc", true, true),
            ],
            vec!["127.1.0.1!127.1.0.2:8080"],
        ),
        (
            "published unready",
            json!({"publishNotReadyAddresses": true}),
            vec![pod("bb", false, false), pod("ccc", false, true)],
            vec!["127.1.0.2,127.1.0.3!:8080"],
        ),
        (
            "two ports",
            two,
            vec![pod("a", true, false)],
            vec!["127.1.0.1!:1,2"],
        ),
        (
            "headless without ports",
            json!({"clusterIP": "None", "ports": null}),
            vec![pod("a", true, false)],
            vec!["127.1.0.1!:"],
        ),
    ] {
        let desired = service(change);
        let Some(Request::Create { object, .. }) = decide(&desired, &pods, None) else {
            panic!("{what}: made");
        };
        assert_eq!(shown(&object["subsets"]), expected, "{what}");
    }
}

#[test]
fn what_has_not_changed_is_not_written() {
    let desired = service(json!({}));
    let pods = [pod("a", true, false)];
    let Some(Request::Create { mut object, .. }) = decide(&desired, &pods, None) else {
        panic!("made");
    };
    let labels = &object["metadata"]["labels"];
    assert_eq!(
        labels,
        &json!({"team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller"})
    );
    let meta = object.as_object_mut().unwrap().remove("metadata").unwrap();
    let present = Body {
        meta: from_value(meta).unwrap(),
        data: object,
    };
    assert!(is_ours(&present));
    assert_eq!(decide(&desired, &pods, Some(&present)), None);
    let Some(Request::Patch { patch, .. }) = decide(&desired, &[], Some(&present)) else {
        panic!("changed");
    };
    assert_eq!(patch["subsets"], Value::Null);
    let headless = service(json!({"clusterIP": "None"}));
    let Some(Request::Patch { patch, .. }) = decide(&headless, &pods, Some(&present)) else {
        panic!("labeled");
    };
    assert_eq!(
        patch["metadata"]["labels"]["service.kubernetes.io/headless"],
        ""
    );
}

#[test]
fn an_object_has_at_most_a_thousand_addresses_and_says_so() {
    let mut pods: Vec<Pod> = (0..1001)
        .map(|it| pod(&format!("p{it:04}"), true, false))
        .collect();
    for (n, pod) in pods.iter_mut().enumerate() {
        let status = pod.status.as_mut().unwrap();
        status.pod_ip = Some(format!("127.2.{}.{}", n / 256, n % 256));
    }
    let Some(Request::Create { object, .. }) = decide(&service(json!({})), &pods, None) else {
        panic!("made");
    };
    assert_eq!(
        object["subsets"][0]["addresses"].as_array().unwrap().len(),
        1000
    );
    let note = &object["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"];
    assert_eq!(note, "truncated");
}
