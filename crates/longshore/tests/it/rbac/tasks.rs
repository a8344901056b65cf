//! The same for the role `tasks`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kube::api::DeleteParams;
use longshore_api::flyte;
use longshore_kit::{Metrics, Namespaces, Rule, SystemClock};
use longshore_plugins::Registry;
use longshore_tasks::{
    Collection, Tasks, TasksConfig,
    events::{ActionEvent, ActionEvents, NotPublished},
};
use longshore_test::{Fault, FaultPlan, Faults, Point, WatchFault};
use tokio_util::sync::CancellationToken;

use super::{LIMIT, client, granted, is_skipped, requested};
use crate::{
    cluster::TestCluster,
    task_actions::{PodRecord, TaskActions, action},
};

/// The action that is aborted.
const ABORTED: &str = "aborted";

/// A run service that does not answer the first two reports about [`ABORTED`]: the same twice is one Event, with a count.
#[derive(Debug, Default)]
struct Reports {
    n_tried: AtomicU32,
}

#[async_trait]
impl ActionEvents for Reports {
    async fn publish(&self, event: &ActionEvent) -> Result<(), NotPublished> {
        if event.action == ABORTED && self.n_tried.fetch_add(1, Ordering::Relaxed) < 2 {
            return Err(NotPublished("nobody answers".to_owned()));
        }
        Ok(())
    }
}

/// Resources have a finalizer, and what has ended is removed at once.
fn config(namespace: &str) -> TasksConfig {
    let mut config = TasksConfig {
        namespaces: Namespaces::one(namespace),
        collection: Collection {
            interval: Duration::from_secs(1),
            ttl: Duration::ZERO,
        },
        ..TasksConfig::default()
    };
    config.plugins.k8s.inject_finalizer = true;
    config.plugins.k8s.default_pod_template_name = Some("base".to_owned());
    config
}

/// All but the kinds of operators, which are not installed here: what is done with those is what is done with pods.
fn of_what_is_installed() -> Vec<Rule> {
    let installed = ["", flyte::GROUP, "events.k8s.io", "apiextensions.k8s.io"];
    let rules = longshore_tasks::RULES.iter();
    rules
        .filter(|rule| installed.contains(&rule.group))
        .copied()
        .collect()
}

/// Waits until it holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let held = tokio::time::timeout(LIMIT, held).await;
    assert!(held.is_ok(), "not in time: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_with_the_generated_role_alone_does_all_its_work_and_uses_all_of_it() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let actions = TaskActions::install(&cluster).await;
    let record = PodRecord::start(&cluster);
    let account = cluster.account("tasks").await;
    // What was created or written without an answer has to be read.
    let lost = ["create pods", "patch taskactions/status"];
    let faults = Faults::new(FaultPlan {
        at: lost
            .map(|what| (Point::new(what, 1), Fault::LoseAnswer))
            .to_vec(),
        watches: vec![WatchFault::late(Duration::from_secs(2))],
        ..FaultPlan::none()
    });
    let metrics = Metrics::new();
    let config = config(&cluster.namespace);
    let plugins = Arc::new(Registry::new(&config.plugins).unwrap());
    let executor = Tasks::new(config, plugins, Arc::new(SystemClock))
        .with_events(Arc::new(Reports::default()));
    let client = client(&account, &faults, "tasks", &metrics).await;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(executor.run(client, shutdown.clone()));

    actions.create(&action(ABORTED, 0, "run 60s exit 0")).await;
    until("it runs", async || record.n_pods() == 1).await;
    let now = DeleteParams::default();
    actions.api().delete(ABORTED, &now).await.unwrap();
    actions
        .create(&action("collected", 0, "run 300ms exit 0"))
        .await;
    until("all are gone", async || actions.list().await.is_empty()).await;

    shutdown.cancel();
    tokio::time::timeout(LIMIT, running).await.unwrap().unwrap();
    let (used, forbidden) = requested(&metrics);
    assert!(forbidden.is_empty(), "{forbidden:?}");
    assert_eq!(used, granted(&of_what_is_installed()), "used and declared");
    assert_eq!(record.n_launches_of_all(), 2);
    record.assert_one_pod_per_launch();
}
