//! Labels that people write one at a time, wrongly, or take away in the middle.

use futures::join;
use longshore_api::podops::{
    CONDITION_SERVICE_READY, FINALIZER_SERVICES, LABEL_CONTROL, LABEL_RELEASED,
    LABEL_SERVICE_AVAILABLE, LABEL_STAY_OFFLINE, OperationLabel, REASON_INVALID_LIFECYCLE,
};
use longshore_podops::model::ConditionStatus;
use serde_json::{Value, json};

use super::{
    http,
    place::Place,
    scenarios::{QUIET, ask, begin, is_clean},
    world::World,
};

use OperationLabel::{Operate, Operating, OperationType, PreCheck};

pub(super) async fn all(world: &World) {
    let (offline, untyped, released, longer) = join!(
        world.namespace("offline"),
        world.namespace("untyped"),
        world.namespace("released"),
        world.namespace("longer"),
    );
    join!(
        a_new_pod_stays_offline_until_somebody_lets_it_serve(&offline),
        an_operation_without_a_type_is_told_by_whom_it_is_held(&untyped),
        a_pod_that_loses_its_label_in_an_operation_serves_again(&released),
        a_longer_prefix_is_no_operation(&longer),
    );
}

/// The status of our condition.
fn gate(pod: &Value) -> Option<&str> {
    let mut conditions = pod["status"]["conditions"].as_array()?.iter();
    conditions.find(|it| it["type"] == CONDITION_SERVICE_READY)?["status"].as_str()
}

async fn a_new_pod_stays_offline_until_somebody_lets_it_serve(place: &Place<'_>) {
    let mut pod = place.world.pod("web-0");
    pod["metadata"]["labels"][LABEL_STAY_OFFLINE] = json!("true");
    http::create(place.client(), &place.core("pods"), &pod)
        .await
        .unwrap();
    let path = place.core("pods/web-0");
    let is_said = |pod: &Value| gate(pod).is_some();
    let said = place.world.until_object(&path, is_said).await;
    assert_eq!(gate(&said), Some("False"), "{said}");
    tokio::time::sleep(QUIET).await;
    let seen = place.pod("web-0").await;
    assert!(!seen.is_ready && !seen.is_available(), "{seen:?}");
    let explained = ask(place, &["explain", "web-0"]);
    let held = format!("Held by Person {LABEL_STAY_OFFLINE}");
    assert!(explained.contains(&held), "{explained}");
    // An operation does not bring it into service either.
    place.label("web-0", begin("a")).await;
    place.until_label("web-0", &Operate.of("a")).await;
    place.label("web-0", json!({Operating.of("a"): null})).await;
    let is_over = |pod: &Value| {
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        !labels.keys().any(|key| key.contains(".podopslifecycle."))
    };
    let over = place.world.until_object(&path, is_over).await;
    assert_eq!(gate(&over), Some("False"), "{over}");
    place
        .label("web-0", json!({LABEL_STAY_OFFLINE: null}))
        .await;
    place.until_serving("web-0").await;
}

/// It waits, because people write one label after the other; but it says for what.
async fn an_operation_without_a_type_is_told_by_whom_it_is_held(place: &Place<'_>) {
    place.serving(&["web-0"]).await;
    for untyped in [
        json!({Operating.of("a"): "1"}),
        json!({Operating.of("a"): "1", OperationType.of("a"): ""}),
    ] {
        place.label("web-0", untyped).await;
        place.until_label("web-0", &PreCheck.of("a")).await;
        tokio::time::sleep(QUIET).await;
        let explained = ask(place, &["explain", "web-0"]);
        let held = "Held by Untyped a, since ";
        let missing = format!(
            "has to add the label {} with its type",
            OperationType.of("a")
        );
        assert!(
            explained.contains(held) && explained.contains(&missing),
            "{explained}"
        );
        assert!(place.pod("web-0").await.is_available());
    }
    let events = format!(
        "/apis/events.k8s.io/v1/namespaces/{}/events",
        place.namespace
    );
    let is_told = |list: &Value| {
        let mut events = list["items"].as_array().into_iter().flatten();
        events.any(|event| {
            let note = event["note"].as_str().unwrap_or_default();
            event["reason"] == REASON_INVALID_LIFECYCLE && note.contains(&OperationType.of("a"))
        })
    };
    place.world.until_object(&events, is_told).await;
    let typed = json!({OperationType.of("a"): "update"});
    place.label("web-0", typed).await;
    place.until_label("web-0", &Operate.of("a")).await;
    place.label("web-0", json!({Operating.of("a"): null})).await;
    is_clean(place, "web-0").await;
}

