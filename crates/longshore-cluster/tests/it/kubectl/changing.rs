//! Creating, patching, labelling, scaling, editing.

use super::script::Script;

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
async fn kubectl_makes_changes_and_removes() {
    let Some(script) = Script::start("changing") else {
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
async fn kubectl_edits_replaces_and_only_tries() {
    let Some(script) = Script::start("editing") else {
        return;
    };
    let map = "
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {color: blue}
";
    script
        .feed("create --dry-run=server -f -", map)
        .await
        .says("configmap/m created (server dry run)");
    script.refuse("get configmap m", "(NotFound)").await;
    script
        .feed("create -f -", map)
        .await
        .says("configmap/m created");
    script
        .expect("edit configmap m", "configmap/m edited")
        .await;
    script
        .expect("get configmap m -o jsonpath={.data.color}", "edited")
        .await;
    script
        .feed("replace -f -", &map.replace("blue", "green"))
        .await
        .says("configmap/m replaced");
    script
        .feed("replace --force -f -", map)
        .await
        .says("configmap/m replaced");
    script
        .expect(
            "label configmap m a=1 --dry-run=server",
            "labeled (server dry run)",
        )
        .await;
    script.expect("label configmap m a=1", "labeled").await;
    script
        .refuse("label configmap m a=2", "already has a value (1)")
        .await;
    script
        .expect("label configmap m a=2 --overwrite", "labeled")
        .await;
    script.expect("label configmap m a-", "unlabeled").await;
    script.expect("annotate configmap m note-", "annotat").await;
    let typo = map
        .replace("\ndata:", "\ndta:")
        .replace("name: m", "name: typo");
    script
        .feed_refused("create --validate=strict -f -", &typo)
        .await
        .says("unknown field \"dta\"");
    script
        .feed("create --validate=warn -f -", &typo)
        .await
        .says("Warning: unknown field \"dta\"");
    script
        .feed(
            "create --validate=ignore -f -",
            &typo.replace("name: typo", "name: typo2"),
        )
        .await
        .says("configmap/typo2 created");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_takes_nodes_out_of_service() {
    let Some(script) = Script::start("nodes") else {
        return;
    };
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}";
    script
        .feed("create -f -", node)
        .await
        .says("node/n1 created");
    script.expect("cordon n1", "cordoned").await;
    script.expect("get node n1", "SchedulingDisabled").await;
    script.expect("uncordon n1", "uncordoned").await;
    script
        .expect("taint nodes n1 busy=true:NoSchedule", "tainted")
        .await;
    script
        .expect("drain n1 --ignore-daemonsets --force", "node/n1 drained")
        .await;
}
