//! The live acceptance list (podops spec §17), one scenario each. Each plays in a namespace of its own, and asks nothing
//! of the cluster but what every Kubernetes cluster does.

use std::{collections::BTreeMap, time::Duration};

use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, ANNOTATION_PROTECTION_DEADLINE, CONDITION_SERVICE_READY,
    LABEL_SERVICE_AVAILABLE, LABEL_TO_DELETE, OperationLabel, REASON_PROTECTION_EXPIRED,
    detail_annotation,
};
use longshore_podops::model::ConditionStatus;
use serde_json::{Value, json};

use super::{
    http::{self, Asked},
    place::Place,
};
use crate::{longshore, outcome};

const HOLDER: &str = "prot.podopslifecycle.kusionstack.io/abc";
const UNDER_WAY: &str = "failed to validate GraceDeleteWebhook, pod deletion process is underway and being managed by \
                         PodOpsLifecycle";
/// How long nothing may happen where nothing is to happen.
pub(super) const QUIET: Duration = Duration::from_millis(700);

use OperationLabel::{
    Operate, Operating, OperationType, PreCheck, PreChecked, Preparing, UndoOperationType,
};

/// The message of a refused deletion, followed by `more`.
pub(super) fn denial(more: &str) -> String {
    format!(
        "admission webhook \"validating-pod.apps.kusionstack.io\" denied the request: {UNDER_WAY}{more}"
    )
}

/// Asks for a deletion that has to be refused; why it is.
async fn refused(place: &Place<'_>, name: &str) -> String {
    match place.delete(name).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403, "{status:?}");
            status.message
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn begin(id: &str) -> Value {
    json!({Operating.of(id): "1", OperationType.of(id): "update"})
}

/// 17.2: denied with the exact text, then the labels of §3.1, then gone.
pub(super) async fn a_deleted_pod_goes_through_the_labels_in_their_order(place: &Place<'_>) {
    place.serving(&["web-0"]).await;
    let trail = place.trail();
    assert_eq!(refused(place, "web-0").await, denial(""));
    place.until_gone("web-0").await;
    let got = trail.got("web-0");
    let at = |label: String| {
        got.iter()
            .position(|got| *got == label)
            .unwrap_or_else(|| panic!("{label}: {got:?}"))
    };
    let order = [
        at(LABEL_TO_DELETE.to_owned()),
        at(Operating.of("pod-delete")),
        at(PreChecked.of("pod-delete")),
        at(Operate.of("pod-delete")),
    ];
    assert!(order.is_sorted(), "{got:?}");
    for label in [PreCheck.of("pod-delete"), Preparing.of("pod-delete")] {
        at(label);
    }
    for pod in trail.seen() {
        let is_preparing = pod.labels.contains_key(&Preparing.of("pod-delete"));
        assert!(!is_preparing || !pod.is_available(), "{pod:?}");
    }
}

/// 17.3: the deletion waits for the controller that protects traffic, and names its finalizer.
pub(super) async fn a_protected_pod_waits_for_whoever_protects_it(place: &Place<'_>) {
    place.serving(&["web-0"]).await;
    place.change("web-0", json!({"finalizers": [HOLDER]})).await;
    let with = format!(" with finalizers: [{HOLDER}]");
    assert_eq!(refused(place, "web-0").await, denial(&with));
    let path = place.core("pods/web-0");
    let is_drained = |pod: &Value| {
        let is_false = |kind: &str| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == kind && it["status"] == "False")
        };
        is_false("Ready") && is_false(CONDITION_SERVICE_READY)
    };
    place.world.until_object(&path, is_drained).await;
    tokio::time::sleep(QUIET).await;
    let pod = place.pod("web-0").await;
    assert!(
        pod.labels.contains_key(&Preparing.of("pod-delete")),
        "{pod:?}"
    );
    assert!(!pod.is_available() && !pod.is_deleting, "{pod:?}");
    assert_eq!(refused(place, "web-0").await, denial(&with));
    says_so(place);
    place.change("web-0", json!({"finalizers": []})).await;
    place.until_gone("web-0").await;
}

/// What `longshore pods …` prints.
pub(super) fn ask(place: &Place<'_>, arguments: &[&str]) -> String {
    let mut command = longshore();
    command.arg("pods").args(arguments);
    command.arg("--kubeconfig").arg(place.world.kubeconfig());
    let (code, stdout, stderr) = outcome(command.args(["-n", &place.namespace]));
    assert_eq!(code, 0, "{stderr}");
    stdout
}

