//! The patch languages over the wire, preconditions, generations, status and scale.

use longshore_cluster::Cluster;
use serde_json::{Value, json};

use crate::harness::{Api, CONFIG_MAPS, PODS, config_map, pod, revision};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[tokio::test]
async fn every_language_changes_the_object() {
    let api = Api::new(&Cluster::in_memory());
    let path = format!("{CONFIG_MAPS}/a");
    api.make(CONFIG_MAPS, config_map("a", "0")).await;
    for (language, patch, expected) in [
        (
            "json",
            json!([{"op": "test", "path": "/data/k", "value": "0"}, {"op": "add", "path": "/data/l", "value": "1"}]),
            json!({"k": "0", "l": "1"}),
        ),
        (
            "merge",
            json!({"data": {"l": null, "m": "2"}}),
            json!({"k": "0", "m": "2"}),
        ),
        (
            "strategic",
            json!({"data": {"$patch": "replace", "n": "3"}}),
            json!({"n": "3"}),
        ),
    ] {
        let (code, patched) = api.patch(language, &path, patch).await;
        assert_eq!((code, &patched["data"]), (200, &expected), "{language}");
    }
}

#[tokio::test]
async fn patches_that_cannot_be_applied_are_refused() {
    let api = Api::new(&Cluster::in_memory());
    let made = api.make(CONFIG_MAPS, config_map("a", "0")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let stale = json!({"metadata": {"resourceVersion": (revision(&made) - 1).to_string()}, "data": {"k": "1"}});
    for (what, language, patch, code) in [
        (
            "failed test",
            "json",
            json!([{"op": "test", "path": "/data/k", "value": "9"}]),
            422,
        ),
        (
            "missing path",
            "json",
            json!([{"op": "remove", "path": "/data/x"}]),
            422,
        ),
        ("no patch", "json", json!({"data": 1}), 400),
        ("no object", "merge", json!([]), 400),
        ("stale", "merge", stale, 409),
        ("other uid", "merge", json!({"metadata": {"uid": "x"}}), 409),
        (
            "other name",
            "merge",
            json!({"metadata": {"name": "b"}}),
            400,
        ),
    ] {
        assert_eq!(api.patch(language, &path, patch).await.0, code, "{what}");
    }
    assert_eq!(
        api.patch("merge", &format!("{CONFIG_MAPS}/b"), json!({}))
            .await
            .0,
        404
    );
    assert_eq!(api.get(&path).await.1, made);
}

/// Each copy contains the one before: 24 of them ask for terabytes.
#[tokio::test]
async fn a_patch_copies_and_operates_so_much_and_no_more() {
    let api = Api::new(&Cluster::in_memory());
    let made = api
        .make(CONFIG_MAPS, config_map("a", &"x".repeat(100_000)))
        .await;
    let path = format!("{CONFIG_MAPS}/a");
    let copies =
        (0..24).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/{n}")}));
    let tests = vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 10_001];
    for (patch, code, message) in [
        (Value::from_iter(copies), 422, "exceeding the limit 3145728"),
        (
            Value::from(tests),
            413,
            "The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
    ] {
        let (found, answer) = api.patch("json", &path, patch).await;
        assert_eq!(found, code, "{answer}");
        assert!(answer.to_string().contains(message), "{answer}");
    }
    assert_eq!(api.get(&path).await.1, made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_patches_all_count() {
    let api = Api::new(&Cluster::in_memory());
    api.make(CONFIG_MAPS, config_map("a", "0")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let patches = (0..300).map(|index| {
        let (api, path) = (api.clone(), path.clone());
        tokio::spawn(async move {
            let patch = json!({"data": {format!("k{index}"): "1"}});
            assert_eq!(api.patch("merge", &path, patch).await.0, 200);
        })
    });
    futures::future::try_join_all(patches).await.unwrap();
    let (_, object) = api.get(&path).await;
    assert_eq!(object["data"].as_object().unwrap().len(), 301);
}

#[tokio::test]
async fn generation_counts_changes_of_the_specification_only() {
    let api = Api::new(&Cluster::in_memory());
    let path = format!("{DEPLOYMENTS}/a");
    api.make(DEPLOYMENTS, deployment("a")).await;
    for (what, path, patch, generation) in [
        (
            "label",
            path.clone(),
            json!({"metadata": {"labels": {"x": "y"}}}),
            1,
        ),
        (
            "status",
            format!("{path}/status"),
            json!({"status": {"replicas": 1}}),
            1,
        ),
        (
            "status through main",
            path.clone(),
            json!({"status": {"replicas": 5}}),
            1,
        ),
        ("spec", path.clone(), json!({"spec": {"replicas": 3}}), 2),
        (
            "scale",
            format!("{path}/scale"),
            json!({"spec": {"replicas": 4}}),
            3,
        ),
    ] {
        let (code, _) = api.patch("merge", &path, patch).await;
        let (_, object) = api.get(&format!("{DEPLOYMENTS}/a")).await;
        assert_eq!(
            (code, &object["metadata"]["generation"]),
            (200, &json!(generation)),
            "{what}"
        );
    }
    let (_, object) = api.get(&path).await;
    assert_eq!(
        (&object["spec"]["replicas"], &object["status"]["replicas"]),
        (&json!(4), &json!(1))
    );
    let (_, scale) = api.get(&format!("{path}/scale")).await;
    assert_eq!(
        (&scale["kind"], &scale["spec"]["replicas"]),
        (&json!("Scale"), &json!(4))
    );
    assert_eq!(scale["status"], json!({"replicas": 1, "selector": "app=x"}));
}

#[tokio::test]
async fn status_writes_let_the_metadata_through_that_the_resource_allows() {
    let api = Api::new(&Cluster::in_memory());
    let change = json!({
        "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["example.com/f"]},
        "spec": {"replicas": 9, "activeDeadlineSeconds": 9}, "status": {"message": "m", "replicas": 1},
    });
    api.make(PODS, pod("a")).await;
    api.make(DEPLOYMENTS, deployment("a")).await;
    let (_, pod) = api
        .patch("merge", &format!("{PODS}/a/status"), change.clone())
        .await;
    let (_, deployment) = api
        .patch("merge", &format!("{DEPLOYMENTS}/a/status"), change)
        .await;
    assert_eq!(
        (
            &pod["status"]["message"],
            &pod["spec"].get("activeDeadlineSeconds")
        ),
        (&json!("m"), &None)
    );
    assert_eq!(
        (
            &deployment["status"]["replicas"],
            &deployment["spec"]["replicas"]
        ),
        (&json!(1), &json!(2))
    );
    assert_eq!(
        (
            &pod["metadata"]["labels"],
            deployment["metadata"].get("labels")
        ),
        (&json!({"l": "1"}), None)
    );
    for object in [pod, deployment] {
        assert_eq!(object["metadata"]["annotations"], json!({"a": "1"}));
        assert_eq!(object["metadata"]["finalizers"], json!(["example.com/f"]));
    }
}

#[tokio::test]
async fn pods_hardly_change() {
    let api = Api::new(&Cluster::in_memory());
    let path = format!("{PODS}/a");
    api.make(PODS, pod("a")).await;
    for (what, patch, code) in [
        (
            "image",
            json!({"spec": {"containers": [{"name": "main", "image": "j"}]}}),
            200,
        ),
        (
            "deadline",
            json!({"spec": {"activeDeadlineSeconds": 5}}),
            200,
        ),
        (
            "toleration",
            json!({"metadata": {"labels": {"a": "b"}}}),
            200,
        ),
        (
            "command",
            json!({"spec": {"containers": [{"name": "main", "command": ["x"]}]}}),
            422,
        ),
        ("node", json!({"spec": {"nodeName": "n"}}), 422),
        (
            "gate",
            json!({"spec": {"schedulingGates": [{"name": "g"}]}}),
            422,
        ),
    ] {
        let (found, answer) = api.patch("strategic", &path, patch).await;
        assert_eq!(found, code, "{what}: {answer}");
    }
    assert_eq!(api.get(&path).await.1["metadata"]["generation"], 3);
}

#[tokio::test]
async fn immutable_data_stays() {
    let api = Api::new(&Cluster::in_memory());
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "foo"}, "immutable": true});
    let made = api.make(secrets, secret).await;
    assert_eq!(
        (&made["type"], &made["data"]["a"]),
        (&json!("Opaque"), &json!("Zm9v"))
    );
    let path = format!("{secrets}/s");
    assert_eq!(
        api.patch("merge", &path, json!({"data": {"a": "YmFy"}}))
            .await
            .0,
        422
    );
    assert_eq!(
        api.patch("merge", &path, json!({"metadata": {"labels": {"a": "b"}}}))
            .await
            .0,
        200
    );
}
