//! Watches, waiting, and logs.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use longshore_cluster::{LogError, LogOptions, LogStream, PodLogs};
use serde_json::{Value, json};

use super::script::Script;

/// Writes a line each time the test requests one.
struct Lines(tokio::sync::watch::Receiver<usize>);

#[async_trait]
impl PodLogs for Lines {
    async fn logs(&self, _: &Value, _: LogOptions) -> Result<LogStream, LogError> {
        Ok(lines(self.0.clone()).boxed())
    }
}

/// One line per change; ends when the sender is gone.
fn lines(
    changes: tokio::sync::watch::Receiver<usize>,
) -> impl futures::Stream<Item = std::io::Result<bytes::Bytes>> {
    futures::stream::unfold(changes, |mut changes| async move {
        changes.changed().await.ok()?;
        let line = format!("line {}\n", *changes.borrow());
        Some((Ok(line.into()), changes))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_watches_waits_and_follows() {
    let Some(script) = Script::start("streaming") else {
        return;
    };
    let (sender, receiver) = tokio::sync::watch::channel(0);
    script.cluster().set_pod_logs(Arc::new(Lines(receiver)));
    let pods: Api<Pod> = Api::default_namespaced(script.cluster().client());
    script
        .expect("run p --image=i --restart=Never", "pod/p created")
        .await;
    script.expect("get pods", "Pending").await;
    script.expect("describe pod p", "Status:").await;

    let mut watching = script.spawn("get pods -w");
    watching.line_with("Pending").await;
    let waiting = script.spawn("wait --for=condition=Ready pod/p --timeout=60s");
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "p", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    }});
    pods.patch_status("p", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    watching.line_with("1/1").await;
    waiting.end().await.says("condition met");

    script
        .expect(
            "wait --for=jsonpath={.status.phase}=Running pod/p --timeout=60s",
            "condition met",
        )
        .await;
    let mut following = script.spawn("logs -f p");
    // A line that is written before kubectl asks is not lost: the channel remembers it.
    sender.send(1).unwrap();
    following.line_with("line 1").await;
    sender.send(2).unwrap();
    following.line_with("line 2").await;
    drop(sender);
    following.end().await;

    let waiting = script.spawn("wait --for=delete pod/p --timeout=60s");
    script.expect("delete pod p --now", "deleted").await;
    waiting.end().await;
}
