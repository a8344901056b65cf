//! A node is drained of the pods of a StatefulSet: the next ones have the same names.

use std::collections::BTreeSet;

use futures::future::join_all;
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, LABEL_TO_DELETE};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::shop::{LOOK, LOOKS, Shop, is_ready, name, uids};
use crate::{cluster::config, service_process::Service};

const REPLICAS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_is_drained_and_its_next_pods_are_left_alone() {
    let dags = TempDir::new().unwrap();
    let service = Service::start_ephemeral(dags.path());
    let kubeconfig = service.ready("kubeconfig");
    let client = kube::Client::try_from(config(kubeconfig.as_ref()).await).unwrap();
    let shop = Shop::empty(&client, "stateful").await;
    let container = json!({
        "name": "c", "image": "host", "command": ["sleep", "3600"],
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set"},
        "spec": {
            "replicas": REPLICAS,
            "serviceName": "set",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "set"}},
            "template": {
                "metadata": {"labels": {"app": "set", LABEL_CONTROL: CONTROLLED}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
            },
        },
    });
    shop.create(&shop.apps("statefulsets"), set).await;
    let mut seen = BTreeSet::new();
    let old = until_all_serve(&shop, &mut seen, &BTreeSet::new()).await;
    join_all(old.iter().map(|pod| shop.evict(name(pod)))).await;
    let new = until_all_serve(&shop, &mut seen, &uids(&old)).await;
    assert_eq!(seen.len(), 2 * REPLICAS, "each was replaced once");
    for pod in &new {
        let labels = &pod["metadata"]["labels"];
        assert_eq!(labels[LABEL_TO_DELETE], Value::Null, "{}", name(pod));
    }
}

/// Waits until all are Ready, and none of these; notes all that there are meanwhile.
async fn until_all_serve(
    shop: &Shop,
    seen: &mut BTreeSet<String>,
    old: &BTreeSet<String>,
) -> Vec<Value> {
    let mut last = Vec::new();
    for _ in 0..LOOKS {
        last = shop.pods().await;
        seen.extend(uids(&last));
        let ready = last.iter().filter(|pod| is_ready(pod)).count();
        if last.len() == REPLICAS && ready == REPLICAS && uids(&last).is_disjoint(old) {
            return last;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("not in time: {last:#?}");
}
