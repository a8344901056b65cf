//! The acceptance list where there are controllers of workloads: Deployments, StatefulSets, namespaces.

use std::collections::BTreeSet;

use longshore_api::podops::{CONDITION_SERVICE_READY, LABEL_SERVICE_AVAILABLE};
use longshore_podops::model::ConditionStatus;
use serde_json::{Value, json};

use super::{
    http::{self, Asked},
    place::Place,
};

fn workload(place: &Place<'_>, kind: &str, replicas: usize) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": place.world.labels()}, "spec": place.world.spec()},
        },
    });
    if kind == "StatefulSet" {
        object["spec"]["serviceName"] = json!("web");
    }
    object
}

async fn make(place: &Place<'_>, kind: &str, plural: &str, replicas: usize) {
    let object = workload(place, kind, replicas);
    http::create(place.client(), &place.apps(plural), &object)
        .await
        .unwrap();
}

/// Waits until so many pods serve, none else is there, and all are of this version.
async fn until_all_serve(place: &Place<'_>, replicas: usize, version: Option<&str>) {
    let are_right = |list: &Value| {
        let pods = list["items"].as_array().unwrap();
        let serves = |pod: &&Value| {
            let metadata = &pod["metadata"];
            let is_version =
                version.is_none_or(|version| metadata["annotations"]["version"] == version);
            metadata["labels"][LABEL_SERVICE_AVAILABLE].is_string() && is_version
        };
        pods.len() == replicas && pods.iter().filter(serves).count() == replicas
    };
    place
        .world
        .until_object(&place.core("pods"), are_right)
        .await;
}

/// Changes the version annotation in the pod template of a workload.
async fn roll(place: &Place<'_>, path: &str, version: &str) {
    let metadata = json!({"annotations": {"version": version}});
    let patch = json!({"spec": {"template": {"metadata": metadata}}});
    http::patch(place.client(), path, Asked::Merge, &patch)
        .await
        .unwrap();
}

/// 17.1 and 17.5: a Deployment serves, is updated and scaled down, and never has fewer pods that serve than it may.
pub(super) async fn a_deployment_serves_rolls_and_shrinks_by_itself(place: &Place<'_>) {
    make(place, "Deployment", "deployments", 3).await;
    until_all_serve(place, 3, None).await;
    for pod in place.pods().await {
        assert!(pod.has_gate, "{pod:?}");
        assert_eq!(
            pod.service_ready,
            Some(ConditionStatus::True),
            "{CONDITION_SERVICE_READY}"
        );
    }
    roll(place, &place.apps("deployments/web"), "2").await;
    until_all_serve(place, 3, Some("2")).await;
    let scale = json!({"spec": {"replicas": 1}});
    let path = place.apps("deployments/web");
    http::patch(place.client(), &path, Asked::Merge, &scale)
        .await
        .unwrap();
    until_all_serve(place, 1, Some("2")).await;
    assert!(
        failed_deletes(place).await,
        "the ReplicaSet was refused, and says so"
    );
}

/// 17.5: the same of a StatefulSet.
pub(super) async fn a_stateful_set_rolls_by_itself(place: &Place<'_>) {
    make(place, "StatefulSet", "statefulsets", 2).await;
    until_all_serve(place, 2, None).await;
    roll(place, &place.apps("statefulsets/web"), "2").await;
    until_all_serve(place, 2, Some("2")).await;
}

/// A StatefulSet `set` of two pods with this label, beside so many other pods.
pub(super) async fn a_stateful_set_beside(place: &Place<'_>, others: usize, label: &str) {
    let mut object = workload(place, "StatefulSet", 2);
    object["metadata"]["name"] = json!("set");
    for labels in [
        "/spec/selector/matchLabels",
        "/spec/template/metadata/labels",
    ] {
        let labels = object.pointer_mut(labels).unwrap();
        labels["app"] = json!("set");
        labels[label] = json!("yes");
    }
    http::create(place.client(), &place.apps("statefulsets"), &object)
        .await
        .unwrap();
    until_all_serve(place, others + 2, None).await;
}

async fn failed_deletes(place: &Place<'_>) -> bool {
    let list = http::get(place.client(), &place.core("events"))
        .await
        .unwrap();
    let mut events = list["items"].as_array().unwrap().iter();
    events.any(|event| event["reason"] == "FailedDelete")
}

/// 16.17: all pods of a namespace that is deleted go at once.
pub(super) async fn a_namespace_goes_with_all_its_pods(place: &Place<'_>, n_pods: usize) {
    let names: Vec<String> = (0..n_pods).map(|n| format!("web-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    place.serving(&names).await;
    let trail = place.trail();
    let path = format!("/api/v1/namespaces/{}", place.namespace);
    http::delete(place.client(), &path, json!({}))
        .await
        .unwrap();
    for _ in 0..1_200 {
        match http::get(place.client(), &path).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let granted: BTreeSet<String> = trail.seen().iter().filter_map(granted).collect();
                assert_eq!(
                    granted.len(),
                    n_pods,
                    "each pod was let go by its operation"
                );
                return;
            }
            _ => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
    let left = place.pods().await;
    panic!("{} pods stay: {left:?}", left.len());
}

fn granted(pod: &longshore_podops::model::Pod) -> Option<String> {
    let is_granted = longshore_podops::admit::grace::may_delete(pod);
    is_granted.then(|| pod.target.name.clone())
}