/// Without the label, no controller would open its readiness gate.
async fn a_pod_that_loses_its_label_in_an_operation_serves_again(place: &Place<'_>) {
    for (name, freed) in [("web-0", Value::Null), ("web-1", json!("false"))] {
        place.serving(&[name]).await;
        place.label(name, begin("a")).await;
        place.until_label(name, &Operate.of("a")).await;
        assert_eq!(
            place.pod(name).await.service_ready,
            Some(ConditionStatus::False)
        );
        place.label(name, json!({LABEL_CONTROL: freed})).await;
        is_free(place, name).await;
    }
}

/// Waits until a pod that takes part no more is Ready, and carries nothing of ours.
async fn is_free(place: &Place<'_>, name: &str) {
    let path = place.core(&format!("pods/{name}"));
    let is_free = |pod: &Value| {
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        let is_ours = |key: &str| {
            key.contains(".podopslifecycle.")
                || [LABEL_RELEASED, LABEL_SERVICE_AVAILABLE].contains(&key)
        };
        let finalizers = pod["metadata"]["finalizers"].as_array();
        let mut finalizers = finalizers.into_iter().flatten();
        let conditions = pod["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        gate(pod) == Some("True")
            && conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
            && !labels.keys().any(|key| is_ours(key))
            && !finalizers.any(|it| it == FINALIZER_SERVICES)
    };
    place.world.until_object(&path, is_free).await;
}

/// The mark is in the object: a controller that was down when the label went finds the pod by it.
pub(super) async fn a_pod_that_was_freed_while_the_controller_was_down_serves_again(
    place: &Place<'_>,
) {
    place.world.note_asked().await;
    place.world.kill();
    let mut pod = place.world.pod("web-0");
    let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove(LABEL_CONTROL);
    labels.insert(LABEL_RELEASED.to_owned(), json!("1"));
    pod["spec"]["readinessGates"] = json!([{"conditionType": CONDITION_SERVICE_READY}]);
    http::create(place.client(), &place.core("pods"), &pod)
        .await
        .unwrap();
    tokio::time::sleep(QUIET).await;
    assert_eq!(place.pod("web-0").await.service_ready, None);
    place.world.revive();
    is_free(place, "web-0").await;
}

/// Labels of others, whose prefixes only begin like ours.
async fn a_longer_prefix_is_no_operation(place: &Place<'_>) {
    let longer = |label: OperationLabel| format!("{}.example.org/x", label.prefix());
    let mut pod = place.world.pod("web-0");
    let labels = &mut pod["metadata"]["labels"];
    for label in OperationLabel::ALL {
        labels[longer(label)] = json!("1");
    }
    http::create(place.client(), &place.core("pods"), &pod)
        .await
        .unwrap();
    place.until_serving("web-0").await;
    place.label("web-0", begin("a")).await;
    place.until_label("web-0", &Operate.of("a")).await;
    place.label("web-0", json!({Operating.of("a"): null})).await;
    let path = place.core("pods/web-0");
    let is_over = |pod: &Value| {
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        let is_left = labels.keys().any(|key| key.ends_with("/a"));
        labels.contains_key(LABEL_SERVICE_AVAILABLE) && !is_left
    };
    let over = place.world.until_object(&path, is_over).await;
    for label in OperationLabel::ALL {
        assert_eq!(over["metadata"]["labels"][longer(label)], "1", "{over}");
    }
}
