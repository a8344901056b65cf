//! What the policies of the manifest refuse to the token of a role, field by field: on a real API server.

use std::time::Duration;

use http::Method;
use longshore_api::podops::{LABEL_CONTROL, POD_TRANSITION_RULE_CRD};
use serde_json::{Value, json};

use super::{
    LIMIT, is_skipped,
    tokens::{ADMISSION, Somebody, refused_at_last},
};
use crate::cluster::TestCluster;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RULES: &str = "/apis/apps.kusionstack.io/v1alpha1/namespaces";

/// The policies refuse each of these writes, and accept a condition and a label.
#[tokio::test(flavor = "multi_thread")]
async fn with_the_token_of_podops_nobody_changes_more_of_a_pod_than_labels_and_conditions() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let account = Somebody::with(&cluster.account("podops").await).await;
    let admin = Somebody(cluster.admin.clone());
    let pods = "/api/v1/namespaces/kube-system/pods";
    let name = format!("with-a-status-{}", cluster.namespace);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "automountServiceAccountToken": false, "nodeName": "nobody",
        "initContainers": [{"name": "i", "image": "example.test/image:1"}],
        "containers": [{"name": "c", "image": "example.test/image:1"}],
    }});
    admin.ask(Method::POST, pods, &pod).await.unwrap();
    let pod = format!("{pods}/{name}?dryRun=All");
    let status = format!("{pods}/{name}/status?dryRun=All");
    for (body, expected) in refused_statuses() {
        let why = refused_at_last(&account, Method::PATCH, &status, &[body]).await;
        assert!(why.contains(expected), "{why}");
    }
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}]);
    let owned = json!({"metadata": {"ownerReferences": owner}});
    let why = refused_at_last(&account, Method::PATCH, &pod, &[owned]).await;
    assert!(why.contains("changes no owners of pods"), "{why}");
    let condition =
        json!({"status": {"conditions": [{"type": "example.test/a", "status": "True"}]}});
    account
        .ask(Method::PATCH, &status, &condition)
        .await
        .unwrap();
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    account.ask(Method::PATCH, &pod, &label).await.unwrap();
    let now = json!({"gracePeriodSeconds": 0});
    let pod = format!("{pods}/{name}");
    admin.ask(Method::DELETE, &pod, &now).await.unwrap();
}

