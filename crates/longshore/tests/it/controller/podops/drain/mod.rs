//! Two nodes that are drained in turns by many at once, under workloads with budgets and rules of every kind, while the
//! controller is killed again and again. `cargo xtask campaign drain` runs this with other numbers.

mod clients;
mod dry_runs;
mod sampler;
mod workloads;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use kube::Client;
use longshore_cluster::controllers;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use self::{
    clients::{By, Counts, Drainer, Kubectl},
    sampler::Sampler,
    workloads::{Helpers, Workload},
};
use super::{
    down,
    http::{self, Asked},
    kubelet::{Binding, Pace},
    place::Place,
    world::World,
};
use crate::{
    cluster::{TestCluster, config},
    controller::kills::{SEED, dice::Dice, number},
};

/// How often both nodes are drained.
const ROUNDS: &str = "LONGSHORE_TEST_ROUNDS";
/// How long a replacement takes to become Ready.
const READY_MS: &str = "LONGSHORE_TEST_READY_MS";
/// How long a pod is held after it has left all EndpointSlices.
const DRAIN_DELAY_MS: &str = "LONGSHORE_TEST_DRAIN_DELAY_MS";
/// So many drain a node at the same time, beside kubectl.
const CLIENTS: &str = "LONGSHORE_TEST_CLIENTS";
/// After which time they come again; 0: after the time that the answer says.
const RETRY_MS: &str = "LONGSHORE_TEST_RETRY_MS";
/// The longest life of a controller.
const LIFE_MS: &str = "LONGSHORE_TEST_LIFE_MS";
/// So many seconds a drain may take.
const LIMIT_S: &str = "LONGSHORE_TEST_LIMIT_S";

/// How long no controller serves, in milliseconds.
const DEAD_MS: (u64, u64) = (20, 700);
const SHORTEST_LIFE_MS: u64 = 400;

/// The workloads, the nodes under them, and the clients that drain those.
struct Scene<'a> {
    place: Place<'a>,
    /// Asks once: the clients of our programs come again by themselves where they are refused for a while.
    client: Client,
    workloads: Vec<Workload>,
    counts: Arc<Counts>,
    kubectl: Option<Kubectl>,
    retry: Option<Duration>,
}

/// Plays all of it, and returns the counts. Fails where a drain does not end, where a dry run changes something, or
/// where a workload had fewer ready endpoints than its budget or its rule says.
pub(crate) async fn play() -> Value {
    let cluster = TestCluster::start().await;
    let controllers = CancellationToken::new();
    if !cluster.is_real() {
        tokio::spawn(controllers::run(cluster.admin.clone(), controllers.clone()));
    }
    let pace = Pace {
        binding: Binding::ByScheduler,
        ready_after: milliseconds(READY_MS, 500),
        gone_after: Duration::from_millis(300),
    };
    let world = World::on(cluster, pace).await;
    assert_eq!(
        world.has_workloads,
        world.cluster.is_real(),
        "this test needs controllers of workloads: cargo xtask real-cluster --kcm"
    );
    let place = world.namespace("drain").await;
    let policy = guard_evictions(&place).await;
    let helpers = Helpers::start(&place).await;
    let scene = Scene::open(place, &helpers).await;
    let sampler = Sampler::start(&scene.place, &scene.workloads);
    let (mut drains, mut n_dry_runs) = (Vec::new(), 0);
    let (mut n_kills, mut n_requests) = (0, 0.0);
    let mut dice = Dice::new(number(SEED, 1));
    for _ in 0..number(ROUNDS, 1) {
        n_dry_runs += dry_runs::change_nothing(&scene).await;
        let (stop, stopped) = watch::channel(false);
        let draining = async {
            let drained = scene.drain_both().await;
            stop.send_replace(true);
            drained
        };
        let (drained, killed) = tokio::join!(draining, kills(&world, &mut dice, stopped));
        drains.extend(drained);
        n_kills += killed.0;
        n_requests += killed.1;
        scene.until_all_serve().await;
    }
    let record = sampler.end().await;
    let n_questions = helpers.end().await;
    assert!(n_questions > 0, "nobody asked the webhook of a rule");
    let result = json!({
        "workloads": scene.workloads.iter().map(|it| it.to_value(&record)).collect::<Vec<_>>(),
        "ready_after_seconds": pace.ready_after.as_secs_f64(),
        "drains": drains,
        "clients": number(CLIENTS, 2),
        "kubectl": scene.kubectl.is_some(),
        "evictions": scene.counts.to_value(),
        "dry_runs": n_dry_runs,
        "kills": n_kills,
        "requests_of_the_controller": n_requests,
        "questions_to_the_webhook_of_a_rule": n_questions,
        "samples": record.to_value(),
        "seed": number(SEED, 1),
    });
    println!("result {result}");
    if world.cluster.is_real() && scene.kubectl.is_some() {
        println!("real server: nodes drained by kubectl and others");
    }
    record.assert_nothing_below();
    down::remove_policy(&scene.place, &policy).await;
    drop(scene);
    world.end().await;
    controllers.cancel();
    result
}

