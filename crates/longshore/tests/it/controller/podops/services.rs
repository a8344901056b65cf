//! A Service protects its pods, without any controller of its user's.

use longshore_api::podops::{ANNOTATION_DRAIN_DELAY, FINALIZER_SERVICES, OperationLabel};
use serde_json::{Value, json};

use super::{
    http::{self, Asked},
    place::Place,
    scenarios::{QUIET, ask},
};

/// A deletion waits until the EndpointSlice of its Service has let the pod go, and a while longer.
/// The test itself writes that slice: the simulated nodes assign no addresses.
pub(super) async fn a_pod_is_held_while_a_slice_has_it_as_ready(place: &Place<'_>) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "annotations": {ANNOTATION_DRAIN_DELAY: "1s"}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    http::create(place.client(), &place.core("services"), &service)
        .await
        .unwrap();
    place.serving(&["web-0"]).await;
    let path = place.core("pods/web-0");
    let is_held = |pod: &Value| pod["metadata"]["finalizers"] == json!([FINALIZER_SERVICES]);
    let pod = place.world.until_object(&path, is_held).await;
    let uid = pod["metadata"]["uid"].clone();
    let endpoints = |ready: bool| {
        json!({"endpoints": [{
            "addresses": ["10.1.2.3"], "conditions": {"ready": ready},
            "targetRef": {"kind": "Pod", "name": "web-0", "uid": uid, "namespace": place.namespace},
        }]})
    };
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-test", "labels": {
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "test.longshore.dev",
        }},
        "addressType": "IPv4", "ports": [{"port": 80}],
    });
    slice["endpoints"] = endpoints(true)["endpoints"].clone();
    let slices = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
        place.namespace
    );
    http::create(place.client(), &slices, &slice).await.unwrap();
    // The pause lets the slice reach the cache of the controller, which does not report that moment.
    tokio::time::sleep(QUIET).await;
    assert!(place.delete("web-0").await.is_err(), "refused at first");
    let preparing = OperationLabel::Preparing.of("pod-delete");
    place.until_label("web-0", &preparing).await;
    tokio::time::sleep(4 * QUIET).await;
    let pod = place.until_label("web-0", &preparing).await;
    assert!(is_held(&pod), "{pod}");
    let said = ask(place, &["explain", "web-0"]);
    assert!(said.contains("EndpointSlice of Service web"), "{said}");
    let slice = format!("{slices}/web-test");
    http::patch(place.client(), &slice, Asked::Merge, &endpoints(false))
        .await
        .unwrap();
    place.until_gone("web-0").await;
}
