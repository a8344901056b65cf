//! Lists: selectors, pages, revisions, forms.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use longshore_cluster::Cluster;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::harness::{Api, CONFIG_MAPS, PODS, bound_pod, config_map, pod, revision};

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn pages_show_the_state_of_the_first_one() {
    let api = Api::new(&Cluster::in_memory());
    for name in ["a", "b", "c", "d", "e"] {
        api.make(CONFIG_MAPS, config_map(name, "1")).await;
    }
    let (_, first) = api.get(&format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    api.delete(&format!("{CONFIG_MAPS}/c"), Value::Null).await;
    api.make(CONFIG_MAPS, config_map("bb", "1")).await;
    api.put(&format!("{CONFIG_MAPS}/d"), config_map("d", "2"))
        .await;

    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = api
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
        .await;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["items"][1]["data"]["k"], "1");
    assert_eq!(revision(&second), revision(&first));
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, third) = api
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
        .await;
    assert_eq!(
        (names(&third), third["metadata"].get("continue")),
        (vec!["e".to_owned()], None)
    );
}

#[tokio::test]
async fn pages_of_a_compacted_state_offer_to_go_on_inconsistently() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    for name in ["a", "b", "c"] {
        api.make(CONFIG_MAPS, config_map(name, "1")).await;
    }
    let (_, first) = api.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    cluster.expire_watches();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (code, expired) = api
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = api.get(&format!("{CONFIG_MAPS}?continue={token}")).await;
    assert_eq!(
        (code, names(&rest)),
        (200, vec!["b".to_owned(), "c".to_owned()])
    );
}

#[tokio::test]
async fn exact_lists_show_the_past() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    let a = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    api.make(CONFIG_MAPS, config_map("b", "1")).await;
    api.delete(&format!("{CONFIG_MAPS}/a"), Value::Null).await;
    let exact = |n: u64| format!("{CONFIG_MAPS}?resourceVersion={n}&resourceVersionMatch=Exact");
    let (_, past) = api.get(&exact(revision(&a))).await;
    assert_eq!(
        (names(&past), revision(&past)),
        (vec!["a".to_owned()], revision(&a))
    );
    let not_older = exact(revision(&a)).replace("Exact", "NotOlderThan");
    assert_eq!(names(&api.get(&not_older).await.1), ["b"]);
    cluster.expire_watches();
    assert_eq!(api.get(&exact(revision(&a))).await.0, 410);
}

#[tokio::test]
async fn list_options_that_contradict_each_other_are_refused() {
    let api = Api::new(&Cluster::in_memory());
    for (options, code) in [
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422),
        ("resourceVersionMatch=Newest&resourceVersion=1", 422),
        ("continue=zz", 400),
        ("labelSelector=a%20b", 400),
        ("limit=x", 400),
    ] {
        let (found, status) = api.get(&format!("{CONFIG_MAPS}?{options}")).await;
        assert_eq!(
            (found, &status["kind"]),
            (code, &json!("Status")),
            "{options}: {status}"
        );
    }
}

#[tokio::test]
async fn pods_are_selected_by_their_fields() {
    let api = Api::new(&Cluster::in_memory());
    api.make(PODS, pod("free")).await;
    api.make(PODS, bound_pod("bound")).await;
    api.patch(
        "merge",
        &format!("{PODS}/bound/status"),
        json!({"status": {"phase": "Running"}}),
    )
    .await;
    for (selector, expected) in [
        ("spec.nodeName=n1", vec!["bound"]),
        ("spec.nodeName=", vec!["free"]),
        ("status.phase!=Running", vec!["free"]),
        (
            "spec.restartPolicy==Always,metadata.namespace=default",
            vec!["bound", "free"],
        ),
        ("metadata.name=free", vec!["free"]),
        ("spec.hostNetwork=true", vec![]),
    ] {
        let selector = selector.replace('=', "%3D").replace(',', "%2C");
        let (_, list) = api
            .get(&format!("/api/v1/pods?fieldSelector={selector}"))
            .await;
        assert_eq!(names(&list), expected, "{selector}");
    }
}

#[tokio::test]
async fn lists_stay_inside_their_namespace() {
    let api = Api::new(&Cluster::in_memory());
    for namespace in ["default-x", "defaul"] {
        api.make(
            "/api/v1/namespaces",
            json!({"metadata": {"name": namespace}}),
        )
        .await;
        api.make(
            &format!("/api/v1/namespaces/{namespace}/configmaps"),
            config_map(namespace, "1"),
        )
        .await;
    }
    api.make(CONFIG_MAPS, config_map("mine", "1")).await;
    assert_eq!(names(&api.get(CONFIG_MAPS).await.1), ["mine"]);
    assert_eq!(names(&api.get("/api/v1/configmaps").await.1).len(), 3);
    assert_eq!(
        api.get("/api/v1/namespaces/nowhere/configmaps").await.1["items"],
        json!([])
    );
}

#[tokio::test]
async fn items_of_lists_do_not_repeat_their_type() {
    let api = Api::new(&Cluster::in_memory());
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let (_, list) = api.get(CONFIG_MAPS).await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("ConfigMapList"), &json!("v1"))
    );
    assert_eq!(
        (list["items"][0].get("kind"), &list["items"][0]["data"]["k"]),
        (None, &json!("1"))
    );
}

#[tokio::test]
async fn clients_can_ask_for_metadata_only() {
    let cluster = Cluster::in_memory();
    Api::new(&cluster)
        .make(CONFIG_MAPS, config_map("a", "1"))
        .await;
    let ask = |accept: &'static str| {
        let request = Request::builder().uri(CONFIG_MAPS).header("accept", accept);
        cluster
            .service()
            .oneshot(request.body(Full::new(Bytes::new())).unwrap())
    };
    let response = ask("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        .await
        .unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(
        (names(&list), list["items"][0].get("data")),
        (vec!["a".to_owned()], None)
    );
    for (accept, code) in [("text/html", 406), ("text/html, application/json", 200)] {
        assert_eq!(ask(accept).await.unwrap().status(), code, "{accept}");
    }
}