/// While no controller answers, evictions must not bypass it: a policy of the API server refuses them, or the failure
/// policy of the webhook where the API server has no policies. Returns the paths of the policy.
async fn guard_evictions(place: &Place<'_>) -> Vec<String> {
    let policy = down::apply_policy(place).await;
    if policy.is_empty() {
        let refusing = ["--webhook-failure-policy", "evictions=Fail"];
        place.world.begin_again(&refusing).await;
    }
    policy
}

/// Within this time a drain has to end.
fn limit() -> Duration {
    Duration::from_secs(number(LIMIT_S, 120))
}

fn milliseconds(variable: &str, default: u64) -> Duration {
    Duration::from_millis(number(variable, default))
}

impl<'a> Scene<'a> {
    /// Makes the workloads, and waits until all of them serve.
    async fn open(place: Place<'a>, helpers: &Helpers) -> Self {
        let workloads = workloads::all(&helpers.url());
        let drain_delay = milliseconds(DRAIN_DELAY_MS, 300);
        for workload in &workloads {
            workload.create(&place, drain_delay).await;
        }
        let retry = number(RETRY_MS, 300);
        let mut config = config(&place.world.kubeconfig()).await;
        config.default_retry = false;
        let scene = Self {
            kubectl: Kubectl::given(place.world.kubeconfig()),
            place,
            client: Client::try_from(config).unwrap(),
            workloads,
            counts: Arc::default(),
            retry: (retry > 0).then(|| Duration::from_millis(retry)),
        };
        scene.until_all_serve().await;
        scene
    }

