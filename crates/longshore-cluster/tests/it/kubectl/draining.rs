//! `kubectl drain`: evictions, one after the other where a budget says so.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::script::Script;

const BUDGET: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
";

const NODES: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
";

/// A pod that runs and is ready.
async fn running(pods: &Api<Pod>, name: &str, node: &str) {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let patch = Patch::Strategic(status);
    pods.patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// A node and a workload: what is to go goes, and comes up elsewhere.
async fn keep_up(pods: Api<Pod>) {
    let mut n_moved = 0;
    loop {
        let Ok(all) = pods.list(&ListParams::default()).await else {
            continue;
        };
        for pod in all
            .items
            .iter()
            .filter(|it| it.metadata.deletion_timestamp.is_some())
        {
            let name = pod.metadata.name.as_deref().unwrap();
            let at_once = DeleteParams::default().grace_period(0);
            pods.delete(name, &at_once).await.unwrap();
            n_moved += 1;
            running(&pods, &format!("moved-{n_moved}"), "n2").await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_drains_a_node_as_its_budgets_allow() {
    let Some(script) = Script::start("draining") else {
        return;
    };
    script.feed("create -f -", NODES).await;
    script.feed("create -f -", BUDGET).await;
    let pods: Api<Pod> = Api::default_namespaced(script.cluster().client());
    for name in ["a", "b"] {
        running(&pods, name, "n1").await;
    }
    script
        .feed(
            "wait --for=jsonpath={.status.currentHealthy}=2 pdb/web --timeout=60s",
            "",
        )
        .await;
    script.expect("get pdb web", "web").await;
    let refusal = "drain n1 --force --timeout=2s";
    script
        .refuse(refusal, "violate the pod's disruption budget")
        .await;
    script.expect("get node n1", "SchedulingDisabled").await;
    running(&pods, "spare", "n2").await;
    let world = tokio::spawn(keep_up(pods.clone()));
    script
        .expect("drain n1 --force --timeout=100s", "node/n1 drained")
        .await;
    world.abort();
    let left = pods
        .list(&ListParams::default().fields("spec.nodeName=n1"))
        .await
        .unwrap();
    assert!(left.items.is_empty());
    script.expect("uncordon n1", "uncordoned").await;
}
