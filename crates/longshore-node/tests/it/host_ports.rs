//! Pods that take ports of the host, bound to the node by somebody who does not look whether the ports are free.

use longshore_node::PodsLifetime;
use serde_json::{Value, json};

use crate::{
    hooks::until_event,
    node_rig::{Rig, script},
};

const MESSAGE: &str =
    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";

/// A pod that runs until it is asked to end.
async fn bind(rig: &Rig, name: &str, port: Value) {
    let mut spec = script("trap 'exit 0' TERM; while :; do sleep 0.05; done");
    spec["nodeName"] = json!("node-0");
    spec["containers"][0]["ports"] = json!([port]);
    rig.run(name, spec).await;
}

async fn until_rejected(rig: &Rig, name: &str) {
    let status = rig.until_phase(name, "Failed").await;
    assert_eq!(status["reason"], "NodePorts");
    assert_eq!(status["message"], format!("Pod was rejected: {MESSAGE}"));
}

#[tokio::test]
async fn a_port_of_the_host_is_one_pods_until_it_has_ended() {
    let rig = Rig::new();
    let node = rig.start().await;
    let port = || json!({"containerPort": 80, "hostPort": 8080});
    bind(&rig, "first", port()).await;
    rig.until_phase("first", "Running").await;
    let local = json!({"containerPort": 1, "hostPort": 8080, "hostIP": "127.0.0.1"});
    bind(&rig, "second", local).await;
    until_rejected(&rig, "second").await;
    until_event(&rig, "NodePorts").await;
    let udp = json!({"containerPort": 80, "hostPort": 8080, "protocol": "UDP"});
    bind(&rig, "other-protocol", udp).await;
    rig.until_phase("other-protocol", "Running").await;
    rig.delete("first").await;
    rig.until_gone("first").await;
    bind(&rig, "third", port()).await;
    rig.until_phase("third", "Running").await;
    node.stop().await;
}

#[tokio::test]
async fn a_pod_that_has_begun_keeps_its_port_over_a_restart_of_the_node() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::OutliveNode);
    let first = rig.start_with(config.clone()).await;
    let port = || json!({"containerPort": 80, "hostPort": 8080});
    bind(&rig, "runs", port()).await;
    rig.until_phase("runs", "Running").await;
    first.kill().await;
    // Lists have it first.
    bind(&rig, "a-newcomer", port()).await;
    let second = rig.start_with(config).await;
    until_rejected(&rig, "a-newcomer").await;
    let status = rig.until_phase("runs", "Running").await;
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    rig.delete("runs").await;
    rig.until_gone("runs").await;
    second.stop().await;
}
