//! Webhooks that change objects: their order, and which of them see the changes of others.

use serde_json::{Value, json};

use super::{Court, MUTATING, VALIDATING, rule};
use crate::harness::{CONFIG_MAPS, PODS, config_map, pod};

#[tokio::test]
async fn patches_follow_the_names_of_configurations() {
    let court = Court::open();
    court
        .mutate(
            "b",
            vec![court.webhook("b.example.com", "/label/who/b", json!({}))],
        )
        .await;
    let first = court.webhook("a1.example.com", "/label/who/a1", json!({}));
    let second = court.webhook("a2.example.com", "/label/too/a2", json!({}));
    court.mutate("a", vec![first, second]).await;
    let created = court.api.make(CONFIG_MAPS, config_map("m", "1")).await;
    assert_eq!(
        created["metadata"]["labels"],
        json!({"who": "b", "too": "a2"})
    );
    assert_eq!(created["data"]["k"], "1");
}

#[tokio::test]
async fn webhooks_see_the_object_with_its_defaults() {
    let court = Court::open();
    let pods = json!({"rules": [rule(&["CREATE"], "pods")]});
    court
        .mutate(
            "a",
            vec![court.webhook("a.example.com", "/label/a/b", pods.clone())],
        )
        .await;
    court.validate("/allow", pods).await;
    let created = court.api.make(PODS, pod("p")).await;
    assert_eq!(created["metadata"]["labels"]["a"], "b");
    let asked = court.judge.asked("/label/a/b").remove(0)["object"].clone();
    assert_eq!(asked["spec"]["restartPolicy"], "Always");
    assert_eq!(asked["metadata"].get("uid"), None);
    let asked = court.judge.asked("/allow").remove(0)["object"].clone();
    assert_eq!(asked["status"]["phase"], "Pending");
    assert_eq!(asked["metadata"]["uid"], created["metadata"]["uid"]);
}

#[tokio::test]
async fn those_that_care_see_what_later_ones_have_changed() {
    for (policy, n_asked) in [("Never", 1), ("IfNeeded", 2)] {
        let court = Court::open();
        let first = court.webhook(
            "a.example.com",
            "/allow",
            json!({"reinvocationPolicy": policy}),
        );
        let second = court.webhook(
            "b.example.com",
            "/count",
            json!({"reinvocationPolicy": policy}),
        );
        court.mutate("a", vec![first, second]).await;
        let created = court.api.make(CONFIG_MAPS, config_map("m", "1")).await;
        // The one that has changed the object last is not asked again.
        assert_eq!(created["metadata"]["labels"]["n"], "1", "{policy}");
        assert_eq!(court.judge.asked("/allow").len(), n_asked, "{policy}");
    }
}

#[tokio::test]
async fn what_a_patch_makes_of_an_object_is_validated() {
    let court = Court::open();
    court
        .mutate(
            "a",
            vec![court.webhook("a.example.com", "/label/_bad_/x", json!({}))],
        )
        .await;
    let (code, status) = court.api.post(CONFIG_MAPS, config_map("m", "1")).await;
    assert_eq!(
        (code, &status["reason"]),
        (422, &json!("Invalid")),
        "{status}"
    );
}

#[tokio::test]
async fn a_deletion_has_nothing_to_change() {
    let court = Court::open();
    court.api.make(CONFIG_MAPS, config_map("m", "1")).await;
    let webhook = court.webhook("a.example.com", "/label/a/b", json!({}));
    court.mutate("a", vec![webhook]).await;
    let (code, status) = court
        .api
        .delete(&format!("{CONFIG_MAPS}/m"), Value::Null)
        .await;
    let expected = "Internal error occurred: admission webhook \"a.example.com\" attempted to modify the object, which \
         is not supported for this operation";
    assert_eq!((code, &status["message"]), (500, &json!(expected)));
}

