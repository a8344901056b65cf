//! What works while no replica runs: the table of docs/podops.md, row by row.

use std::{fs, time::Duration};

use longshore_api::podops::{EVICTION_POLICY, OperationLabel};
use serde_json::{Value, json};

use super::{
    http::{self, Asked},
    kubelet::PLAYED,
    place::Place,
    world::World,
};
use crate::repository;

const REGISTERED: &str = "/apis/admissionregistration.k8s.io/v1";

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is done.
    Passes,
    /// The API server refuses it, because the webhook does not answer.
    Refused,
}

use Outcome::{Passes, Refused};

/// What an API server says to a request.
fn outcome(answer: kube::Result<Value>) -> Outcome {
    match answer {
        Ok(_) => Passes,
        Err(kube::Error::Api(status)) => {
            let is_unanswered = status.message.contains("failed calling webhook")
                || status.message.contains(EVICTION_POLICY);
            assert!(is_unanswered, "{status:?}");
            Refused
        }
        Err(error) => panic!("{error}"),
    }
}

/// A pod that the webhooks never look at.
async fn unlabelled(place: &Place<'_>, name: &str) -> kube::Result<Value> {
    let mut pod = place.world.pod(name);
    pod["metadata"]["labels"] = json!({PLAYED: place.world.player()});
    http::create(place.client(), &place.core("pods"), &pod).await
}

async fn labelled(place: &Place<'_>, name: &str) -> kube::Result<Value> {
    http::create(place.client(), &place.core("pods"), &place.world.pod(name)).await
}

async fn update(place: &Place<'_>, name: &str) -> Outcome {
    let path = place.core(&format!("pods/{name}"));
    let patch = json!({"metadata": {"annotations": {"a": "b"}}});
    outcome(http::patch(place.client(), &path, Asked::Merge, &patch).await)
}

/// What a node says of a pod that is not Ready any more.
async fn not_ready(place: &Place<'_>, name: &str) -> Outcome {
    let path = place.core(&format!("pods/{name}/status"));
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    outcome(http::patch(place.client(), &path, Asked::Strategic, &patch).await)
}

async fn evict(place: &Place<'_>, name: &str, options: Value) -> kube::Result<Value> {
    let path = place.core(&format!("pods/{name}/eviction"));
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": place.namespace}, "deleteOptions": options,
    });
    http::create(place.client(), &path, &eviction).await
}

/// What its node does in the end; `None` where it has done it already.
async fn remove(place: &Place<'_>, name: &str) -> Option<Outcome> {
    let path = place.core(&format!("pods/{name}"));
    let options = json!({"gracePeriodSeconds": 0});
    match http::delete(place.client(), &path, options).await {
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        answer => Some(outcome(answer)),
    }
}

fn rule(name: &str) -> Value {
    json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "rules": [
            {"name": "a", "labelCheck": {"requires": {"matchLabels": {"approved": "yes"}}}},
        ]},
    })
}

/// Whether the API server narrows webhooks by conditions: it has stored those that we gave it.
async fn has_conditions(world: &World) -> bool {
    let name = longshore_podops::webhooks::MUTATING;
    let path = format!("{REGISTERED}/mutatingwebhookconfigurations/{name}");
    let found = http::get(world.client(), &path).await.unwrap();
    let webhooks = found["webhooks"].as_array().unwrap();
    let about = |resource: &str| {
        let mut webhooks = webhooks.iter();
        let found = webhooks.find(|it| it["rules"][0]["resources"] == json!([resource]));
        found.unwrap()["failurePolicy"].clone()
    };
    assert_eq!(about("pods"), "Fail");
    assert_eq!(about("pods/status"), "Ignore");
    assert_eq!(about("pods/eviction"), "Ignore");
    webhooks[0]["matchConditions"].is_array()
}

/// Each row, with every replica killed.
pub(super) async fn what_the_table_says_works_while_no_replica_runs(world: &World) {
    let place = &world.namespace("down").await;
    let excluded = &world.excluded_namespace().await;
    let narrowed = if has_conditions(world).await {
        Passes
    } else {
        Refused
    };
    settle(place, excluded).await;
    world.kill();
    those_of_others(place, excluded).await;
    those_that_take_part(place, narrowed).await;
    rules(place, narrowed).await;
    world.revive();
    world.until_told().await;
    place.until_serving("idle").await;
    // The operation goes on to its end: what no webhook saw is made up for.
    let ended = json!({OperationLabel::Operating.of("a"): null});
    place.insist("operated", ended).await;
    place.until_serving("operated").await;
    if world.has_workloads {
        a_namespace_without_pods_that_take_part_goes(world).await;
    }
    with_the_policy(place).await;
}

/// Pods and a rule, as they are before the replicas are killed.
async fn settle(place: &Place<'_>, excluded: &Place<'_>) {
    place
        .serving(&["idle", "evicted", "operated", "deleted"])
        .await;
    let operating = json!({
        OperationLabel::Operating.of("a"): "1", OperationLabel::OperationType.of("a"): "update",
    });
    place.label("operated", operating).await;
    let granted = OperationLabel::Operate.of("a");
    place.until_label("operated", &granted).await;
    place
        .rule("held", rule("held")["spec"]["rules"].clone())
        .await;
    let has_finalizer = |rule: &Value| rule["metadata"]["finalizers"].is_array();
    let held = place.rules("/held");
    place.world.until_object(&held, has_finalizer).await;
    for name in ["other", "other-evicted"] {
        unlabelled(place, name).await.unwrap();
    }
    labelled(excluded, "free").await.unwrap();
}

