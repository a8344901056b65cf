//! Webhooks of rules that accept every request and never answer: pods under other rules are not
//! delayed, and the controller ends at once after SIGTERM.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use longshore_api::podops::OperationLabel;
use longshore_test::{Conduct, ForeignServer};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        kills::number,
        replica::until,
        silent::{Silence, Times, UNAFFECTED, still_open},
    },
    http,
    kubelet::Pace,
    place::Place,
    world::World,
};
use crate::cluster::TestCluster;

/// Rules with a silent webhook, each for one pod: more than the questions of a namespace that are in flight.
const N_AFFECTED: usize = 20;
const N_UNAFFECTED: u64 = 10;

fn begin() -> Value {
    json!({
        OperationLabel::Operating.of("a"): "1",
        OperationLabel::OperationType.of("a"): "update",
    })
}

/// The name of a pod that may be operated on.
fn allowed(pod: &Pod) -> Option<String> {
    let operate = OperationLabel::Operate.of("a");
    let is_allowed = pod.labels().contains_key(&operate);
    is_allowed.then(|| pod.name_any())
}

/// How long each of so many pods waits until it may be operated on, one after the other.
async fn times(place: &Place<'_>, name: &str, n: u64) -> Vec<std::time::Duration> {
    let names: Vec<String> = (0..n).map(|n| format!("{name}-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    place.serving(&names).await;
    let pods = Api::namespaced(place.client().clone(), &place.namespace);
    let pods = Times::follow(pods, allowed);
    let mut times = Vec::new();
    for name in names {
        let began = Instant::now();
        place.label(name, begin()).await;
        times.push(pods.of(name).await - began);
    }
    times
}

/// Makes a rule for one pod, which asks a webhook.
async fn rule_of(place: &Place<'_>, name: &str, url: &str) {
    let rule = json!({
        "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"of": name}},
            "rules": [{"name": "hook", "webhook": {"clientConfig": {"url": url}}}],
        },
    });
    let made = http::create(place.client(), &place.rules(""), &rule).await;
    made.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_webhook_of_a_rule_delays_no_pod_of_another_rule() {
    // A real API server has the webhooks of one controller only, and another test uses them.
    let world = World::on(TestCluster::embedded().await, Pace::default()).await;
    let webhook = ForeignServer::start(|_| Conduct::hangs()).await.unwrap();
    let other = world.namespace("other").await;
    let check =
        json!([{"name": "check", "labelCheck": {"requires": {"matchLabels": {"app": "web"}}}}]);
    other.rule("checks", check).await;
    let n_unaffected = number(UNAFFECTED, N_UNAFFECTED);
    times(&other, "first", 1).await;
    let alone = times(&other, "alone", n_unaffected).await;

    let silent = world.namespace("silent").await;
    let names: Vec<String> = (0..N_AFFECTED).map(|n| format!("silent-{n}")).collect();
    for name in &names {
        rule_of(&silent, name, &webhook.url()).await;
        let mut pod = world.pod(name);
        pod["metadata"]["labels"]["of"] = json!(name);
        let made = http::create(silent.client(), &silent.core("pods"), &pod).await;
        made.unwrap();
        silent.until_serving(name).await;
        silent.label(name, begin()).await;
    }
    until("the silent webhook is asked", || !webhook.open().is_empty()).await;
    let asked = webhook.open();
    let beside = times(&other, "beside", n_unaffected).await;
    let silence = Silence {
        system: "webhook of a rule",
        n_affected: names.len(),
        n_open: still_open(&webhook, &asked),
        alone,
        beside,
    };
    let began = Instant::now();
    world.stop().await;
    silence.report(began.elapsed());
    world.end().await;
}
