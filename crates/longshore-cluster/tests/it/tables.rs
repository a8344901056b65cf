//! Tables over HTTP, field validation, reviews.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use longshore_cluster::Cluster;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::harness::{Api, CONFIG_MAPS, PODS, config_map, pod};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn table(cluster: &Cluster, path: &str) -> Value {
    let request = Request::get(path)
        .header("accept", TABLE)
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = cluster.service().oneshot(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

fn column_names(table: &Value) -> Vec<&str> {
    let columns = table["columnDefinitions"].as_array().unwrap();
    columns
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn lists_and_objects_are_tables_for_those_who_ask() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    for name in ["a", "b", "c"] {
        api.make(CONFIG_MAPS, config_map(name, "v")).await;
    }
    let list = table(&cluster, &format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(column_names(&list), ["Name", "Data", "Age"]);
    assert_eq!(list["rows"].as_array().unwrap().len(), 2);
    assert_eq!(list["rows"][0]["cells"][1], 1);
    assert_eq!(list["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert!(list["metadata"]["continue"].is_string());

    let one = table(&cluster, &format!("{CONFIG_MAPS}/b")).await;
    assert_eq!(one["rows"][0]["cells"][0], "b");
    let whole = table(&cluster, &format!("{CONFIG_MAPS}/b?includeObject=Object")).await;
    assert_eq!(whole["rows"][0]["object"]["data"]["k"], "v");
    let none = table(&cluster, &format!("{CONFIG_MAPS}/b?includeObject=None")).await;
    assert_eq!(none["rows"][0]["object"], Value::Null);
}

#[tokio::test]
async fn a_watch_of_tables_names_its_columns_once() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    api.make(PODS, pod("a")).await;
    api.make(PODS, pod("b")).await;
    let request = Request::get(format!("{PODS}?watch=1&timeoutSeconds=5"))
        .header("accept", TABLE)
        .body(Full::new(Bytes::new()))
        .unwrap();
    let mut body = cluster
        .service()
        .oneshot(request)
        .await
        .unwrap()
        .into_body();
    let mut events: Vec<Value> = Vec::new();
    while events.len() < 2 {
        let line = body.frame().await.unwrap().unwrap().into_data().unwrap();
        events.push(serde_json::from_slice(&line).unwrap());
    }
    assert_eq!(
        column_names(&events[0]["object"])[..3],
        ["Name", "Ready", "Status"]
    );
    assert!(events[1]["object"].get("columnDefinitions").is_none());
    assert_eq!(events[1]["object"]["rows"][0]["cells"][2], "Pending");
}

#[tokio::test]
async fn unknown_fields_are_refused_warned_of_or_ignored() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    let mut odd = pod("a");
    odd["spec"]["foo"] = 1.into();
    let send = |option: &str| {
        let (api, body) = (api.clone(), odd.to_string());
        let path = format!("{PODS}?dryRun=All&{option}");
        async move {
            let answer = api
                .send(Method::POST, &path, "application/json", body.into())
                .await;
            let warning = answer
                .headers()
                .get("warning")
                .map(|value| value.to_str().unwrap().to_owned());
            (answer.status().as_u16(), warning)
        }
    };
    assert_eq!(send("fieldValidation=Strict").await, (400, None));
    let warning = Some(r#"299 - "unknown field \"spec.foo\"""#.to_owned());
    assert_eq!(send("fieldValidation=Warn").await, (201, warning.clone()));
    assert_eq!(send("").await, (201, warning));
    assert_eq!(send("fieldValidation=Ignore").await, (201, None));
    assert_eq!(send("fieldValidation=Other").await, (422, None));
}

#[tokio::test]
async fn whoever_asks_may_do_everything() {
    let api = Api::new(&Cluster::in_memory());
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let asked = json!({"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}});
    let (code, answer) = api.post(path, asked.clone()).await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(true)));
    assert_eq!(answer["spec"], asked["spec"]);
    assert_eq!(api.get(path).await.0, 405);
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (_, answer) = api.post(path, json!({})).await;
    assert_eq!(answer["status"]["userInfo"]["groups"][0], "system:masters");
}
