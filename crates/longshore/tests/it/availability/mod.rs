//! What updates, drains and deletes cost clients: two Deployments of a real server behind Services,
//! one of them with the label of PodOpsLifecycle, under the same load and the same treatment at the
//! same time. `cargo xtask campaign traffic` runs this with other numbers.

mod budget;
mod load;
mod server;
mod shop;
mod stateful;

use serde_json::json;
use tempfile::TempDir;

use self::{
    load::{Load, Outcome},
    shop::{Labelled, Shop},
};
use crate::{
    cluster::config,
    controller::kills::{SEED, dice::Dice, number},
    service_process::Service,
};

/// Requests per second, for each of both.
const RATE: &str = "LONGSHORE_TEST_RATE";
/// Pods that are deleted.
const DELETES: &str = "LONGSHORE_TEST_DELETES";
/// How often everything happens.
const ROUNDS: &str = "LONGSHORE_TEST_ROUNDS";

#[tokio::test(flavor = "multi_thread")]
async fn with_the_label_no_request_fails_whatever_is_done_to_the_pods() {
    let dags = TempDir::new().unwrap();
    let service = Service::start_ephemeral(dags.path());
    let kubeconfig = service.ready("kubeconfig");
    let client = kube::Client::try_from(config(kubeconfig.as_ref()).await).unwrap();
    let labelled = Shop::open(&client, "labelled", Labelled::Yes);
    let plain = Shop::open(&client, "plain", Labelled::No);
    let (labelled, plain) = tokio::join!(labelled, plain);
    let (protected, exposed) = tokio::join!(treat(&labelled), treat(&plain));
    println!("traffic: with the label {protected}; without it {exposed}");
    // Printed also for a reader of this test's output alone, and for the campaign.
    let result = json!({
        "rate": number(RATE, 100),
        "labelled": protected.to_value(),
        "plain": exposed.to_value(),
    });
    println!("result {result}");
    assert!(protected.n_answered > 0, "{protected}");
    assert_eq!(protected.n_failed, 0, "{protected}");
}

/// Under load: it is updated, its node is drained, and pods of it are deleted.
async fn treat(shop: &Shop) -> Outcome {
    let mut dice = Dice::new(number(SEED, 1));
    let load = Load::start(&shop.client, &shop.namespace, number(RATE, 100)).await;
    for round in 0..number(ROUNDS, 1) {
        shop.update(&format!("update-{round}")).await;
        shop.drain().await;
        for _ in 0..number(DELETES, 2) {
            shop.delete_one(&mut dice).await;
        }
    }
    load.end().await
}
