//! Which requests reach a webhook, and what its reviews contain.

use longshore_cluster::Cluster;
use serde_json::{Value, json};

use super::{Court, VALIDATING, rule};
use crate::harness::{Api, CONFIG_MAPS, PODS, bound_pod, config_map, pod};

const NAMESPACES: &str = "/api/v1/namespaces";

#[tokio::test]
async fn writes_of_an_object_are_asked_about() {
    let court = Court::open();
    let api = &court.api;
    court.validate("/allow", json!({})).await;
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let path = format!("{CONFIG_MAPS}/a");
    api.put(&path, config_map("a", "2")).await;
    api.patch("merge", &path, json!({"data": {"k": "3"}})).await;
    // This patch changes nothing, and webhooks receive it all the same.
    api.patch("merge", &path, json!({"data": {"k": "3"}})).await;
    api.get(&path).await;
    api.delete(&path, Value::Null).await;
    let asked = court.judge.asked("/allow");
    let value = |object: &Value| object["data"]["k"].clone();
    let told: Vec<Value> = asked
        .iter()
        .map(|it| {
            json!([
                it["operation"],
                it["name"],
                value(&it["object"]),
                value(&it["oldObject"]),
                it["options"]["kind"]
            ])
        })
        .collect();
    assert_eq!(
        json!(told),
        json!([
            ["CREATE", "a", "1", null, "CreateOptions"],
            ["UPDATE", "a", "2", "1", "UpdateOptions"],
            ["UPDATE", "a", "3", "2", "UpdateOptions"],
            ["UPDATE", "a", "3", "3", "UpdateOptions"],
            ["DELETE", "a", null, "3", "DeleteOptions"],
        ])
    );
    assert_eq!(asked[0]["userInfo"]["username"], "longshore-admin");
    assert_eq!(
        asked[0]["kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    assert_eq!(asked[0]["namespace"], "default");
    assert!(asked[4]["object"].is_null());
}

#[tokio::test]
async fn subresources_are_asked_about_by_their_own_name() {
    let court = Court::open();
    let api = &court.api;
    let rules =
        |resources: &[&str]| -> Value { resources.iter().map(|it| rule(&["*"], it)).collect() };
    let all = ["pods/status", "pods/binding", "pods/ephemeralcontainers"];
    court
        .validate("/allow", json!({"rules": rules(&all)}))
        .await;
    api.make(PODS, pod("p")).await;
    let path = format!("{PODS}/p");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    api.make(&format!("{path}/binding"), binding).await;
    let status = json!({"status": {"phase": "Running"}});
    api.patch("merge", &format!("{path}/status"), status).await;
    let mut asked = court.judge.asked("/allow");
    let told: Vec<Value> = asked
        .iter()
        .map(|it| {
            json!([
                it["operation"],
                it["kind"]["kind"],
                it["resource"]["resource"],
                it["subResource"]
            ])
        })
        .collect();
    let expected = json!([
        ["CREATE", "Binding", "pods", "binding"],
        ["UPDATE", "Pod", "pods", "status"]
    ]);
    assert_eq!(json!(told), expected);
    let status = asked.pop().unwrap();
    assert_eq!(status["object"]["status"]["phase"], "Running");
    assert_eq!(status["oldObject"]["status"]["phase"], "Pending");
}

#[tokio::test]
async fn scales_are_asked_about_as_scales() {
    let court = Court::open();
    let api = &court.api;
    let scale = json!([{"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["*/scale"]}]);
    court
        .validate("/deny/message", json!({"rules": scale}))
        .await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}});
    api.make(sets, json!({"metadata": {"name": "r"}, "spec": spec}))
        .await;
    let path = format!("{sets}/r/scale");
    let (code, _) = api
        .patch("merge", &path, json!({"spec": {"replicas": 2}}))
        .await;
    assert_eq!(code, 400);
    let asked = court.judge.asked("/deny/message");
    assert_eq!(
        asked[0]["kind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    assert_eq!(asked[0]["object"]["spec"]["replicas"], 2);
    assert_eq!(asked[0]["oldObject"]["kind"], "Scale");
}

#[tokio::test]
async fn registrations_survive_a_restart() {
    let mut court = Court::open();
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path()).unwrap();
    court.api = Api::new(&cluster);
    court.validate("/deny", json!({})).await;
    cluster.close();
    drop(cluster);
    court.api = Api::new(&Cluster::open(directory.path()).unwrap());
    let (code, _) = court.api.post(CONFIG_MAPS, config_map("m", "1")).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn selectors_choose_objects_and_namespaces() {
    let court = Court::open();
    let api = &court.api;
    let labels = |value: &str| json!({"matchLabels": {"team": value}});
    let webhook = court.webhook(
        "one.example.com",
        "/deny",
        json!({"namespaceSelector": labels("a"), "objectSelector": labels("x")}),
    );
    court.register(VALIDATING, "one", vec![webhook]).await;
    api.make(
        NAMESPACES,
        json!({"metadata": {"name": "n", "labels": {"team": "a"}}}),
    )
    .await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let mut labelled = config_map("m", "1");
    labelled["metadata"]["labels"] = json!({"team": "x"});
    // Another namespace, another object, both.
    assert_eq!(api.post(CONFIG_MAPS, labelled.clone()).await.0, 201);
    assert_eq!(api.post(maps, config_map("other", "1")).await.0, 201);
    assert_eq!(api.post(maps, labelled.clone()).await.0, 400);
    // The label that the object had counts as well as the one that it gets.
    api.patch(
        "merge",
        NAMESPACES_N,
        json!({"metadata": {"labels": {"team": "b"}}}),
    )
    .await;
    api.make(maps, labelled).await;
    api.patch(
        "merge",
        NAMESPACES_N,
        json!({"metadata": {"labels": {"team": "a"}}}),
    )
    .await;
    let without = json!({"metadata": {"labels": null}});
    assert_eq!(
        api.patch("merge", &format!("{maps}/m"), without).await.0,
        400
    );
    assert_eq!(api.delete(&format!("{maps}/m"), Value::Null).await.0, 400);
}

const NAMESPACES_N: &str = "/api/v1/namespaces/n";

#[tokio::test]
async fn namespaces_are_selected_by_the_labels_that_they_get() {
    let court = Court::open();
    let rules = json!([rule(&["CREATE"], "namespaces")]);
    let selector = json!({"matchLabels": {"team": "a"}});
    court
        .validate(
            "/deny",
            json!({"rules": rules, "namespaceSelector": selector}),
        )
        .await;
    let named = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    assert_eq!(
        court.api.post(NAMESPACES, named("n", json!({}))).await.0,
        201
    );
    assert_eq!(
        court
            .api
            .post(NAMESPACES, named("m", json!({"team": "a"})))
            .await
            .0,
        400
    );
    assert_eq!(court.judge.asked("/deny")[0]["namespace"], "m");
}

#[tokio::test]
async fn registrations_are_asked_about_by_nobody() {
    let court = Court::open();
    let everything = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    court.validate("/deny", json!({"rules": everything})).await;
    assert_eq!(
        court.api.post(CONFIG_MAPS, config_map("a", "1")).await.0,
        400
    );
    let path = format!("{VALIDATING}/one");
    assert_eq!(court.api.delete(&path, Value::Null).await.0, 200);
    assert_eq!(
        court.api.post(CONFIG_MAPS, config_map("a", "1")).await.0,
        201
    );
}

#[tokio::test]
async fn every_version_of_a_custom_resource_is_asked_about() {
    let court = Court::open();
    let api = &court.api;
    let version = |name: &str, is_stored: bool| {
        json!({"name": name, "served": true, "storage": is_stored,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "string"}}}}})
    };
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"}, "versions": [version("v1", true), version("v2", false)]},
    });
    api.make(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition,
    )
    .await;
    let rules = json!([{"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["things"]}]);
    let exact = court.webhook(
        "exact.example.com",
        "/exact",
        json!({"rules": rules, "matchPolicy": "Exact"}),
    );
    let any = court.webhook("any.example.com", "/any", json!({"rules": rules}));
    court.register(VALIDATING, "one", vec![exact, any]).await;
    let things = "/apis/example.com/v2/namespaces/default/things";
    api.make(things, json!({"apiVersion": "example.com/v2", "kind": "Thing", "metadata": {"name": "t"}, "spec": "s"})).await;
    assert_eq!(court.judge.asked("/exact"), Vec::<Value>::new());
    let asked = court.judge.asked("/any");
    assert_eq!(asked[0]["object"]["apiVersion"], "example.com/v1");
    assert_eq!(asked[0]["kind"]["version"], "v1");
    assert_eq!(asked[0]["requestKind"]["version"], "v2");
}

#[tokio::test]
async fn a_pod_that_goes_already_is_not_asked_about_again() {
    let court = Court::open();
    let api = &court.api;
    court
        .validate("/allow", json!({"rules": [rule(&["DELETE"], "pods")]}))
        .await;
    api.make(PODS, bound_pod("p")).await;
    let path = format!("{PODS}/p");
    for (options, n_asked) in [
        (json!({}), 1),
        (json!({}), 0),
        (json!({"gracePeriodSeconds": 60}), 0),
        (json!({"gracePeriodSeconds": 5}), 1),
    ] {
        api.delete(&path, options.clone()).await;
        assert_eq!(court.judge.asked("/allow").len(), n_asked, "{options}");
    }
}

#[tokio::test]
async fn a_collection_is_asked_about_object_by_object() {
    let court = Court::open();
    for name in ["a", "b"] {
        court.api.make(CONFIG_MAPS, config_map(name, "1")).await;
    }
    court.validate("/allow", json!({})).await;
    court.api.delete(CONFIG_MAPS, Value::Null).await;
    let asked = court.judge.asked("/allow");
    let names: Vec<&Value> = asked
        .iter()
        .map(|it| &it["oldObject"]["metadata"]["name"])
        .collect();
    assert_eq!(json!(names), json!(["a", "b"]));
}