/// Pods without the label, and those of an excluded namespace.
async fn those_of_others(place: &Place<'_>, excluded: &Place<'_>) {
    assert_eq!(outcome(unlabelled(place, "other-new").await), Passes);
    assert_eq!(update(place, "other").await, Passes);
    assert_eq!(not_ready(place, "other").await, Passes);
    let evicted = evict(place, "other-evicted", json!({})).await;
    assert_eq!(outcome(evicted), Passes);
    assert_eq!(outcome(place.delete("other").await), Passes);
    assert_eq!(outcome(labelled(excluded, "new").await), Passes);
    assert_eq!(update(excluded, "free").await, Passes);
    assert_eq!(not_ready(excluded, "free").await, Passes);
    assert_eq!(outcome(evict(excluded, "new", json!({})).await), Passes);
    assert_eq!(outcome(excluded.delete("free").await), Passes);
}

async fn those_that_take_part(place: &Place<'_>, narrowed: Outcome) {
    assert_eq!(outcome(labelled(place, "new").await), Refused);
    assert_eq!(update(place, "idle").await, narrowed);
    assert_eq!(update(place, "operated").await, Refused);
    assert_eq!(not_ready(place, "idle").await, Passes);
    assert_eq!(not_ready(place, "operated").await, Passes);
    assert_eq!(outcome(place.delete("deleted").await), Refused);
    // Without the policy an eviction goes past us; then its node removes the pod.
    let evicted = evict(place, "evicted", json!({"gracePeriodSeconds": 30})).await;
    assert_eq!(outcome(evicted), Passes);
    if let Some(outcome) = remove(place, "evicted").await {
        assert_eq!(outcome, narrowed);
    }
}

async fn rules(place: &Place<'_>, narrowed: Outcome) {
    let held = place.rules("/held");
    let created = http::create(place.client(), &place.rules(""), &rule("new")).await;
    assert_eq!(outcome(created), Refused);
    let changed = json!({"spec": {"rules": []}});
    let changed = http::patch(place.client(), &held, Asked::Merge, &changed).await;
    assert_eq!(outcome(changed), Refused);
    let deleted = http::delete(place.client(), &held, json!({})).await;
    assert_eq!(outcome(deleted), Passes);
    let freed = json!({"metadata": {"finalizers": []}});
    let freed = http::patch(place.client(), &held, Asked::Merge, &freed).await;
    assert_eq!(outcome(freed), narrowed);
}

/// A namespace whose pods do not take part goes while no replica runs.
async fn a_namespace_without_pods_that_take_part_goes(world: &World) {
    let other = world.namespace("down-other").await;
    unlabelled(&other, "other").await.unwrap();
    world.kill();
    let path = format!("/api/v1/namespaces/{}", other.namespace);
    http::delete(world.client(), &path, json!({}))
        .await
        .unwrap();
    world.until_missing(&path).await;
    world.revive();
    world.until_told().await;
}

/// Where the API server has policies, the policy of the manifest keeps protected pods while no
/// replica runs, lets the pods of others go, and refuses nothing while a replica runs.
async fn with_the_policy(place: &Place<'_>) {
    let paths = apply_policy(place).await;
    if paths.is_empty() {
        println!("podops: no ValidatingAdmissionPolicy here");
        return;
    }
    place.serving(&["guarded", "drained"]).await;
    unlabelled(place, "other-drained").await.unwrap();
    place.world.kill();
    // API servers learn of the policy by a watch.
    let dry_run = json!({"dryRun": ["All"]});
    while outcome(evict(place, "guarded", dry_run.clone()).await) == Passes {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let refused = evict(place, "guarded", json!({})).await;
    match refused {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 403, "{status:?}"),
        other => panic!("{other:?}"),
    }
    let other = evict(place, "other-drained", json!({})).await;
    assert_eq!(outcome(other), Passes);
    assert!(!place.pod("guarded").await.is_deleting);
    place.world.revive();
    // As `kubectl drain`: again and again, until it is gone.
    loop {
        match evict(place, "drained", json!({})).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 404 => break,
            // The webhook is not served yet, or its refusal says when to try again.
            Err(kube::Error::Api(status)) => {
                let is_expected = status.code == 429 || status.message.contains(EVICTION_POLICY);
                assert!(is_expected, "{status:?}");
            }
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    place.until_gone("drained").await;
    remove_policy(place, &paths).await;
    println!("real server: evictions under the policy of deploy/podops-evictions.yaml");
}

/// Removes the policy from these paths.
pub(super) async fn remove_policy(place: &Place<'_>, paths: &[String]) {
    for path in paths.iter().rev() {
        http::delete(place.client(), path, json!({})).await.unwrap();
    }
}

/// Applies the policy that refuses evictions which no controller has allowed; the paths of its objects, none where API
/// servers do not know such policies.
pub(super) async fn apply_policy(place: &Place<'_>) -> Vec<String> {
    let text = fs::read_to_string(repository().join("deploy/podops-evictions.yaml")).unwrap();
    let mut paths = Vec::new();
    for document in text.split("\n---\n").skip(1) {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let plural = match object["kind"].as_str().unwrap() {
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
            _ => "validatingadmissionpolicybindings",
        };
        let path = format!("{REGISTERED}/{plural}");
        match http::create(place.client(), &path, &object).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 501) => {
                return Vec::new();
            }
            made => drop(made.unwrap()),
        }
        paths.push(format!("{path}/{EVICTION_POLICY}"));
    }
    paths
}
