//! Evictions: disruption budgets, dry runs, and the webhooks that receive them.

use serde_json::{Value, json};

use super::{Court, rule};
use crate::harness::{Api, PODS, bound_pod, controlled, eventually};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn eviction(name: &str) -> Value {
    json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name}})
}

async fn evict(api: &Api, name: &str) -> (u16, Value) {
    api.post(&format!("{PODS}/{name}/eviction"), eviction(name))
        .await
}

/// A pod that runs and is ready.
async fn running(api: &Api, name: &str) {
    let mut pod = bound_pod(name);
    pod["metadata"]["labels"] = json!({"app": "web"});
    api.make(PODS, pod).await;
    set_ready(api, name, "True").await;
}

async fn set_ready(api: &Api, name: &str, ready: &str) {
    let status =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    api.patch("strategic", &format!("{PODS}/{name}/status"), status)
        .await;
}

async fn budget(api: &Api, spec: Value) {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    api.make(BUDGETS, json!({"metadata": {"name": "b"}, "spec": spec}))
        .await;
}

#[tokio::test]
async fn evictions_are_asked_about_and_their_deletions_are_not() {
    let court = Court::open();
    let api = &court.api;
    let both = json!({"rules": [rule(&["*"], "pods/eviction"), rule(&["DELETE"], "pods")]});
    court.validate("/allow", both).await;
    running(api, "p").await;
    assert_eq!(evict(api, "p").await.0, 201);
    let asked = court.judge.asked("/allow");
    assert_eq!(asked.len(), 1);
    let told = [
        &asked[0]["operation"],
        &asked[0]["kind"]["kind"],
        &asked[0]["name"],
        &asked[0]["object"]["kind"],
    ];
    assert_eq!(json!(told), json!(["CREATE", "Eviction", "p", "Eviction"]));
    let (_, pod) = api.get(&format!("{PODS}/p")).await;
    let condition = &pod["status"]["conditions"][1];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI"))
    );
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn a_dry_run_that_an_eviction_asks_for_is_followed_and_webhooks_find_it_there() {
    let court = Court::open();
    let api = &court.api;
    court
        .validate(
            "/allow",
            json!({"rules": [rule(&["CREATE"], "pods/eviction")]}),
        )
        .await;
    running(api, "p").await;
    let mut dry = eviction("p");
    dry["deleteOptions"] = json!({"dryRun": ["All"]});
    let path = format!("{PODS}/p/eviction");
    assert_eq!(api.post(&path, dry).await.0, 201);
    let query = format!("{path}?dryRun=All");
    assert_eq!(api.post(&query, eviction("p")).await.0, 201);
    let asked = court.judge.asked("/allow");
    let told = [&asked[0]["dryRun"], &asked[1]["dryRun"]];
    assert_eq!(json!(told), json!([false, true]));
    assert_eq!(
        asked[0]["object"]["deleteOptions"]["dryRun"],
        json!(["All"])
    );
    let (_, pod) = api.get(&format!("{PODS}/p")).await;
    assert!(pod["metadata"].get("deletionTimestamp").is_none(), "{pod}");
}

#[tokio::test]
async fn a_webhook_can_answer_that_a_drain_must_wait() {
    let court = Court::open();
    court
        .validate(
            "/deny/429",
            json!({"rules": [rule(&["CREATE"], "pods/eviction")]}),
        )
        .await;
    running(&court.api, "p").await;
    let body = eviction("p").to_string().into();
    let path = format!("{PODS}/p/eviction");
    let answer = court
        .api
        .send(http::Method::POST, &path, "application/json", body)
        .await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["retry-after"]),
        (429, &"5".parse().unwrap())
    );
}

#[tokio::test(start_paused = true)]
async fn a_budget_lets_one_pod_go_at_a_time() {
    let (_cluster, api, _running) = controlled();
    budget(&api, json!({"minAvailable": 1})).await;
    for name in ["a", "b"] {
        running(&api, name).await;
    }
    let path = format!("{BUDGETS}/b");
    eventually(&api, &path, |_, budget| {
        budget["status"]["disruptionsAllowed"] == 1
    })
    .await;
    let query = format!("{PODS}/a/eviction?dryRun=All");
    assert_eq!(api.post(&query, eviction("a")).await.0, 201);
    assert_eq!(evict(&api, "a").await.0, 201);
    let counted = eventually(&api, &path, |_, budget| {
        budget["status"]["currentHealthy"] == 1 && budget["status"].get("disruptedPods").is_none()
    })
    .await;
    assert_eq!(
        counted["status"]["conditions"][0]["reason"],
        "InsufficientPods"
    );
    let (code, refusal) = evict(&api, "b").await;
    assert_eq!((code, &refusal["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(
        refusal["message"],
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    assert_eq!(
        refusal["details"]["causes"],
        json!([{"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods and has 1 currently"}])
    );
    assert!(
        api.get(&format!("{PODS}/b")).await.1["metadata"]
            .get("deletionTimestamp")
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_no_work_go_without_asking() {
    let (_cluster, api, _running) = controlled();
    budget(&api, json!({"minAvailable": 9})).await;
    let mut waiting = bound_pod("waiting");
    waiting["metadata"]["labels"] = json!({"app": "web"});
    api.make(PODS, waiting).await;
    for (name, phase) in [("failed", "Failed"), ("done", "Succeeded")] {
        running(&api, name).await;
        let status = json!({"status": {"phase": phase}});
        api.patch("merge", &format!("{PODS}/{name}/status"), status)
            .await;
    }
    for name in ["waiting", "failed", "done"] {
        assert_eq!(evict(&api, name).await.0, 201, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn percentages_count_the_pods_that_should_be_there() {
    let (_cluster, api, _running) = controlled();
    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let four = json!({"metadata": {"name": "s"}, "spec": {"replicas": 4, "selector": {"app": "web"}, "template": template}});
    api.make(controllers, four).await;
    let pods = eventually(&api, PODS, |_, list| {
        list["items"].as_array().is_some_and(|it| it.len() == 4)
    })
    .await;
    // The fourth is deleted, and waits on its way out; its replacement never becomes ready.
    let name = |index: usize| pods["items"][index]["metadata"]["name"].as_str().unwrap();
    for index in 0..3 {
        set_ready(&api, name(index), "True").await;
    }
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    let fourth = format!("{PODS}/{}", name(3));
    api.patch("merge", &fourth, hold).await;
    api.delete(&fourth, Value::Null).await;
    budget(&api, json!({"maxUnavailable": "50%"})).await;
    let path = format!("{BUDGETS}/b");
    let counted = eventually(&api, &path, |_, budget| {
        budget["status"]["expectedPods"] == 4
    })
    .await;
    let status = &counted["status"];
    let numbers = [
        &status["currentHealthy"],
        &status["desiredHealthy"],
        &status["disruptionsAllowed"],
    ];
    assert_eq!(json!(numbers), json!([3, 2, 1]));
}

#[tokio::test]
async fn evictions_hold_to_their_preconditions() {
    let court = Court::open();
    let api = &court.api;
    running(api, "p").await;
    let mut other = eviction("p");
    other["deleteOptions"] = json!({"preconditions": {"uid": "other"}});
    let path = format!("{PODS}/p/eviction");
    assert_eq!(api.post(&path, other).await.0, 409);
    assert_eq!(api.post(&path, eviction("q")).await.0, 400);
    assert_eq!(evict(api, "nobody").await.0, 404);
}
