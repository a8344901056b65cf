//! Deletion: what becomes of owned objects, of pods with a grace period, of namespaces.

use super::script::Script;

/// An object that owns another one.
async fn family(script: &Script, name: &str) {
    let owner = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}");
    script.feed("create -f -", &owner).await;
    let uid = script
        .feed(
            &format!("get configmap {name} -o jsonpath={{.metadata.uid}}!"),
            "",
        )
        .await;
    let uid = uid.between("\n", "!");
    let owners = format!(
        "[{{apiVersion: v1, kind: ConfigMap, name: {name}, uid: {uid}, blockOwnerDeletion: true}}]"
    );
    let child = owner.replace("}", "-child, ownerReferences: ") + &owners + "}";
    script.feed("create -f -", &child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_removes_with_every_cascade() {
    let Some(script) = Script::start("removing") else {
        return;
    };
    family(&script, "b").await;
    script.expect("delete configmap b", "deleted").await;
    script
        .feed("wait --for=delete configmap/b-child --timeout=60s", "")
        .await;

    family(&script, "f").await;
    script
        .expect("delete configmap f --cascade=foreground", "deleted")
        .await;
    script.refuse("get configmap f-child", "(NotFound)").await;

    family(&script, "o").await;
    script
        .expect("delete configmap o --cascade=orphan", "deleted")
        .await;
    let orphan = "get configmap o-child -o jsonpath=owners={.metadata.ownerReferences}.";
    script.expect(orphan, "owners=.").await;

    script
        .expect(
            "delete configmap o-child --dry-run=server",
            "(server dry run)",
        )
        .await;
    script
        .expect("delete configmap --all", "\"o-child\" deleted")
        .await;
    script
        .refuse("delete configmap o-child", "(NotFound)")
        .await;
    script
        .expect("delete configmap o-child --ignore-not-found", "")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_removes_pods_with_and_without_grace() {
    let Some(script) = Script::start("grace") else {
        return;
    };
    // The pod is bound, so a kubelet has to stop it; this cluster has none.
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
";
    script.feed("create -f -", pod).await;
    script.expect("delete pod p --wait=false", "deleted").await;
    script.expect("get pod p", "Terminating").await;
    script
        .expect("delete pod p --grace-period=0 --force", "force deleted")
        .await;
    script.refuse("get pod p", "(NotFound)").await;
    script.feed("create -f -", pod).await;
    script
        .expect("delete pods --all --now --wait=false", "deleted")
        .await;
    script
        .expect(
            "get pod p -o jsonpath={.metadata.deletionGracePeriodSeconds}",
            "1",
        )
        .await;
    script.expect("create namespace n", "created").await;
    script.expect("create configmap m -n n", "created").await;
    script.expect("delete namespace n", "deleted").await;
    script.refuse("get configmap m -n n", "(NotFound)").await;
}
