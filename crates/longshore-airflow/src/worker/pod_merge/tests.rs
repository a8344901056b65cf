use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::worker::names::label_value;

/// The pod that the executor makes of a task instance before any merge.
fn dynamic_pod(inputs: &Value, image: &Value) -> Value {
    let text = |key: &str| inputs[key].as_str().unwrap().to_owned();
    let mut container = json!({
        "name": "base",
        "args": ["python", "-m", "airflow.sdk.execution_time.execute_workload", "--json-string", "{}"],
        "env": [{"name": "AIRFLOW_IS_K8S_EXECUTOR_POD", "value": "True"}],
    });
    if !image.is_null() {
        container["image"] = image.clone();
    }
    json!({
        "metadata": {
            "name": text("pod_id"),
            "namespace": text("namespace"),
            "annotations": {
                "dag_id": text("dag_id"),
                "task_id": text("task_id"),
                "run_id": text("run_id"),
                "try_number": inputs["try_number"].to_string(),
                "map_index": inputs["map_index"].to_string(),
            },
            "labels": {
                "dag_id": label_value(&text("dag_id")),
                "task_id": label_value(&text("task_id")),
                "run_id": label_value(&text("run_id")),
                "try_number": inputs["try_number"].to_string(),
                "map_index": inputs["map_index"].to_string(),
                "kubernetes_executor": "True",
                "airflow_version": "3.3.2",
                "airflow-worker": text("scheduler_job_id"),
            },
        },
        "spec": {"containers": [container]},
    })
}

#[test]
fn pods_are_merged_as_airflow_merges_them() {
    let vectors: Value = serde_json::from_str(include_str!(
        "../../../testdata/executor/construct-pod.json"
    ))
    .unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 22);
    for case in cases {
        let over = &case["pod_override"];
        let image = over
            .pointer("/spec/containers/0/image")
            .unwrap_or(&case["kube_image"]);
        let dynamic = dynamic_pod(&vectors["inputs"], image);
        let merged = merge_pods(&merge_pods(&vectors["template"], &dynamic), over);
        assert_eq!(
            merged, case["expected"],
            "case {} with image {}",
            case["case"], case["kube_image"]
        );
    }
}

#[test]
fn only_truthy_values_win() {
    let base = json!({"spec": {
        "hostNetwork": true, "priority": 7, "hostname": "a", "tolerations": [{"key": "a"}],
        "nodeSelector": {"a": "b"}, "securityContext": {"runAsUser": 1}, "dnsPolicy": "None",
    }});
    let client = json!({"spec": {
        "hostNetwork": false, "priority": 0, "hostname": "", "tolerations": [],
        "nodeSelector": {}, "securityContext": {}, "dnsPolicy": null,
    }});
    let mut expected = base.clone();
    // An object with a type of its own is truthy in Python even if nothing is set in it.
    expected["spec"]["securityContext"] = json!({});
    assert_eq!(merge_pods(&base, &client), expected);
}

#[test]
fn a_falsy_client_value_is_kept_where_the_base_has_none() {
    let client = json!({"spec": {"automountServiceAccountToken": false, "volumes": []}});
    assert_eq!(merge_pods(&json!({}), &client), client);
    assert_eq!(merge_pods(&Value::Null, &client), client);
    assert_eq!(merge_pods(&client, &Value::Null), client);
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
    ];
    let field = prop_oneof![
        Just("metadata".to_owned()),
        Just("labels".to_owned()),
        Just("spec".to_owned()),
        Just("containers".to_owned()),
        Just("env".to_owned()),
        Just("name".to_owned()),
        "[a-z]{1,2}",
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field.clone(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn fields_that_nobody_knows_survive(
        mut base in json_value(), mut client in json_value(), unknown in json_value(),
    ) {
        // One field only in the base, one only in the client, at every level that is merged.
        for (pod, field) in [(&mut base, "onlyBase"), (&mut client, "onlyClient")] {
            *pod = merge_pods(pod, &json!({
                "metadata": {}, "spec": {"containers": [{"name": "base"}]},
            }));
            if !pod.is_object() {
                *pod = json!({});
            }
            pod[field] = unknown.clone();
            pod["metadata"] = json!({field: unknown});
            pod["spec"] = json!({field: unknown, "containers": [{"name": "base", field: unknown}]});
        }
        let merged = merge_pods(&base, &client);
        for field in ["onlyBase", "onlyClient"] {
            for place in ["", "/metadata", "/spec", "/spec/containers/0"] {
                prop_assert_eq!(merged.pointer(&format!("{place}/{field}")), Some(&unknown));
            }
        }
    }

    #[test]
    fn an_empty_pod_changes_nothing(pod in json_value()) {
        prop_assert_eq!(merge_pods(&pod, &json!({})), if pod.is_object() { pod } else { json!({}) });
    }

    #[test]
    fn merging_never_panics(base in json_value(), client in json_value()) {
        merge_pods(&base, &client);
    }
}
