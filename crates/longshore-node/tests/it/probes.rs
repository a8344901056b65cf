//! Probes of real processes, and addresses of pods.

use std::collections::BTreeSet;

use futures::StreamExt;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api,
    runtime::{
        WatchStreamExt,
        watcher::{Config, watcher},
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::node_rig::{PATIENCE, Rig, is, script};

/// A pod that runs until it is stopped, with a probe.
fn probed(program: &str, kind: &str, probe: Value) -> Value {
    let mut spec = script(program);
    spec["restartPolicy"] = json!("Always");
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["containers"][0][kind] = probe;
    spec
}

#[tokio::test]
async fn a_container_is_ready_when_a_command_in_it_says_so() {
    let rig = Rig::new();
    let node = rig.start().await;
    // The path is in the container's own file system, where there is one.
    let flag = rig.path().join("flag");
    let flag = flag.display();
    let probe = json!({
        "exec": {"command": ["sh", "-c", format!("test \"$COLOR\" = blue && test -e {flag}")]},
        "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 1,
    });
    let program = format!("mkdir -p $(dirname {flag}); sleep 2; touch {flag}; sleep 600");
    let mut spec = probed(&program, "readinessProbe", probe);
    spec["containers"][0]["env"] = json!([{"name": "COLOR", "value": "blue"}]);
    rig.run("slow", spec).await;
    let status = rig.until_phase("slow", "Running").await;
    assert!(is(&status, "Ready", "False"), "{status}");
    assert_eq!(status["containerStatuses"][0]["started"], true);
    let status = rig.until("slow", "ready", |s| is(s, "Ready", "True")).await;
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    node.stop().await;
}

#[tokio::test]
async fn a_container_that_fails_its_probe_runs_anew() {
    let rig = Rig::new();
    let node = rig.start().await;
    for (name, kind) in [("dead", "livenessProbe"), ("stillborn", "startupProbe")] {
        let probe = json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 1});
        // A program that does not listen is killed after its grace.
        let spec = probed("trap '' TERM; while :; do sleep 1; done", kind, probe);
        rig.run(name, spec).await;
        let status = rig
            .until(name, "again", |s| {
                s["containerStatuses"][0]["restartCount"].as_u64() >= Some(1)
            })
            .await;
        let last = &status["containerStatuses"][0]["lastState"]["terminated"];
        assert_eq!(last["exitCode"], 137, "{status}");
    }
    node.stop().await;
}

/// Answers every connection with an HTTP status.
async fn answer(listener: TcpListener, code: u16) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = [0_u8; 512];
        let n = stream.read(&mut request).await.expect("a request");
        assert!(request[..n].starts_with(b"GET /healthz?a=b HTTP/1.1\r\n"));
        let text = format!("HTTP/1.1 {code} X\r\nContent-Length: 0\r\n\r\n");
        drop(stream.write_all(text.as_bytes()).await);
    }
}

#[tokio::test]
async fn pods_have_addresses_of_their_own_at_which_they_are_probed() {
    let rig = Rig::new();
    let node = rig.start().await;
    let http = json!({"httpGet": {"path": "/healthz?a=b", "port": "web"}, "periodSeconds": 1});
    let mut ips = Vec::new();
    for name in ["good", "bad"] {
        let mut spec = probed("echo $POD_IP; sleep 600", "readinessProbe", http.clone());
        spec["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 20080}]);
        spec["containers"][0]["env"] =
            json!([{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
        rig.run(name, spec).await;
        let status = rig.until_phase(name, "Running").await;
        ips.push(status["podIP"].as_str().expect("an address").to_owned());
        assert_eq!(status["hostIP"], "127.0.0.1");
    }
    assert_ne!(ips[0], ips[1]);
    // The port is the same: each pod has its own.
    for (ip, code) in ips.iter().zip([200, 503]) {
        let listener = TcpListener::bind((ip.as_str(), 20080))
            .await
            .expect("bound");
        tokio::spawn(answer(listener, code));
    }
    rig.until("good", "ready", |s| is(s, "Ready", "True")).await;
    let bad = rig.until_phase("bad", "Running").await;
    assert!(is(&bad, "Ready", "False"), "{bad}");
    let log = node
        .log("good", longshore_node::LogOptions::default())
        .await;
    assert!(log.contains(&ips[0]), "{log}");
    node.stop().await;
}

#[tokio::test]
async fn a_gate_keeps_a_pod_from_being_ready() {
    let rig = Rig::new();
    let node = rig.start().await;
    let mut spec = script("sleep 600");
    spec["readinessGates"] = json!([{"conditionType": "example.com/served"}]);
    rig.run("gated", spec).await;
    let status = rig
        .until("gated", "runs", |s| is(s, "ContainersReady", "True"))
        .await;
    assert!(is(&status, "Ready", "False"), "{status}");
    let gate = |status: &str| json!({"status": {"conditions": [{"type": "example.com/served", "status": status, "lastTransitionTime": "2040-01-01T00:00:00Z"}]}});
    for (value, wanted) in [("True", "True"), ("False", "False")] {
        let patch = kube::api::Patch::Strategic(gate(value));
        let params = kube::api::PatchParams::default();
        rig.pods()
            .patch_status("gated", &params, &patch)
            .await
            .expect("patched");
        let status = rig
            .until("gated", "follows", |s| is(s, "Ready", wanted))
            .await;
        let ready = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|c| c["type"] == "Ready");
        let since = ready.map(|c| &c["lastTransitionTime"]);
        assert_eq!(
            since,
            Some(&json!("2040-01-01T00:00:00Z")),
            "as the gate says"
        );
        assert!(
            is(&status, "example.com/served", value),
            "the gate stays its owner's"
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn replicas_stand_side_by_side_behind_a_service() {
    let rig = Rig::new();
    let node = rig.start().await;
    let labels = json!({"app": "web"});
    rig.create::<Service>(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 20081}]},
    }))
    .await;
    let mut pod = script("sleep 600");
    pod["restartPolicy"] = json!("Always");
    rig.create::<Deployment>(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }))
    .await;
    let slices = Api::<EndpointSlice>::default_namespaced(rig.client.clone());
    let mut events = Box::pin(
        watcher(slices, Config::default())
            .default_backoff()
            .applied_objects(),
    );
    let addresses = async {
        while let Some(slice) = events.next().await {
            let endpoints = slice.expect("a slice").endpoints.into_iter();
            let ready =
                endpoints.filter(|it| it.conditions.as_ref().and_then(|it| it.ready) == Some(true));
            let addresses: BTreeSet<String> = ready.flat_map(|it| it.addresses).collect();
            if addresses.len() == 3 {
                return addresses;
            }
        }
        BTreeSet::new()
    };
    let addresses = tokio::time::timeout(PATIENCE, addresses)
        .await
        .expect("three pods serve");
    assert!(
        addresses
            .iter()
            .all(|it| it.starts_with("127.") && it != "127.0.0.1"),
        "{addresses:?}"
    );
    node.stop().await;
}