/// What the command line says about it.
fn says_so(place: &Place<'_>) {
    let ask = |arguments: &[&str]| ask(place, arguments);
    let list = ask(&["list", "--held"]);
    assert!(
        list.contains("Preparing") && list.contains(&format!("Protection {HOLDER}")),
        "{list}"
    );
    let pod: Value = serde_json::from_str(&ask(&["get", "web-0", "-o", "json"])).unwrap();
    assert_eq!(pod["blockers"][0]["kind"], "Protection", "{pod}");
    assert!(pod["blockers"][0]["since"].is_string(), "{pod}");
    let explained = ask(&["explain", "web-0"]);
    assert!(
        explained.contains(&format!("Held by Protection {HOLDER}, since ")),
        "{explained}"
    );
}

/// 17.4: two operations on a pod complete together.
pub(super) async fn two_operations_on_a_pod_complete_together(place: &Place<'_>) {
    place.serving(&["web-0"]).await;
    place.label("web-0", begin("a")).await;
    place.label("web-0", begin("b")).await;
    for id in ["a", "b"] {
        place.until_label("web-0", &Operate.of(id)).await;
    }
    place.label("web-0", json!({Operating.of("a"): null})).await;
    tokio::time::sleep(QUIET).await;
    let pod = place.pod("web-0").await;
    for id in ["a", "b"] {
        assert!(pod.labels.contains_key(&Operate.of(id)), "{pod:?}");
    }
    assert_eq!(pod.service_ready, Some(ConditionStatus::False));
    place
        .label("web-0", json!({UndoOperationType.of("b"): "update"}))
        .await;
    is_clean(place, "web-0").await;
    // Once more: the controller says the same of the same pod again.
    place.label("web-0", begin("a")).await;
    place.until_label("web-0", &Operate.of("a")).await;
    place.label("web-0", json!({Operating.of("a"): null})).await;
    is_clean(place, "web-0").await;
}

/// Waits until a pod serves, and nothing of its operations is left.
pub(super) async fn is_clean(place: &Place<'_>, name: &str) {
    let path = place.core(&format!("pods/{name}"));
    let is_clean = |pod: &Value| {
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        let of_operation = |key: &str| key.contains(".podopslifecycle.");
        labels.contains_key(LABEL_SERVICE_AVAILABLE) && !labels.keys().any(|key| of_operation(key))
    };
    place.world.until_object(&path, is_clean).await;
}

/// 17.6: a rule holds a pod, which serves meanwhile.
pub(super) async fn a_rule_about_labels_holds_a_pod_that_serves_until_it_has_them(
    place: &Place<'_>,
) {
    let check = json!({"requires": {"matchLabels": {"approved": "yes"}}});
    place
        .rule(
            "approval",
            json!([{"name": "approved", "labelCheck": check}]),
        )
        .await;
    place.serving(&["web-0"]).await;
    place.label("web-0", begin("a")).await;
    let path = place.core("pods/web-0");
    let annotation = detail_annotation("approval");
    let is_shown = |pod: &Value| pod["metadata"]["annotations"][&annotation].is_string();
    let shown = place.world.until_object(&path, is_shown).await;
    let detail = shown["metadata"]["annotations"][&annotation]
        .as_str()
        .unwrap();
    assert!(detail.contains("block by label check policy"), "{detail}");
    tokio::time::sleep(QUIET).await;
    let pod = place.pod("web-0").await;
    assert!(pod.labels.contains_key(&PreCheck.of("a")), "{pod:?}");
    assert!(pod.is_available() && pod.is_ready, "{pod:?}");
    place.label("web-0", json!({"approved": "yes"})).await;
    place.until_label("web-0", &Operate.of("a")).await;
    place.label("web-0", json!({Operating.of("a"): null})).await;
    is_clean(place, "web-0").await;
}

/// 17.7: half of the pods serve, always.
pub(super) async fn half_of_the_pods_serve_whatever_is_operated_on(place: &Place<'_>) {
    const NAMES: [&str; 4] = ["web-0", "web-1", "web-2", "web-3"];
    let policy = json!({"maxUnavailableValue": "50%"});
    place
        .rule("half", json!([{"name": "half", "availablePolicy": policy}]))
        .await;
    place.serving(&NAMES).await;
    let trail = place.trail();
    for name in NAMES {
        place.label(name, begin("a")).await;
    }
    for name in NAMES {
        place.until_label(name, &Operate.of("a")).await;
        tokio::time::sleep(QUIET / 4).await;
        place.label(name, json!({Operating.of("a"): null})).await;
        is_clean(place, name).await;
    }
    let mut out: BTreeMap<String, bool> = BTreeMap::new();
    for pod in trail.seen() {
        out.insert(pod.target.name.clone(), !pod.is_available());
        let n_out = out.values().filter(|is_out| **is_out).count();
        assert!(n_out <= 2, "{out:?}");
    }
}

