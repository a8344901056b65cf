//! The example controllers, with a test in the place of the role: what they write to pods and tables. Beside the role
//! they run in the acceptance list of the binary.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, ResourceExt};
use longshore_api::podops::OperationLabel;
use longshore_podops_client::lifecycle_finalizer;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::World;

#[allow(dead_code, reason = "it has a main of its own")]
#[path = "../../examples/restart_pods.rs"]
mod restart_pods;
#[allow(dead_code, reason = "it has a main of its own")]
#[path = "../../examples/traffic_table.rs"]
mod traffic_table;

const ID: &str = "restart-pods";
const RESTART: &str = "example.dev/restart";

/// Waits until a pod is as it should be; `None` where it is gone.
async fn until(world: &World, name: &str, what: &str, is_right: impl Fn(Option<&Pod>) -> bool) {
    let mut pod = None;
    for _ in 0..600 {
        pod = world.pods().get_opt(name).await.unwrap();
        if is_right(pod.as_ref()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not in time: {what}: {pod:?}");
}

fn has(pod: Option<&Pod>, label: OperationLabel) -> bool {
    pod.is_some_and(|pod| pod.labels().contains_key(&label.of(ID)))
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_restarted_when_it_may_be_and_a_restart_that_nobody_wants_ends() {
    use OperationLabel::{Operate, Operating, OperationType, UndoOperationType};
    let world = World::new().await;
    let running = tokio::spawn(restart_pods::run(world.client()));
    let wanted = json!({"metadata": {"annotations": {RESTART: "please"}}});
    let granted = json!({"metadata": {"labels": {Operate.of(ID): "1"}}});
    world.make_pod("wanted").await;
    world.patch_pod("wanted", &wanted).await;
    until(&world, "wanted", "it begins", |pod| {
        has(pod, Operating) && has(pod, OperationType)
    })
    .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    until(&world, "wanted", "it waits", |pod| pod.is_some()).await;
    world.patch_pod("wanted", &granted).await;
    until(&world, "wanted", "it goes", |pod| pod.is_none()).await;

    world.make_pod("taken-back").await;
    world.patch_pod("taken-back", &wanted).await;
    until(&world, "taken-back", "it begins", |pod| has(pod, Operating)).await;
    let unwanted = json!({"metadata": {"annotations": {RESTART: null}}});
    world.patch_pod("taken-back", &unwanted).await;
    until(&world, "taken-back", "it is taken back", |pod| {
        has(pod, UndoOperationType)
    })
    .await;

    world.make_pod("finished").await;
    let at_work = json!({"metadata": {"labels": {
        Operating.of(ID): "1", OperationType.of(ID): "restart", Operate.of(ID): "1",
    }}});
    world.patch_pod("finished", &at_work).await;
    until(&world, "finished", "it is finished", |pod| {
        !has(pod, Operating) && has(pod, Operate)
    })
    .await;
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_in_the_table_while_it_may_have_traffic() {
    let world = World::new().await;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(traffic_table::run(world.client(), shutdown.clone()));
    world.make_service().await;
    world.make_pod("web-0").await;
    world.make_pod("web-1").await;
    until_served(&world, "web-0", true).await;
    until_served(&world, "web-1", true).await;
    world.set_gate("web-0", "False").await;
    until_served(&world, "web-0", false).await;
    world.set_gate("web-0", "True").await;
    until_served(&world, "web-0", true).await;
    world.delete_service().await;
    for name in ["web-0", "web-1"] {
        until_served(&world, name, false).await;
    }
    shutdown.cancel();
    running.await.unwrap();
}

/// Waits until a pod is in the table and protected, or neither.
async fn until_served(world: &Arc<World>, name: &str, is_served: bool) {
    let tables: Api<ConfigMap> = Api::namespaced(world.client(), "default");
    let finalizer = lifecycle_finalizer("web");
    for _ in 0..600 {
        let table = tables.get_opt("web-traffic").await.unwrap();
        let data: BTreeMap<String, String> = table.and_then(|table| table.data).unwrap_or_default();
        let pod = world.pods().get(name).await.unwrap();
        let is_protected = pod.finalizers().contains(&finalizer);
        if is_protected == is_served && data.contains_key(name) == is_served {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not in time: {name} served: {is_served}");
}
