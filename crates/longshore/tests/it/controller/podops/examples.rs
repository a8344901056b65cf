//! The example controllers of `longshore-podops-client`, as they are written there, beside the role.

use futures::join;
use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, CONTROLLED, FINALIZER_CLEAN, LABEL_CONTROL,
    LABEL_SERVICE_AVAILABLE, OperationLabel,
};
use longshore_podops_client::lifecycle_finalizer;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{http, place::Place, world::World};

#[allow(dead_code, reason = "it has a main of its own")]
#[path = "../../../../../longshore-podops-client/examples/restart_pods.rs"]
mod restart_pods;
#[allow(dead_code, reason = "it has a main of its own")]
#[path = "../../../../../longshore-podops-client/examples/traffic_table.rs"]
mod traffic_table;

const RESTART: &str = "example.dev/restart";
const ID: &str = "restart-pods";

pub(super) async fn all(world: &World) {
    let (restarted, traffic) = join!(world.namespace("restarted"), world.namespace("traffic"));
    let shutdown = CancellationToken::new();
    let running = [
        tokio::spawn(restart_pods::run(world.client().clone())),
        tokio::spawn(traffic_table::run(world.client().clone(), shutdown.clone())),
    ];
    join!(
        pods_restart_when_they_may(&restarted),
        a_pod_has_traffic_until_it_is_operated_on(&traffic),
    );
    shutdown.cancel();
    running[0].abort();
}

/// Restarts a pod, takes a restart back, and ends one that is no longer wanted.
async fn pods_restart_when_they_may(place: &Place<'_>) {
    place.serving(&["web-0", "web-1"]).await;
    let trail = place.trail();
    place
        .change("web-0", json!({"annotations": {RESTART: "please"}}))
        .await;
    place.until_gone("web-0").await;
    for pod in trail.seen().iter().filter(|pod| pod.is_deleting) {
        assert!(
            pod.labels.contains_key(&OperationLabel::Operate.of(ID)),
            "{pod:?}"
        );
        assert!(!pod.is_available(), "{pod:?}");
    }
    let never = json!({"requires": {"matchLabels": {"may": "restart"}}});
    place
        .rule("labels", json!([{"name": "labels", "labelCheck": never}]))
        .await;
    place
        .change("web-1", json!({"annotations": {RESTART: "please"}}))
        .await;
    place
        .until_label("web-1", &OperationLabel::PreCheck.of(ID))
        .await;
    place
        .change("web-1", json!({"annotations": {RESTART: null}}))
        .await;
    until_untouched(place, "web-1").await;
    // Begun by a process before, for an annotation that is gone.
    place
        .label(
            "web-1",
            json!({
                "may": "restart",
                OperationLabel::Operating.of(ID): "1",
                OperationLabel::OperationType.of(ID): "restart",
            }),
        )
        .await;
    until_untouched(place, "web-1").await;
}

/// Waits until a pod serves and no operation is on it.
async fn until_untouched(place: &Place<'_>, name: &str) {
    let is_untouched = |pod: &Value| {
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        let mut keys = labels.keys();
        labels.contains_key(LABEL_SERVICE_AVAILABLE) && !keys.any(|key| key.ends_with(ID))
    };
    let path = place.core(&format!("pods/{name}"));
    place.world.until_object(&path, is_untouched).await;
}

/// A pod is in the table while it serves, leaves it before it goes, and a Service that goes leaves nothing behind.
async fn a_pod_has_traffic_until_it_is_operated_on(place: &Place<'_>) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "labels": {LABEL_CONTROL: CONTROLLED}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    http::create(place.client(), &place.core("services"), &service)
        .await
        .unwrap();
    let path = place.core("services/web");
    let is_held = |service: &Value| {
        let finalizers = service["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|it| it.contains(&json!(FINALIZER_CLEAN)))
    };
    place.world.until_object(&path, is_held).await;
    let trail = place.trail();
    place.serving(&["web-0", "web-1"]).await;
    until_table_has(place, &["web-0", "web-1"]).await;
    until_protected(place, "web-0").await;
    place.delete("web-0").await.unwrap_err();
    place.until_gone("web-0").await;
    until_table_has(place, &["web-1"]).await;
    let finalizer = lifecycle_finalizer("web");
    for pod in trail.seen() {
        let is_granted = pod
            .labels
            .contains_key(&OperationLabel::Operate.of("pod-delete"));
        assert!(
            !is_granted || !pod.finalizers.contains(&finalizer),
            "{pod:?}"
        );
    }
    let protected = trail.seen().into_iter();
    let mut protected = protected.filter(|pod| pod.finalizers.contains(&finalizer));
    assert!(protected.any(|pod| pod.target.name == "web-0"));
    http::delete(place.client(), &path, json!({}))
        .await
        .unwrap();
    let is_free = |pod: &Value| {
        let conditions = &pod["metadata"]["annotations"][ANNOTATION_AVAILABLE_CONDITIONS];
        let expects = conditions
            .as_str()
            .is_some_and(|it| it.contains("Service/"));
        let finalizers = pod["metadata"]["finalizers"].as_array();
        finalizers.is_none_or(Vec::is_empty) && !expects
    };
    let pod = place.core("pods/web-1");
    place.world.until_object(&pod, is_free).await;
    while http::get(place.client(), &path).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn until_table_has(place: &Place<'_>, pods: &[&str]) {
    let has = |table: &Value| {
        let data = table["data"].as_object();
        let names: Vec<&str> = data
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        names == pods
    };
    let path = place.core("configmaps/web-traffic");
    place.world.until_object(&path, has).await;
}

async fn until_protected(place: &Place<'_>, name: &str) {
    let finalizer = json!(lifecycle_finalizer("web"));
    let is_protected = |pod: &Value| {
        let finalizers = pod["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|it| it.contains(&finalizer))
    };
    let path = place.core(&format!("pods/{name}"));
    place.world.until_object(&path, is_protected).await;
}
