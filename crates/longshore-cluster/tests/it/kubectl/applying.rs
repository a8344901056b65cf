//! Client-side apply, and what it would change.

use super::script::Script;

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

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies() {
    let Some(script) = Script::start("applying") else {
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

    // Containers merge by their names: one that another client has added stays.
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

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_takes_away_what_a_manifest_no_longer_has() {
    let Some(script) = Script::start("pruning") else {
        return;
    };
    script.feed("apply -f -", MANIFEST).await.says("created");
    // The manifest does not own a field that another client has set.
    script
        .expect(
            r#"patch configmap applied -p {"data":{"other":"1"}}"#,
            "patched",
        )
        .await;
    let less = MANIFEST
        .replace("color: blue", "shape: round")
        .replace("      - {name: two, image: b}\n", "");
    let differs = script.feed_refused("diff -f -", &less).await;
    differs.says("-  color: blue").says("+  shape: round");
    let applied = script.feed("apply -f -", &less).await;
    applied
        .says("configmap/applied configured")
        .says("deployment.apps/applied configured");
    script.feed("diff -f -", &less).await;
    let data = "get configmap applied -o jsonpath={.data}";
    script
        .expect(data, r#"{"other":"1","shape":"round"}"#)
        .await;
    let names = "get deployment applied -o jsonpath={.spec.template.spec.containers[*].name}.";
    script.expect(names, "\none.").await;
    script
        .expect("apply view-last-applied configmap applied", "shape: round")
        .await;
    // A manifest of several objects as one List, which kubectl validates in protobuf only.
    let list = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: l1}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: l2}}
";
    let applied = script.feed("apply -f -", list).await;
    applied
        .says("configmap/l1 created")
        .says("configmap/l2 created");
    script
        .feed("create -f -", &list.replace("name: l", "name: k"))
        .await
        .says("configmap/k2 created");
    script
        .feed_refused("apply --server-side -f -", MANIFEST)
        .await
        .says("Server-side apply not available on the server");
}
