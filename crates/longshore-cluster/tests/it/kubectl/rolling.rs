//! Deployments and services as people work with them: create, roll out, undo, restart, scale, expose.

use serde_json::Value;

use super::script::Script;
use crate::{
    harness::{Api, eventually},
    rollouts::play_node,
};

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one script")]
async fn kubectl_rolls_out_and_back() {
    let Some(script) = Script::start("rolling") else {
        return;
    };
    let api = Api::new(script.cluster());
    let _node = play_node(&api).await;
    let made = "deployment.apps/web created";
    script
        .expect(
            "create deployment web --image=i:1 --replicas=3 --port=80",
            made,
        )
        .await;
    let done = "deployment \"web\" successfully rolled out";
    let wait = "rollout status deployment/web --timeout=60s";
    script.expect(wait, done).await;
    script
        .expect(
            "wait --for=condition=Available deployment/web --timeout=60s",
            "condition met",
        )
        .await;
    script.expect("get deployment web", "3/3").await;

    script
        .expect("set image deployment/web i=i:2", "image updated")
        .await;
    script.expect(wait, done).await;
    let history = script.feed("rollout history deployment/web", "").await;
    history.says("1 ").says("2 ");
    script
        .expect("rollout history deployment/web --revision=1", "i:1")
        .await;
    script
        .expect("rollout undo deployment/web", "rolled back")
        .await;
    script.expect(wait, done).await;
    let image = "get deployment web -o jsonpath={.spec.template.spec.containers[0].image}";
    script.expect(image, "i:1").await;
    script
        .expect("rollout undo deployment/web --to-revision=2", "rolled back")
        .await;
    script.expect(wait, done).await;
    script.expect(image, "i:2").await;
    script
        .expect("rollout restart deployment/web", "restarted")
        .await;
    script.expect(wait, done).await;
    script
        .expect("rollout pause deployment/web", "paused")
        .await;
    script
        .expect("set image deployment/web i=i:3", "image updated")
        .await;
    script
        .expect("rollout resume deployment/web", "resumed")
        .await;
    script.expect(wait, done).await;

    script
        .expect("scale deployment web --replicas=5", "scaled")
        .await;
    script
        .expect(
            "wait --for=jsonpath={.status.availableReplicas}=5 deployment/web --timeout=60s",
            "condition met",
        )
        .await;
    script
        .expect(
            "expose deployment web --port=8080 --target-port=80",
            "exposed",
        )
        .await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dweb";
    let all_serve = |_, list: &Value| {
        let slices = list["items"].as_array().into_iter().flatten();
        let endpoints = slices.flat_map(|it| it["endpoints"].as_array().into_iter().flatten());
        endpoints
            .filter(|it| it["conditions"]["ready"] == true)
            .count()
            == 5
    };
    eventually(&api, slices, all_serve).await;
    script
        .expect("describe deployment web", "ScalingReplicaSet")
        .await;
    script.expect("delete deployment web", "deleted").await;
    script
        .feed("wait --for=delete pod -l app=web --timeout=60s", "")
        .await;
}

const SET: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: i, image: 'i:1'}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_rolls_stateful_sets_too() {
    let Some(script) = Script::start("rolling sets") else {
        return;
    };
    let _node = play_node(&Api::new(script.cluster())).await;
    script.feed("create -f -", SET).await;
    let wait = "rollout status statefulset/db --timeout=60s";
    script.expect(wait, "roll out complete: 2").await;
    script
        .expect("set image statefulset/db i=i:2", "image updated")
        .await;
    script.expect(wait, "roll out complete: 2").await;
    script.expect("rollout history statefulset/db", "2").await;
    script
        .expect("rollout undo statefulset/db", "rolled back")
        .await;
    script.expect(wait, "roll out complete: 2").await;
    let image = "get pod db-1 -o jsonpath={.spec.containers[0].image}";
    script.expect(image, "i:1").await;
    script
        .expect("scale statefulset db --replicas=1", "scaled")
        .await;
    script
        .feed("wait --for=delete pod/db-1 --timeout=60s", "")
        .await;
}
