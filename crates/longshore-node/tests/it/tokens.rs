//! The token of its service account, as the program of a pod finds it.

use longshore_node::{LogOptions, NodeConfig, PodsLifetime};
use serde_json::json;

use crate::{
    node_rig::{Rig, script},
    shim_rig::eventually,
};

/// Where clients of all languages look.
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

#[tokio::test]
async fn a_program_finds_what_it_needs_to_speak_to_the_api_server() {
    let rig = Rig::with_accounts();
    let node = rig
        .start_with(NodeConfig {
            api_server: Some(([127, 0, 0, 1], 7443).into()),
            ..rig.config(PodsLifetime::DieWithNode)
        })
        .await;
    let program = format!(
        "cd {TOKEN_DIR} && cat namespace && echo && cat ca.crt && echo && tr -cd . < token && echo; \
         touch {TOKEN_DIR}/x 2>/dev/null || echo read-only; echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT"
    );
    rig.run("client", script(&program)).await;
    rig.until_phase("client", "Succeeded").await;
    let log = node.log("client", LogOptions::default()).await;
    if node.has_mounts() {
        assert_eq!(log, "default\nPEM\n..\nread-only\n127.0.0.1:7443\n");
    } else {
        // The pod runs all the same.
        assert!(log.ends_with("127.0.0.1:7443\n"), "{log}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_comes_back_renews_the_tokens_of_pods_that_run() {
    let rig = Rig::with_accounts();
    let config = rig.config(PodsLifetime::OutliveNode);
    let first = rig.start_with(config.clone()).await;
    if !first.has_mounts() {
        return;
    }
    let dir = rig.path().display();
    let token = format!("{TOKEN_DIR}/token");
    // Never without a token, whenever it looks.
    let mut spec = script(&format!(
        "first=$(cat {token}); echo started > {dir}/started; while now=$(cat {token}); do \
         test -z \"$now\" && exit 3; test \"$now\" = \"$first\" || exit 0; sleep 0.01; done; exit 4"
    ));
    spec["volumes"] = json!([{"name": "dir", "hostPath": {"path": rig.path()}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "dir", "mountPath": rig.path()}]);
    rig.run("lasting", spec).await;
    rig.until_phase("lasting", "Running").await;
    eventually("the program has its token", || {
        rig.path().join("started").exists()
    });
    first.kill().await;
    let second = rig.start_with(config).await;
    rig.until_phase("lasting", "Succeeded").await;
    second.stop().await;
}
