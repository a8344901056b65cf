//! A webhook of a rule that refuses at length, and an API server that takes no large status: the webhook is asked on, and
//! pods go on when it approves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use longshore_api::podops::{RuleAnswer, RuleClientConfig, RulePoll, RulePollAnswer, RuleQuestion};
use longshore_podops::RuleTransport;
use longshore_test::Faults;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{stories::Statuses, world::World};

/// So many pods do not fit into the status with their messages in full.
const N_PODS: usize = 30;
/// The most bytes of a write of the status.
const LARGEST: usize = 34 << 10;
/// By the clock of the test: whatever takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// The webhook.
#[derive(Clone, Debug, Default)]
struct Loud {
    approves: Arc<AtomicBool>,
    n_asked: Arc<AtomicUsize>,
}

#[async_trait]
impl RuleTransport for Loud {
    async fn ask(&self, _: &RuleClientConfig, _: &RuleQuestion) -> Result<RuleAnswer, String> {
        self.n_asked.fetch_add(1, Ordering::Relaxed);
        Ok(RuleAnswer {
            success: self.approves.load(Ordering::Relaxed),
            message: "no ".repeat(340),
            ..RuleAnswer::default()
        })
    }

    async fn poll(&self, _: &RulePoll, _: &str) -> Result<RulePollAnswer, String> {
        Err("no such task".to_owned())
    }
}

async fn until(is_so: impl Fn() -> bool) {
    let is_so = async {
        while !is_so() {
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, is_so).await.unwrap();
}

/// Waits until an Event says that a status is too large.
async fn until_told(world: &World) {
    let events: Api<Event> = Api::namespaced(world.place.client(), world.place.namespace());
    let is_told = async {
        loop {
            let told = events.list(&ListParams::default()).await.unwrap().items;
            let mut told = told.iter();
            if told.any(|it| it.reason.as_deref() == Some("StatusTooLarge")) {
                return;
            }
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, is_told).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rule_whose_status_is_refused_is_asked_on_and_its_pods_go_on() {
    let world = World::new(Statuses::Seen).await;
    let limit = Arc::clone(&world.webhooks.status_limit);
    limit.max_bytes.store(LARGEST, Ordering::Relaxed);
    let loud = Loud::default();
    let (running, asked) = (Arc::clone(&world), loud.clone());
    let process = Faults::none().start();
    tokio::spawn(async move { running.run_asking(&process, Arc::new(asked)).await });
    let config = json!({"url": "http://x"});
    let hook = json!([{"name": "hook", "webhook": {"clientConfig": config}}]);
    world.rule(hook).await;
    let names: Vec<String> = (0..N_PODS).map(|n| format!("web-{n}")).collect();
    for name in &names {
        world.make(name).await;
    }
    while world.pods().await.iter().any(|pod| !pod.is_available()) {
        sleep(LOOK).await;
    }
    for name in &names {
        world.begin(name, "a").await;
    }
    until(|| limit.n_refused.load(Ordering::Relaxed) > 0).await;
    let n_asked = || loud.n_asked.load(Ordering::Relaxed);
    let n_before = n_asked();
    until(|| n_asked() > n_before).await;
    until_told(&world).await;
    loud.approves.store(true, Ordering::Relaxed);
    let granted = names.iter().map(|name| world.until_granted(name, "a"));
    let granted = timeout(PATIENCE, futures::future::join_all(granted)).await;
    assert!(granted.is_ok(), "some pods wait still");
}