#[tokio::test]
async fn status_webhooks_change_what_a_status_write_may_change() {
    let court = Court::open();
    court.api.make(PODS, pod("p")).await;
    let rules = json!({"rules": [rule(&["UPDATE"], "pods/status")]});
    court
        .mutate(
            "a",
            vec![court.webhook("a.example.com", "/label/a/b", rules)],
        )
        .await;
    let path = format!("{PODS}/p/status");
    let status = json!({"status": {"phase": "Running"}});
    let (_, written) = court.api.patch("merge", &path, status).await;
    assert_eq!(written["metadata"]["labels"]["a"], "b");
    assert_eq!(written["status"]["phase"], "Running");
}

#[tokio::test]
async fn scales_can_be_changed() {
    let court = Court::open();
    let api = &court.api;
    let rule = json!({"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["*/scale"]});
    let webhook = court.webhook("a.example.com", "/replicas/5", json!({"rules": [rule]}));
    court.mutate("a", vec![webhook]).await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}});
    api.make(sets, json!({"metadata": {"name": "r"}, "spec": spec}))
        .await;
    let scale = json!({"spec": {"replicas": 2}});
    let (_, answer) = api.patch("merge", &format!("{sets}/r/scale"), scale).await;
    assert_eq!(answer["spec"]["replicas"], 5, "{answer}");
    assert_eq!(api.get(&format!("{sets}/r")).await.1["spec"]["replicas"], 5);
}

#[tokio::test]
async fn dry_runs_are_passed_on_where_they_can_be() {
    let court = Court::open();
    court
        .mutate(
            "a",
            vec![court.webhook("a.example.com", "/label/a/b", json!({}))],
        )
        .await;
    court.validate("/warn", json!({})).await;
    let (code, imagined) = court
        .api
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("m", "1"))
        .await;
    assert_eq!(
        (code, &imagined["metadata"]["labels"]["a"]),
        (201, &json!("b"))
    );
    let asked = court.judge.asked("/label/a/b");
    assert_eq!(
        (&asked[0]["dryRun"], &asked[0]["options"]["dryRun"]),
        (&json!(true), &json!(["All"]))
    );
    assert_eq!(court.api.get(&format!("{CONFIG_MAPS}/m")).await.0, 404);
}

#[tokio::test]
async fn writers_that_meet_while_a_webhook_thinks_both_win() {
    let court = Court::open();
    court.api.make(CONFIG_MAPS, config_map("m", "1")).await;
    court
        .mutate(
            "a",
            vec![court.webhook("a.example.com", "/count", json!({}))],
        )
        .await;
    let path = format!("{CONFIG_MAPS}/m");
    let writes = (0..8).map(|i| {
        let (api, path) = (court.api.clone(), path.clone());
        async move {
            api.patch("merge", &path, json!({"data": {format!("k{i}"): "v"}}))
                .await
                .0
        }
    });
    let codes = futures::future::join_all(writes).await;
    assert_eq!(codes, vec![200; 8]);
    let (_, map) = court.api.get(&path).await;
    assert_eq!(map["data"].as_object().unwrap().len(), 9);
    // Each write was judged on top of the one before it.
    assert_eq!(map["metadata"]["labels"]["n"], "8");
}

#[tokio::test]
async fn a_stale_replacement_is_refused_after_the_webhook() {
    let court = Court::open();
    court.api.make(CONFIG_MAPS, config_map("m", "1")).await;
    court
        .validate(
            "/slow",
            json!({"timeoutSeconds": 10, "rules": [rule(&["UPDATE"], "configmaps")]}),
        )
        .await;
    let path = format!("{CONFIG_MAPS}/m");
    let (_, mut read) = court.api.get(&path).await;
    read["data"]["k"] = "stale".into();
    let stale = {
        let (api, path) = (court.api.clone(), path.clone());
        tokio::spawn(async move { api.put(&path, read).await })
    };
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while court.judge.asked("/slow").is_empty() {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    court
        .api
        .delete(&format!("{VALIDATING}/one"), Value::Null)
        .await;
    court
        .api
        .patch("merge", &path, json!({"data": {"k": "2"}}))
        .await;
    let (code, status) = stale.await.unwrap();
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    assert_eq!(court.api.get(MUTATING).await.1["items"], json!([]));
}