/// Writes of a status, and why they are refused.
fn refused_statuses() -> Vec<(Value, &'static str)> {
    let ran =
        json!([{"name": "i", "image": "i", "imageID": "i", "ready": true, "restartCount": 0}]);
    let changes = [
        json!({"phase": "Failed"}),
        json!({"reason": "Evicted"}),
        json!({"message": "theirs"}),
        json!({"startTime": "2020-01-01T00:00:00Z"}),
        json!({"nominatedNodeName": "theirs"}),
        json!({"hostIP": "127.9.9.9", "hostIPs": [{"ip": "127.9.9.9"}]}),
        json!({"initContainerStatuses": ran}),
        json!({"phase": null}),
    ];
    let conditions_only = "changes conditions of pods, and nothing else";
    let changes = changes.map(|status| (json!({"status": status}), conditions_only));
    // API servers take labels from a write of the status too.
    let labelled = json!({"metadata": {"labels": {LABEL_CONTROL: "true"}}});
    let labelled = (labelled, "gives no pod the label");
    changes.into_iter().chain([labelled]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_token_of_podops_nobody_changes_the_rules_of_users() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let account = Somebody::with(&cluster.account("podops").await).await;
    let admin = Somebody(cluster.admin.clone());
    let definition: Value = serde_saphyr::from_str(POD_TRANSITION_RULE_CRD).unwrap();
    match admin.ask(Method::POST, CRDS, &definition).await {
        Ok(_) | Err((409, _)) => {}
        other => panic!("{other:?}"),
    }
    let rules = format!("{RULES}/{}/podtransitionrules", cluster.namespace);
    let rule = json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": "theirs"},
        "spec": {"selector": {"matchLabels": {"app": "web"}},
                 "rules": [{"name": "one", "availablePolicy": {"maxUnavailableValue": 1}}]},
    });
    // The API server answers as soon as it knows the definition.
    let deadline = tokio::time::Instant::now() + LIMIT;
    while let Err(why) = admin.ask(Method::POST, &rules, &rule).await {
        assert!(tokio::time::Instant::now() < deadline, "{why:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let path = format!("{rules}/theirs");
    let tried = format!("{path}?dryRun=All");
    let disabled =
        json!([{"name": "one", "disabled": true, "availablePolicy": {"maxUnavailableValue": 1}}]);
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}]);
    for (body, expected) in [
        (
            json!({"spec": {"rules": disabled}}),
            "nothing of their spec",
        ),
        (
            json!({"spec": {"selector": {"matchLabels": {"app": "nothing"}}}}),
            "nothing of their spec",
        ),
        (
            json!({"metadata": {"ownerReferences": owner}}),
            "no owners of PodTransitionRules",
        ),
    ] {
        let why = refused_at_last(&account, Method::PATCH, &tried, &[body]).await;
        assert!(why.contains(expected), "{why}");
    }
    // What the controller writes.
    for finalizers in [json!(["example.test/a"]), json!([])] {
        let body = json!({"metadata": {"finalizers": finalizers}});
        account.ask(Method::PATCH, &path, &body).await.unwrap();
    }
    let status = json!({"status": {"observedGeneration": 1}});
    let at = format!("{path}/status");
    account.ask(Method::PATCH, &at, &status).await.unwrap();
    admin
        .ask(Method::DELETE, &path, &Value::Null)
        .await
        .unwrap();
}

