//! All pods of a StatefulSet are evicted at once, by several people: as many stay Ready as their disruption budget wants.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;

use super::shop::{LOOK, LOOKS, Shop, is_ready, name, uids};
use crate::{cluster::config, service_process::Service};

const REPLICAS: usize = 3;
const MIN_AVAILABLE: usize = 2;
/// Ten times a second.
const SAMPLE: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn evictions_by_many_leave_as_many_pods_ready_as_the_budget_wants() {
    let dags = TempDir::new().unwrap();
    let service = Service::start_ephemeral(dags.path());
    let kubeconfig = service.ready("kubeconfig");
    let client = kube::Client::try_from(config(kubeconfig.as_ref()).await).unwrap();
    let shop = Arc::new(Shop::empty(&client, "budget").await);
    let container = json!({"name": "c", "image": "host", "command": ["sleep", "3600"]});
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
    until_all_serve(&shop, &BTreeSet::new()).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "set"},
        "spec": {"selector": {"matchLabels": {"app": "set"}}, "minAvailable": MIN_AVAILABLE},
    });
    let path = "/apis/policy/v1/namespaces/budget/poddisruptionbudgets";
    shop.create(path, budget).await;
    let (fewest, fewest_ready) = watch::channel(usize::MAX);
    let sampled = Arc::clone(&shop);
    let sampling = tokio::spawn(async move {
        loop {
            let pods = sampled.pods().await;
            let n = pods.iter().filter(|pod| is_ready(pod)).count();
            fewest.send_modify(|fewest| *fewest = n.min(*fewest));
            tokio::time::sleep(SAMPLE).await;
        }
    });
    let old = shop.pods().await;
    join_all(old.iter().map(|pod| shop.evict(name(pod)))).await;
    until_all_serve(&shop, &uids(&old)).await;
    sampling.abort();
    let fewest = *fewest_ready.borrow();
    assert!(fewest >= MIN_AVAILABLE, "{fewest} of {REPLICAS} were Ready");
}

/// Waits until all are Ready, and none of these.
async fn until_all_serve(shop: &Shop, old: &BTreeSet<String>) {
    for _ in 0..LOOKS {
        let pods = shop.pods().await;
        let n_ready = pods.iter().filter(|pod| is_ready(pod)).count();
        if pods.len() == REPLICAS && n_ready == REPLICAS && uids(&pods).is_disjoint(old) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("not in time: {:#?}", shop.pods().await);
}
