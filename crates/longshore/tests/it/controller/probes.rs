//! The probes of a controller, where the peer's configuration has them.

use std::fs;

use serde_json::json;

use super::replica::{Plan, free_port, page};
use crate::cluster::TestCluster;

#[tokio::test(flavor = "multi_thread")]
async fn probes_find_the_process_where_the_peers_configuration_says_too() {
    let cluster = TestCluster::embedded().await;
    let address = format!("127.0.0.1:{}", free_port());
    let config = json!({"executor": {"healthProbeBindAddress": address}});
    let file = cluster.folder.path().join("config.yaml");
    fs::write(&file, config.to_string()).unwrap();
    let mut plan = Plan::of(&cluster, "tasks");
    plan.config = Some(file);
    let mut replica = plan.spawn("probed");
    let ready = replica.ready();
    for address in [&address, ready["metrics"].as_str().unwrap()] {
        for path in ["/healthz", "/readyz"] {
            let answer = page(address, path).await;
            assert!(answer.contains("200 OK"), "{address}{path}: {answer}");
            assert!(
                answer.trim_end().ends_with("ok"),
                "{address}{path}: {answer}"
            );
        }
    }
    assert_eq!(replica.stop(), Some(0));
}
