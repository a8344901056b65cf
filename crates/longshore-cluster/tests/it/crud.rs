//! Create, read, update, delete.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api as KubeApi, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use longshore_cluster::Cluster;
use serde_json::json;

use crate::harness::{Api, CONFIG_MAPS, PODS, config_map, pod, revision};

#[tokio::test]
async fn a_kube_client_works_as_with_any_cluster() {
    let client = Cluster::in_memory().client();
    let maps: KubeApi<ConfigMap> = KubeApi::default_namespaced(client.clone());
    let made: ConfigMap = serde_json::from_value(config_map("a", "1")).unwrap();
    let created = maps.create(&PostParams::default(), &made).await.unwrap();
    assert!(created.metadata.uid.is_some());
    assert_eq!(maps.get("a").await.unwrap(), created);

    let patch = Patch::Merge(json!({"data": {"k": "2"}}));
    let patched = maps
        .patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap()["k"], "2");
    let stale = maps
        .replace("a", &PostParams::default(), &created)
        .await
        .unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.is_conflict()));

    assert_eq!(
        maps.list(&ListParams::default()).await.unwrap().items.len(),
        1
    );
    assert!(
        maps.delete("a", &DeleteParams::default())
            .await
            .unwrap()
            .is_right()
    );
    assert!(maps.get_opt("a").await.unwrap().is_none());
    assert_eq!(client.apiserver_version().await.unwrap().minor, "34");
}

#[tokio::test]
async fn pods_have_a_status_of_their_own() {
    let client = Cluster::in_memory().client();
    let pods: KubeApi<Pod> = KubeApi::default_namespaced(client);
    let made: Pod = serde_json::from_value(pod("a")).unwrap();
    let created = pods.create(&PostParams::default(), &made).await.unwrap();
    assert_eq!(created.status.unwrap().phase.as_deref(), Some("Pending"));
    let patch = Patch::Strategic(json!({"status": {"phase": "Running"}}));
    let running = pods
        .patch_status("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(running.status.unwrap().phase.as_deref(), Some("Running"));
}

#[tokio::test]
async fn the_server_sets_identity_and_ignores_what_the_client_says_about_it() {
    let api = Api::new(&Cluster::in_memory());
    let mut object = config_map("a", "1");
    object["metadata"]["uid"] = "mine".into();
    object["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    object["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
    let created = api.make(CONFIG_MAPS, object).await;
    assert_ne!(created["metadata"]["uid"], "mine");
    assert_ne!(
        created["metadata"]["creationTimestamp"],
        "2001-01-01T00:00:00Z"
    );
    assert_eq!(created["metadata"].get("deletionTimestamp"), None);
    assert_eq!(created["kind"], "ConfigMap");

    let (code, status) = api.post(CONFIG_MAPS, config_map("a", "1")).await;
    assert_eq!((code, &status["reason"]), (409, &json!("AlreadyExists")));
    assert_eq!(status["message"], "configmaps \"a\" already exists");
}

#[tokio::test]
async fn writes_that_change_nothing_make_no_revision() {
    let api = Api::new(&Cluster::in_memory());
    let created = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, same) = api.put(&path, config_map("a", "1")).await;
    assert_eq!((code, revision(&same)), (200, revision(&created)));
    let (_, changed) = api.put(&path, config_map("a", "2")).await;
    assert_eq!(revision(&changed), revision(&created) + 1);
}

#[tokio::test]
async fn refusals_carry_the_codes_and_reasons_of_kubernetes() {
    let api = Api::new(&Cluster::in_memory());
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let a = format!("{CONFIG_MAPS}/a");
    let with = |pointer: &str, value: &str| {
        let mut object = config_map("a", "1");
        object["metadata"][pointer] = value.into();
        object
    };
    let post = |object| api.post(CONFIG_MAPS, object);
    let put = |object| api.put(&a, object);
    for (what, (code, status), expected_code, reason) in [
        (
            "revision on create",
            post(with("resourceVersion", "1")).await,
            500,
            "",
        ),
        (
            "bad name",
            post(config_map("Bad", "1")).await,
            422,
            "Invalid",
        ),
        (
            "no name",
            post(json!({"metadata": {}})).await,
            422,
            "Invalid",
        ),
        (
            "other namespace",
            post(with("namespace", "other")).await,
            400,
            "BadRequest",
        ),
        (
            "other name",
            put(config_map("b", "1")).await,
            400,
            "BadRequest",
        ),
        ("other uid", put(with("uid", "x")).await, 409, "Conflict"),
        (
            "stale",
            put(with("resourceVersion", "1")).await,
            409,
            "Conflict",
        ),
        (
            "wrong kind",
            post(json!({"kind": "Pod"})).await,
            400,
            "BadRequest",
        ),
        (
            "missing",
            api.get(&format!("{CONFIG_MAPS}/b")).await,
            404,
            "NotFound",
        ),
        (
            "missing namespace",
            api.post("/api/v1/namespaces/x/configmaps", config_map("a", "1"))
                .await,
            404,
            "NotFound",
        ),
        (
            "no namespace",
            api.post("/api/v1/configmaps", config_map("a", "1")).await,
            405,
            "MethodNotAllowed",
        ),
        (
            "missing put",
            api.put(&format!("{CONFIG_MAPS}/b"), config_map("b", "1"))
                .await,
            404,
            "NotFound",
        ),
        (
            "media type",
            api.patch("text/plain", &a, json!({})).await,
            415,
            "UnsupportedMediaType",
        ),
        (
            "field",
            api.get(&format!("{CONFIG_MAPS}?fieldSelector=data.k=1"))
                .await,
            400,
            "BadRequest",
        ),
        (
            "revision",
            api.get(&format!("{CONFIG_MAPS}?resourceVersion=x")).await,
            400,
            "BadRequest",
        ),
        (
            "resource",
            api.get("/api/v1/nothings").await,
            404,
            "NotFound",
        ),
    ] {
        assert_eq!(
            (code, status["reason"].as_str().unwrap_or("")),
            (expected_code, reason),
            "{what}: {status}"
        );
        assert_eq!(status["kind"], "Status", "{what}");
    }
    let (code, text) = api.get("/apis/nothing.example.com/v1/things").await;
    assert_eq!((code, text), (404, json!("404 page not found\n")));
}

#[tokio::test]
async fn generated_names_are_unique() {
    let api = Api::new(&Cluster::in_memory());
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let created = api.make(PODS, {
            let mut pod = pod("");
            pod["metadata"] = json!({"generateName": "job-"});
            pod
        });
        names.insert(
            created.await["metadata"]["name"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    assert_eq!(names.len(), 50);
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("job-") && name.len() == 9),
        "{names:?}"
    );
}

#[tokio::test]
async fn dry_runs_store_nothing() {
    let api = Api::new(&Cluster::in_memory());
    let (code, _) = api
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("a", "1"))
        .await;
    assert_eq!(code, 201);
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/a")).await.0, 404);
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let path = format!("{CONFIG_MAPS}/a?dryRun=All");
    assert_eq!(
        api.put(&path, config_map("a", "2")).await.1["data"]["k"],
        "2"
    );
    assert_eq!(api.delete(&path, json!(null)).await.0, 200);
    assert_eq!(
        api.get(&format!("{CONFIG_MAPS}/a")).await.1["data"]["k"],
        "1"
    );
}