/// A change of a configuration: which API servers ask the webhook about these requests, there.
fn asked(group: &str, resources: &[&str], operations: &[&str], client: &Value) -> Value {
    json!({"webhooks": [{
        "name": "a.example.test", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": client, "failurePolicy": "Ignore",
        "objectSelector": {"matchLabels": {"example.test/nobody": "has"}},
        "rules": [{"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources}],
    }]})
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_token_of_webhook_nobody_widens_whom_the_cluster_asks() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let name = format!("asked-{}", cluster.namespace);
    let service = format!("--webhook.serviceName={name}");
    // The URLs of podops are no URLs of this role.
    let arguments = [
        "--enable",
        "webhook,podops",
        "--webhook-on-loopback",
        &service,
    ];
    cluster.grant(&arguments).await;
    let account = Somebody::with(&cluster.token().await).await;
    let path = format!("{ADMISSION}/mutatingwebhookconfigurations/{name}");
    let tried = format!("{path}?dryRun=All");
    let own = json!({"service": {"namespace": cluster.namespace, "name": name}});
    let theirs = json!({"service": {"namespace": "theirs", "name": name}});
    let loopback = json!({"url": "https://127.0.0.1:1/"});
    let rules = "apps.kusionstack.io";
    let (about, there) = ("asked about what they are made for", "are behind a Service");
    for (body, expected) in [
        (asked("", &["secrets"], &["CREATE"], &own), about),
        (asked("", &["pods"], &["*"], &own), about),
        (asked("", &["pods"], &["CREATE", "UPDATE"], &own), about),
        (
            asked("", &["pods", "pods/status"], &["CREATE"], &own),
            about,
        ),
        (asked("", &["pods/eviction"], &["CREATE"], &own), about),
        (asked("*", &["pods"], &["CREATE"], &own), about),
        (
            asked(rules, &["podtransitionrules"], &["CREATE"], &own),
            about,
        ),
        (asked("", &["pods"], &["CREATE"], &theirs), there),
        (asked("", &["pods"], &["CREATE"], &loopback), there),
    ] {
        let why = refused_at_last(&account, Method::PATCH, &tried, &[body]).await;
        assert!(why.contains(expected), "{why}");
    }
    let ours = asked("", &["pods"], &["CREATE"], &own);
    account.ask(Method::PATCH, &tried, &ours).await.unwrap();
    // The other role of the same account has webhooks of its own.
    let of_podops = longshore_podops::webhooks::MUTATING;
    let of_podops = format!("{ADMISSION}/mutatingwebhookconfigurations/{of_podops}?dryRun=All");
    let evictions = asked("", &["pods/eviction"], &["CREATE"], &loopback);
    account
        .ask(Method::PATCH, &of_podops, &evictions)
        .await
        .unwrap();
    let admin = Somebody(cluster.admin.clone());
    admin
        .ask(Method::DELETE, &path, &Value::Null)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_token_of_podops_nobody_sends_api_servers_to_their_loopback() {
    if is_skipped() {
        return;
    }
    let on_loopback = ["--enable", "podops", "--webhook-on-loopback"];
    for arguments in [&on_loopback[..2], &on_loopback[..]] {
        let cluster = TestCluster::start().await;
        cluster.grant(arguments).await;
        let account = Somebody::with(&cluster.token().await).await;
        let name = longshore_podops::webhooks::MUTATING;
        let tried = format!("{ADMISSION}/mutatingwebhookconfigurations/{name}?dryRun=All");
        let own = json!({"service": {"namespace": cluster.namespace, "name": "longshore-podops"}});
        let url = |base: &str| json!({"url": format!("{base}/path")});
        let pods = |client: &Value| asked("", &["pods"], &["CREATE", "UPDATE"], client);
        let about = "asked about what they are made for";
        let mut refused = vec![
            (asked("", &["pods"], &["*"], &own), about),
            (asked("", &["pods/status"], &["CREATE"], &own), about),
            (asked("", &["pods/eviction"], &["UPDATE"], &own), about),
            (asked("", &["pods/exec"], &["CONNECT"], &own), about),
            (pods(&url("https://theirs.example.test")), "own namespace"),
            (
                pods(&url("https://127.0.0.1.example.test:1")),
                "own namespace",
            ),
        ];
        let mut passing = vec![pods(&own)];
        let loopback = pods(&url("https://127.0.0.1:1"));
        if arguments.len() == on_loopback.len() {
            passing.push(loopback);
        } else {
            refused.push((loopback, "own namespace"));
        }
        for (body, expected) in refused {
            let why = refused_at_last(&account, Method::PATCH, &tried, &[body]).await;
            assert!(why.contains(expected), "{arguments:?}: {why}");
        }
        for body in passing {
            account.ask(Method::PATCH, &tried, &body).await.unwrap();
        }
    }
}

/// So many entries that have ended.
fn many(n: usize) -> Value {
    let entry = |n| (format!("many-{n}"), json!("1971-01-01T00:00:00Z"));
    (0..n).map(entry).collect::<serde_json::Map<_, _>>().into()
}

/// Statuses of a budget with two disruptions and the entry `a` that are accepted.
fn accepted_reservations() -> [Value; 6] {
    [
        // A reservation for another pod.
        json!({"disruptionsAllowed": 1, "disruptedPods": {"b": "2026-01-01T00:00:01Z"}}),
        // One that is renewed, also with those of other pods.
        json!({"disruptedPods": {"a": "2026-01-01T00:01:00Z"}}),
        json!({"disruptionsAllowed": 0, "disruptedPods": {
            "a": "2026-01-01T00:00:00Z", "b": "2026-01-01T00:00:01Z", "c": "2026-01-01T00:00:01Z",
        }}),
        // An entry that has expired already allows nothing.
        json!({"disruptedPods": {"b": "1971-01-01T00:00:00Z"}}),
        json!({"disruptedPods": many(64)}),
        json!({"disruptionsAllowed": 0, "disruptedPods": many(66)}),
    ]
}

/// Writes of the status of a budget with the entry `a`, and why they are refused.
fn refused_reservations() -> Vec<(Value, &'static str)> {
    let status = |status: Value| json!({"status": status});
    let entry = |at: Value| status(json!({"disruptedPods": {"a": at}}));
    let (given, no_other) = (
        "adds nothing to disruptionsAllowed",
        "no other field of them",
    );
    vec![
        (status(json!({"disruptionsAllowed": 9})), given),
        (entry(Value::Null), given),
        // The disruption controller drops an entry of the past, and counts its pod as healthy again.
        (entry(json!("1971-01-01T00:00:00Z")), given),
        (entry(json!("2025-12-31T23:59:59Z")), given),
        (entry(json!("2026-01-01T00:59:59+01:00")), given),
        (entry(json!("0001-01-01T00:00:00Z")), given),
        (
            status(json!({"disruptionsAllowed": 1, "disruptedPods": {
                "a": "2025-12-31T23:57:00Z", "b": "2026-01-01T00:00:01Z",
            }})),
            given,
        ),
        (status(json!({"currentHealthy": 9})), no_other),
        (json!({"metadata": {"labels": {"a": "b"}}}), no_other),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_token_of_podops_nobody_gives_disruptions_to_a_budget_or_changes_it() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let account = Somebody::with(&cluster.account("podops").await).await;
    let admin = Somebody(cluster.admin.clone());
    let namespace = &cluster.namespace;
    let budgets = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    // It selects nothing, so that no disruption controller changes what is written here.
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 1},
    });
    admin.ask(Method::POST, &budgets, &budget).await.unwrap();
    let path = format!("{budgets}/web");
    let spec = json!({"spec": {"minAvailable": 0}});
    account
        .is_refused("changes a budget", Method::PATCH, &path, &spec)
        .await;
    account
        .is_refused("deletes a budget", Method::DELETE, &path, &Value::Null)
        .await;
    let status = format!("{path}/status");
    let counted = json!({"status": {
        "observedGeneration": 1, "expectedPods": 3, "desiredHealthy": 1, "currentHealthy": 3,
        "disruptionsAllowed": 2, "disruptedPods": {"a": "2026-01-01T00:00:00Z"},
    }});
    admin.ask(Method::PATCH, &status, &counted).await.unwrap();
    // The disruption controller of a whole cluster would count again: what is tried is not written.
    let tried = format!("{status}?dryRun=All");
    for (change, expected) in refused_reservations() {
        admin.ask(Method::PATCH, &status, &counted).await.unwrap();
        let why = refused_at_last(&account, Method::PATCH, &tried, &[change]).await;
        assert!(why.contains(expected), "{why}");
    }
    for taken in accepted_reservations() {
        admin.ask(Method::PATCH, &status, &counted).await.unwrap();
        let taken = json!({"status": taken});
        account.ask(Method::PATCH, &tried, &taken).await.unwrap();
    }
    for taken in [
        json!({"disruptedPods": many(65)}),
        json!({"disruptionsAllowed": 0, "disruptedPods": many(67)}),
        json!({"disruptedPods": many(3_000)}),
    ] {
        admin.ask(Method::PATCH, &status, &counted).await.unwrap();
        let taken = json!({"status": taken});
        let why = refused_at_last(&account, Method::PATCH, &tried, &[taken]).await;
        assert!(why.contains("adds at most 64 entries"), "{why}");
    }
    // So many disruptions of one budget can be under way: the policy still counts them.
    let large = json!({"status": {"disruptedPods": many(2_000)}});
    admin.ask(Method::PATCH, &status, &counted).await.unwrap();
    admin.ask(Method::PATCH, &status, &large).await.unwrap();
    let renewed = json!({"status": {"disruptedPods": {"many-7": "2026-01-01T00:00:00Z"}}});
    account.ask(Method::PATCH, &tried, &renewed).await.unwrap();
    admin
        .ask(Method::DELETE, &path, &Value::Null)
        .await
        .unwrap();
}
