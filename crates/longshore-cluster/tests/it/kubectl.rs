//! kubectl believes the cluster. Needs a kubectl, 1.34 for choice: the one named by `KUBECTL`, or
//! else the one on the path; without any these tests say so and pass.

mod script;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use longshore_cluster::{LogError, LogOptions, LogStream, PodLogs};
use serde_json::{Value, json};

use script::Script;

const MANIFEST: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: applied}
data: {color: blue}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: applied}
spec:
  replicas: 1
  selector: {matchLabels: {app: applied}}
  template:
    metadata: {labels: {app: applied}}
    spec:
      containers:
      - {name: one, image: a}
      - {name: two, image: b}
";

/// Objects to create. (`kubectl create KIND` sends protobuf, which this server does not read.)
const OBJECTS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: one}
data: {a: '1'}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: other}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: i, image: i}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_finds_its_way() {
    let Some(script) = Script::start() else {
        return;
    };
    script
        .expect("version", "Server Version: v1.34.2+longshore")
        .await;
    script.expect("api-resources", "deploy ").await;
    script
        .expect("api-resources --namespaced=false", "PersistentVolume")
        .await;
    script
        .expect("api-versions", "coordination.k8s.io/v1")
        .await;
    script.expect("get namespaces", "kube-system ").await;
    script.expect("get all", "No resources found").await;
    script
        .expect(
            "explain pods.spec.containers.image",
            "FIELD: image <string>",
        )
        .await;
    script
        .expect("explain deployments --recursive", "revisionHistoryLimit")
        .await;
    script.expect("auth can-i delete nodes", "yes").await;
    script.expect("auth whoami", "longshore-admin").await;
    script.expect("get --raw /readyz", "ok").await;
    script
        .refuse("get nothings", "the server doesn't have a resource type")
        .await;
    script
        .refuse("get pod missing", "(NotFound): pods \"missing\" not found")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_makes_changes_and_removes() {
    let Some(script) = Script::start() else {
        return;
    };
    let created = script.feed("create -f -", OBJECTS).await;
    created.says("configmap/one created");
    created.says("deployment.apps/web created");
    let again = script.feed_refused("create -f -", OBJECTS).await;
    again.says("(AlreadyExists)");
    script
        .expect("get configmap one -o jsonpath={.data.a}", "1")
        .await;
    script.expect("get configmaps", "NAME").await;
    script
        .expect("get configmaps --chunk-size=1 -o name", "configmap/one")
        .await;
    script
        .expect("get configmap one -o yaml", "kind: ConfigMap")
        .await;
    script.expect("describe configmap one", "Data").await;
    script
        .expect("label configmap one color=red", "labeled")
        .await;
    script
        .expect("annotate configmap one why=because", "annotated")
        .await;
    script
        .expect("get configmaps -l color=red -o name", "configmap/one")
        .await;
    script.expect("get configmaps -L color", "red").await;
    script
        .expect(r#"patch configmap one -p {"data":{"b":"2"}}"#, "patched")
        .await;
    script
        .expect(
            r#"patch configmap one --type=merge -p {"data":{"b":"3"}}"#,
            "patched",
        )
        .await;
    let replace =
        r#"patch configmap one --type=json -p [{"op":"replace","path":"/data/b","value":"4"}]"#;
    script.expect(replace, "patched").await;
    script
        .expect("get configmap one -o jsonpath={.data.b}", "4")
        .await;

    script
        .expect("scale deployment web --replicas=5", "scaled")
        .await;
    script.expect("get deployment web", "0/5").await;
    script.expect("get deployment web -o wide", "app=web").await;
    script.expect("describe deployment web", "5 desired").await;
    script
        .expect("set image deployment/web i=j", "image updated")
        .await;
    script.expect("get -A secrets", "Opaque").await;
    script
        .expect("delete configmap one --wait", "deleted")
        .await;
    script.expect("delete deployment web", "deleted").await;
    script.expect("delete namespace other", "deleted").await;
    script.refuse("get namespace other", "(NotFound)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies() {
    let Some(script) = Script::start() else {
        return;
    };
    let created = script.feed("apply -f -", MANIFEST).await;
    created
        .says("configmap/applied created")
        .says("deployment.apps/applied created");
    let again = script.feed("apply -f -", MANIFEST).await;
    again
        .says("configmap/applied unchanged")
        .says("deployment.apps/applied unchanged");
    let dry = MANIFEST.replace("blue", "green");
    script
        .feed("apply --dry-run=server -f -", &dry)
        .await
        .says("configured (server dry run)");
    script
        .expect("get configmap applied -o jsonpath={.data.color}", "blue")
        .await;

    // Containers merge by their names: one that somebody else has added stays.
    let add = r#"{"spec":{"template":{"spec":{"containers":[{"name":"three","image":"c"}]}}}}"#;
    script
        .expect(&format!("patch deployment applied -p {add}"), "patched")
        .await;
    let changed = MANIFEST.replace("image: a", "image: changed");
    script
        .feed("apply -f -", &changed)
        .await
        .says("deployment.apps/applied configured");
    let container = |name: &str| {
        let path =
            "{.spec.template.spec.containers[?(@.name=='NAME')].image}".replace("NAME", name);
        format!("get deployment applied -o jsonpath={path}")
    };
    script.expect(&container("one"), "changed").await;
    script.expect(&container("three"), "c").await;

    let odd = MANIFEST.replace("replicas: 1", "replicsa: 1");
    script
        .feed_refused("apply -f -", &odd)
        .await
        .says("strict decoding error: unknown field \"spec.replicsa\"");
    let warned = script.feed("apply --validate=warn -f -", &odd).await;
    warned.says("Warning: unknown field \"spec.replicsa\"");
    script
        .feed("delete -f -", MANIFEST)
        .await
        .says("deployment.apps \"applied\" deleted");
}

/// Writes a line each time it is asked to.
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
    let Some(script) = Script::start() else {
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

/// Longest that one command of a script may take.
const PATIENCE: Duration = Duration::from_secs(60);
