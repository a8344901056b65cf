//! Finalizers, the grace of pods, preconditions, and deleting many.

use longshore_cluster::Cluster;
use serde_json::{Value, json};

use crate::harness::{Api, CONFIG_MAPS, PODS, bound_pod, config_map, pod, revision};

fn finalized(name: &str) -> Value {
    let mut object = config_map(name, "1");
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    object
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_one_is_removed() {
    let api = Api::new(&Cluster::in_memory());
    let path = format!("{CONFIG_MAPS}/a");
    api.make(CONFIG_MAPS, finalized("a")).await;
    let (code, marked) = api.delete(&path, Value::Null).await;
    assert_eq!(code, 200);
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let (_, again) = api.delete(&path, Value::Null).await;
    assert_eq!(
        revision(&again),
        revision(&marked),
        "deleting again changes nothing"
    );

    let add =
        json!({"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}});
    let (code, status) = api.patch("merge", &path, add).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    let (code, _) = api
        .patch(
            "merge",
            &path,
            json!({"metadata": {"finalizers": ["example.com/b"]}}),
        )
        .await;
    assert_eq!(code, 200);
    let (code, last) = api
        .patch("merge", &path, json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!((code, &last["metadata"]["name"]), (200, &json!("a")));
    assert_eq!(api.get(&path).await.0, 404);
}

#[tokio::test]
async fn propagation_is_kept_as_finalizers() {
    let api = Api::new(&Cluster::in_memory());
    for (policy, code, finalizer) in [
        ("Foreground", 200, "foregroundDeletion"),
        ("Orphan", 200, "orphan"),
    ] {
        api.make(
            CONFIG_MAPS,
            config_map(finalizer.to_lowercase().as_str(), "1"),
        )
        .await;
        let path = format!("{CONFIG_MAPS}/{}", finalizer.to_lowercase());
        let (found, marked) = api
            .delete(&path, json!({"propagationPolicy": policy}))
            .await;
        assert_eq!(
            (found, &marked["metadata"]["finalizers"]),
            (code, &json!([finalizer]))
        );
        let (_, gone) = api
            .delete(&path, json!({"propagationPolicy": "Background"}))
            .await;
        assert_eq!(gone["status"], "Success");
    }
}

#[tokio::test]
async fn preconditions_protect_from_deleting_another_object() {
    let api = Api::new(&Cluster::in_memory());
    let made = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let path = format!("{CONFIG_MAPS}/a");
    for wrong in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let (code, status) = api.delete(&path, json!({"preconditions": wrong})).await;
        assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    }
    let right = json!({"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]});
    let (code, status) = api.delete(&path, json!({"preconditions": right})).await;
    assert_eq!(
        (code, &status["details"]["uid"]),
        (200, &made["metadata"]["uid"])
    );
}

#[tokio::test]
async fn pods_on_a_node_end_gracefully_and_others_at_once() {
    let api = Api::new(&Cluster::in_memory());
    api.make(PODS, pod("unbound")).await;
    let (_, gone) = api.delete(&format!("{PODS}/unbound"), Value::Null).await;
    assert_eq!(gone["kind"], "Pod");
    assert_eq!(api.get(&format!("{PODS}/unbound")).await.0, 404);

    let path = format!("{PODS}/bound");
    api.make(PODS, bound_pod("bound")).await;
    let grace = |answer: &Value| answer["metadata"]["deletionGracePeriodSeconds"].clone();
    let (_, marked) = api.delete(&path, Value::Null).await;
    assert_eq!(
        (grace(&marked), &marked["metadata"]["generation"]),
        (json!(30), &json!(2))
    );
    let (_, longer) = api.delete(&path, json!({"gracePeriodSeconds": 60})).await;
    assert_eq!(
        (grace(&longer), revision(&longer)),
        (json!(30), revision(&marked))
    );
    let (_, shorter) = api
        .delete(&format!("{path}?gracePeriodSeconds=5"), Value::Null)
        .await;
    assert_eq!(grace(&shorter), json!(5));
    let (code, _) = api
        .delete(
            &path,
            json!({"gracePeriodSeconds": 0, "preconditions": {"uid": marked["metadata"]["uid"]}}),
        )
        .await;
    assert_eq!(code, 200);
    assert_eq!(api.get(&path).await.0, 404);
}

#[tokio::test]
async fn pods_that_are_over_or_deleted_by_force_need_no_grace() {
    let api = Api::new(&Cluster::in_memory());
    for (name, phase, options) in [
        ("done", "Succeeded", Value::Null),
        ("forced", "Running", json!({"gracePeriodSeconds": 0})),
    ] {
        let path = format!("{PODS}/{name}");
        api.make(PODS, bound_pod(name)).await;
        api.patch(
            "merge",
            &format!("{path}/status"),
            json!({"status": {"phase": phase}}),
        )
        .await;
        assert_eq!(api.delete(&path, options).await.0, 200);
        assert_eq!(api.get(&path).await.0, 404, "{name}");
    }
}

#[tokio::test]
async fn whoever_marked_a_pod_is_not_told_that_it_is_missing() {
    let api = Api::new(&Cluster::in_memory());
    for n in 0..20 {
        let name = format!("p{n}");
        let path = format!("{PODS}/{name}");
        api.make(PODS, bound_pod(&name)).await;
        let now = json!({"gracePeriodSeconds": 0});
        let node = async {
            loop {
                let (code, pod) = api.get(&path).await;
                if code == 404 {
                    return;
                }
                if pod["metadata"]["deletionTimestamp"].is_string() {
                    api.delete(&path, now.clone()).await;
                }
                tokio::task::yield_now().await;
            }
        };
        let ((), (code, answer)) = tokio::join!(node, api.delete(&path, now.clone()));
        assert_eq!((code, &answer["metadata"]["name"]), (200, &json!(name)));
    }
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let api = Api::new(&Cluster::in_memory());
    for (name, tier) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut object = config_map(name, "1");
        object["metadata"]["labels"] = json!({"tier": tier});
        api.make(CONFIG_MAPS, object).await;
    }
    let (code, deleted) = api
        .delete(
            &format!("{CONFIG_MAPS}?labelSelector=tier%3Dx"),
            Value::Null,
        )
        .await;
    let names: Vec<&Value> = deleted["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["metadata"]["name"])
        .collect();
    assert_eq!((code, names), (200, vec![&json!("a"), &json!("c")]));
    let (_, left) = api.get(CONFIG_MAPS).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn evicted_pods_are_deleted() {
    let api = Api::new(&Cluster::in_memory());
    api.make(PODS, bound_pod("a")).await;
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": {"gracePeriodSeconds": 7},
    });
    let (code, status) = api.post(&format!("{PODS}/a/eviction"), eviction).await;
    assert_eq!((code, &status["status"]), (201, &json!("Success")));
    let (_, pod) = api.get(&format!("{PODS}/a")).await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 7);
}

#[tokio::test]
async fn namespaces_that_every_cluster_needs_stay() {
    let api = Api::new(&Cluster::in_memory());
    let (code, status) = api.delete("/api/v1/namespaces/default", Value::Null).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
}
