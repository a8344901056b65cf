//! What `longshore uninstall --undo` needs: on a real API server with RBAC.

use std::path::Path;

use http::Method;
use serde_json::json;
use tokio::time::Instant;

use super::{LIMIT, is_skipped, tokens::Somebody};
use crate::{cluster::TestCluster, longshore, outcome};

async fn uninstall(cluster: &TestCluster, kubeconfig: &Path, flag: &str) -> (i32, String) {
    let mut command = longshore();
    command.args(["uninstall", "--role", "dags", flag, "-n"]);
    command.arg(&cluster.namespace);
    command.arg("--kubeconfig").arg(kubeconfig);
    let ended = tokio::task::spawn_blocking(move || outcome(&mut command));
    let (code, _, stderr) = ended.await.unwrap();
    (code, stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_read_and_delete_the_lease_of_a_role_may_undo_its_removal() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let admin = Somebody(cluster.admin.clone());
    let namespace = &cluster.namespace;
    let core = format!("/api/v1/namespaces/{namespace}");
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let rule = json!({
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "resourceNames": ["longshore-dags"], "verbs": ["get", "delete"],
    });
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "undo"});
    let subject = json!({"kind": "ServiceAccount", "name": "longshore", "namespace": namespace});
    for (path, object) in [
        (
            format!("{core}/serviceaccounts"),
            json!({"metadata": {"name": "longshore"}}),
        ),
        (
            format!("{rbac}/roles"),
            json!({"metadata": {"name": "undo"}, "rules": [rule]}),
        ),
        (
            format!("{rbac}/rolebindings"),
            json!({"metadata": {"name": "undo"}, "roleRef": role, "subjects": [subject]}),
        ),
    ] {
        admin.ask(Method::POST, &path, &object).await.unwrap();
    }
    let account = cluster.token().await;
    let (code, stderr) = uninstall(&cluster, &cluster.admin_kubeconfig(), "--yes").await;
    assert_eq!(code, 0, "{stderr}");
    // API servers hear of the role by a watch.
    let deadline = Instant::now() + LIMIT;
    loop {
        let (code, stderr) = uninstall(&cluster, &account, "--undo").await;
        if code == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{stderr}");
    }
    // There is nothing left to undo, and nothing more that may be read to say so.
    let (code, stderr) = uninstall(&cluster, &account, "--undo").await;
    assert!(code == 3 && stderr.contains("LS1109"), "{stderr}");
}
