//! Pods that take part no more.

use super::*;

#[test]
fn a_pod_that_takes_part_no_more_is_let_go_with_the_same_request() {
    let with = |control: &str, finalizers: Value| {
        pod(|pod| {
            pod["metadata"]["labels"][LABEL_CONTROL] = json!(control);
            pod["metadata"]["finalizers"] = finalizers;
            let gate = json!({"type": CONDITION_SERVICE_READY, "status": "True"});
            pod["status"]["conditions"] = json!([gate]);
        })
    };
    let all = || json!(["other", FINALIZER_SERVICES]);
    for (control, finalizers, expected) in [
        ("false", all(), Some(json!(["other"]))),
        ("false", json!(["other"]), None),
        ("true", all(), None),
    ] {
        let request = Request {
            operation: Operation::Update,
            object: with(control, finalizers),
            old_object: with("true", all()),
            ..deletion(Value::Null)
        };
        let changed = mutate(&request, NOW).unwrap();
        let finalizers = changed.map(|object| object["metadata"]["finalizers"].clone());
        assert_eq!(finalizers, expected, "{control}");
    }
}

#[test]
fn a_pod_that_takes_part_no_more_keeps_nothing_of_ours_but_a_mark_where_its_gate_is_closed() {
    let operated_on = |control: Value, gate: Option<&str>| {
        pod(|pod| {
            let labels = &mut pod["metadata"]["labels"];
            *labels = json!({"app": "web", LABEL_CONTROL: control});
            labels[LABEL_TO_DELETE] = json!("1");
            labels[LABEL_PREPARING_TO_DELETE] = json!("1");
            labels[operation_permission("delete")] = json!("1");
            for label in OperationLabel::ALL {
                labels[label.of("pod-delete")] = json!("1");
            }
            labels
                .as_object_mut()
                .unwrap()
                .retain(|_, value| !value.is_null());
            let shown = detail_annotation("ptr");
            pod["metadata"]["annotations"] = json!({shown: "{}", "other": "1"});
            pod["spec"]["readinessGates"] = json!([{"conditionType": CONDITION_SERVICE_READY}]);
            let gate =
                gate.map(|status| json!({"type": CONDITION_SERVICE_READY, "status": status}));
            pod["status"]["conditions"] = gate.into_iter().collect();
        })
    };
    let marked = |control: Value, gate| {
        let request = Request {
            operation: Operation::Update,
            object: operated_on(control, gate),
            old_object: operated_on(json!("true"), gate),
            ..deletion(Value::Null)
        };
        let changed = mutate(&request, NOW).unwrap().unwrap();
        let metadata = &changed["metadata"];
        assert_eq!(metadata["annotations"], json!({"other": "1"}));
        metadata["labels"].clone()
    };
    let mark = json!(stamp(NOW));
    let closed = json!({"app": "web", LABEL_RELEASED: mark});
    for gate in [Some("False"), Some("Unknown"), None] {
        assert_eq!(marked(Value::Null, gate), closed, "{gate:?}");
    }
    let kept = json!({"app": "web", LABEL_CONTROL: "no", LABEL_RELEASED: mark});
    assert_eq!(marked(json!("no"), Some("False")), kept);
    assert_eq!(marked(Value::Null, Some("True")), json!({"app": "web"}));
    // It takes part again.
    let mut again = operated_on(json!("true"), None);
    again["metadata"]["labels"] = json!({LABEL_CONTROL: "true", LABEL_RELEASED: "1"});
    let request = Request {
        operation: Operation::Update,
        object: again.clone(),
        old_object: again,
        ..deletion(Value::Null)
    };
    let changed = mutate(&request, NOW).unwrap().unwrap();
    assert_eq!(
        changed["metadata"]["labels"],
        json!({LABEL_CONTROL: "true"})
    );
}