    /// Waits until each workload has all of its endpoints, and all pods that take part are in service.
    async fn until_all_serve(&self) {
        let ends_at = Instant::now() + limit();
        loop {
            let missing = self.missing().await;
            if missing.is_empty() {
                return;
            }
            assert!(Instant::now() < ends_at, "not in time: {missing:#?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn missing(&self) -> Vec<String> {
        let ready = sampler::ready_endpoints(self.place.client(), &self.place.namespace)
            .await
            .unwrap();
        let endpoints = self.workloads.iter().filter_map(|workload| {
            let ready = ready.get(workload.name).copied().unwrap_or(0);
            let are_all = ready == workload.replicas;
            (!are_all).then(|| format!("{}: {ready} endpoints", workload.name))
        });
        let pods = self.place.pods().await;
        let waiting = pods
            .iter()
            .filter(|pod| pod.is_controlled() && !pod.is_available());
        let waiting = waiting.map(|pod| format!("{}: {:?}", pod.target.name, pod.labels));
        endpoints
            .chain(waiting)
            .chain(self.short_budgets().await)
            .collect()
    }

    /// Budgets that allow no disruption. A replica that comes back under the name of one that was evicted counts as
    /// disrupted for two minutes, where the disruption controller has not seen the first one go.
    async fn short_budgets(&self) -> Vec<String> {
        let list = http::get(self.place.client(), &self.budgets())
            .await
            .unwrap();
        let budgets = list["items"].as_array().unwrap().iter();
        let short = budgets.filter(|budget| {
            let allowed = budget["status"]["disruptionsAllowed"].as_i64();
            allowed.unwrap_or(0) < 1
        });
        short
            .map(|budget| format!("{}: {}", budget["metadata"]["name"], budget["status"]))
            .collect()
    }

    /// What may hold a drain: the pods of its node, and the budgets that allow no disruption.
    async fn held(&self, node: &str) -> Vec<String> {
        let path = self.place.core("pods");
        let list = http::get(self.place.client(), &path).await.unwrap();
        let pods = list["items"].as_array().unwrap().iter();
        let pods = pods.filter(|pod| pod["spec"]["nodeName"] == node);
        let pods = pods.map(|pod| format!("{}: {}", pod["metadata"], pod["status"]["conditions"]));
        pods.chain(self.short_budgets().await).collect()
    }

    /// The path of the budgets.
    fn budgets(&self) -> String {
        let namespace = &self.place.namespace;
        format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
    }

    /// Drains one node and the other one right after it.
    async fn drain_both(&self) -> Vec<Value> {
        let mut drained = Vec::new();
        for node in self.place.world.kubelet.nodes() {
            let began_at = Instant::now();
            if tokio::time::timeout(limit(), self.drain(node))
                .await
                .is_err()
            {
                panic!(
                    "the drain of {node} does not end: {:#?}",
                    self.held(node).await
                );
            }
            drained.push(json!({"node": node, "seconds": began_at.elapsed().as_secs_f64()}));
        }
        drained
    }

    async fn drain(&self, node: &str) {
        self.cordon(node, true).await;
        let drainer = Drainer {
            by: By::Name,
            client: self.client.clone(),
            namespace: self.place.namespace.clone(),
            retry: self.retry,
            counts: Arc::clone(&self.counts),
        };
        let clients = (0..number(CLIENTS, 2)).map(|n| {
            let by = if n % 2 == 0 { By::Uid } else { By::Name };
            let (drainer, node) = (
                Drainer {
                    by,
                    ..drainer.clone()
                },
                node.to_owned(),
            );
            tokio::spawn(async move { drainer.drain(&node).await })
        });
        let kubectl = self.kubectl.clone().map(|kubectl| {
            let (counts, node) = (Arc::clone(&self.counts), node.to_owned());
            tokio::spawn(async move { kubectl.drain_until_done(&node, limit(), &counts).await })
        });
        for ended in join_all(clients.chain(kubectl)).await {
            ended.unwrap();
        }
        assert!(drainer.pods_on(node).await.is_empty());
        self.cordon(node, false).await;
    }

    async fn cordon(&self, node: &str, is: bool) {
        let path = format!("/api/v1/nodes/{node}");
        let patch = json!({"spec": {"unschedulable": is}});
        http::patch(self.place.client(), &path, Asked::Merge, &patch)
            .await
            .unwrap();
    }
}

/// Kills the controller at random moments, and starts it again, until there is nothing to disturb; how often, and how many
/// requests the controllers made.
async fn kills(world: &World, dice: &mut Dice, mut stopped: watch::Receiver<bool>) -> (u64, f64) {
    let mut n_kills = 0;
    let mut n_requests = 0.0;
    loop {
        let life = dice.between(SHORTEST_LIFE_MS, number(LIFE_MS, 4_000));
        let life = Duration::from_millis(life);
        let is_over = tokio::time::timeout(life, stopped.wait_for(|is| *is))
            .await
            .is_ok();
        n_requests += world.n_requests().await;
        if is_over {
            return (n_kills, n_requests);
        }
        world.note_asked().await;
        world.kill();
        let dead = dice.between(DEAD_MS.0, DEAD_MS.1);
        tokio::time::sleep(Duration::from_millis(dead)).await;
        tokio::task::block_in_place(|| world.revive());
        n_kills += 1;
    }
}