/// 16.4: a rule is about pods of its namespace only.
pub(super) async fn a_rule_of_another_namespace_holds_nobody(place: &Place<'_>, other: &Place<'_>) {
    let check = json!({"requires": {"matchLabels": {"never": "there"}}});
    other
        .rule("never", json!([{"name": "never", "labelCheck": check}]))
        .await;
    other.serving(&["web-0"]).await;
    place.serving(&["web-0"]).await;
    other.label("web-0", begin("a")).await;
    place.label("web-0", begin("a")).await;
    place.until_label("web-0", &Operate.of("a")).await;
    assert!(
        !other
            .pod("web-0")
            .await
            .labels
            .contains_key(&Operate.of("a"))
    );
    // A deleted rule holds no pod either.
    http::delete(other.client(), &other.rules("/never"), json!({}))
        .await
        .unwrap();
    other.until_label("web-0", &Operate.of("a")).await;
    for place in [place, other] {
        place.label("web-0", json!({Operating.of("a"): null})).await;
        is_clean(place, "web-0").await;
    }
}

/// 16.2: a dry run changes nothing, and says the same.
pub(super) async fn a_dry_run_of_a_deletion_leaves_the_pod_alone(place: &Place<'_>) {
    place.serving(&["web-0"]).await;
    let before = place.pod("web-0").await;
    let path = place.core("pods/web-0?dryRun=All");
    match http::delete(place.client(), &path, json!({"dryRun": ["All"]})).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.message, denial("")),
        other => panic!("{other:?}"),
    }
    tokio::time::sleep(QUIET).await;
    assert_eq!(place.pod("web-0").await, before);
}

/// 16.10: no operation waits for a Service that does not exist.
pub(super) async fn a_service_that_is_gone_holds_no_pod_back(place: &Place<'_>) {
    let expected =
        json!({"expectedFinalizers": {format!("Service/{}/none", place.namespace): HOLDER}});
    let mut pod = place.world.pod("web-0");
    pod["metadata"]["annotations"] = json!({ANNOTATION_AVAILABLE_CONDITIONS: expected.to_string()});
    http::create(place.client(), &place.core("pods"), &pod)
        .await
        .unwrap();
    place.until_serving("web-0").await;
}

/// 16.11: a cooperation controller that died holds a pod no longer than the deadline of the pod, and an Event says so.
pub(super) async fn a_dead_cooperation_controller_holds_a_pod_until_its_deadline(
    place: &Place<'_>,
) {
    place.serving(&["web-0"]).await;
    let annotations = json!({ANNOTATION_PROTECTION_DEADLINE: "2s"});
    place
        .change(
            "web-0",
            json!({"finalizers": [HOLDER, "example.test/other"], "annotations": annotations}),
        )
        .await;
    refused(place, "web-0").await;
    let path = place.core("pods/web-0");
    let is_free = |pod: &Value| pod["metadata"]["finalizers"] == json!(["example.test/other"]);
    place.world.until_object(&path, is_free).await;
    let events = format!(
        "/apis/events.k8s.io/v1/namespaces/{}/events",
        place.namespace
    );
    let is_told = |list: &Value| {
        let mut events = list["items"].as_array().into_iter().flatten();
        events.any(|event| {
            let note = event["note"].as_str().unwrap_or_default();
            event["reason"] == REASON_PROTECTION_EXPIRED && note.contains(HOLDER)
        })
    };
    place.world.until_object(&events, is_told).await;
    place.change("web-0", json!({"finalizers": []})).await;
    place.until_gone("web-0").await;
}

/// A right of the role that nothing above needs: a rule that another client writes at the same time is read again.
pub(super) async fn a_rule_that_is_written_meanwhile_is_read_again(place: &Place<'_>) {
    let check = json!({"requires": {"matchLabels": {"approved": "yes"}}});
    place
        .rule("busy", json!([{"name": "approved", "labelCheck": check}]))
        .await;
    place.serving(&["web-0"]).await;
    for n in 0..200 {
        let begun = if n % 2 == 0 {
            begin("a")
        } else {
            json!({UndoOperationType.of("a"): "update"})
        };
        let touch = json!({"metadata": {"annotations": {"n": n.to_string()}}});
        let touching = async {
            for _ in 0..12 {
                let path = place.rules("/busy");
                http::patch(place.client(), &path, Asked::Merge, &touch)
                    .await
                    .unwrap();
                let other = json!({"metadata": {"annotations": {"n": null}}});
                http::patch(place.client(), &path, Asked::Merge, &other)
                    .await
                    .unwrap();
            }
        };
        tokio::join!(place.label("web-0", begun), touching);
        place.world.note_asked().await;
        if place.world.has_asked("get", "podtransitionrules") {
            return;
        }
    }
    panic!("no write of a rule was refused");
}
