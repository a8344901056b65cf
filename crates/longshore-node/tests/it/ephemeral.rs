//! Containers that are added to a running pod.

use futures::TryStreamExt;
use kube::api::{Patch, PatchParams};
use longshore_node::LogOptions;
use serde_json::{Value, json};

use crate::node_rig::{Rig, script};

async fn add(rig: &Rig, container: &Value) {
    let patch = json!({"spec": {"ephemeralContainers": [container]}});
    let (part, params) = ("ephemeralcontainers", PatchParams::default());
    let patched = rig
        .pods()
        .patch_subresource(part, "target", &params, &Patch::Strategic(patch))
        .await;
    patched.expect("patched");
}

/// The end of an added container.
fn end<'s>(status: &'s Value, name: &str) -> &'s Value {
    let mut added = status["ephemeralContainerStatuses"]
        .as_array()
        .into_iter()
        .flatten();
    let found = added.find(|it| it["name"] == name);
    &found.unwrap_or(&Value::Null)["state"]["terminated"]
}

#[tokio::test]
async fn an_added_container_runs_once_and_the_pod_goes_on() {
    let rig = Rig::new();
    let node = rig.start().await;
    rig.run("target", script("exec sleep 600")).await;
    rig.until_phase("target", "Running").await;
    let command = ["sh", "-c", "echo polo; exit 3"];
    let debug = json!({"name": "debug", "image": "any", "command": command});
    add(&rig, &debug).await;
    let status = rig
        .until("target", "the end", |it| end(it, "debug").is_object())
        .await;
    assert_eq!(end(&status, "debug")["exitCode"], 3, "{status:#}");
    let (options, container) = (LogOptions::default(), Some("debug"));
    let log = node.node.logs("default", "target", container, &options);
    let log: Vec<_> = log
        .await
        .expect("a log")
        .try_collect()
        .await
        .expect("reads");
    assert_eq!(log.concat(), b"polo\n");

    let from = json!([{"configMapRef": {"name": "missing"}}]);
    let bad = json!({"name": "bad", "image": "any", "command": command, "envFrom": from});
    add(&rig, &bad).await;
    let status = rig
        .until("target", "the refusal", |it| end(it, "bad").is_object())
        .await;
    assert_eq!(end(&status, "bad")["reason"], "StartError", "{status:#}");
    let message = end(&status, "bad")["message"].as_str().unwrap_or_default();
    assert!(message.contains("\"missing\" not found"), "{message}");
    assert_eq!(status["phase"], "Running");
    let main = &status["containerStatuses"][0];
    assert_eq!(
        (&main["restartCount"], &main["ready"]),
        (&json!(0), &json!(true))
    );
    node.stop().await;
}
