//! The world of the toy: four orders on the embedded cluster.

use std::{fmt::Write, sync::Arc};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use longshore_cluster::Cluster;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    Bug, Orders,
    decide::{ANNOTATION_IDENTITY, LABEL_ORDER},
};
use crate::{
    Process, SimClock, clock,
    fixtures::{Fixture, config_map, pod},
    laws::{Law, Scenario, Violation},
    scripted_node::{NodeConfig, PodRun, ScriptedNode},
};

/// Orders, how many attempts they have, what their pods do, and how they end.
const ORDERS: [(&str, &str, &str, &str); 4] = [
    ("good", "2", "run 3s exit 0", "succeeded 1"),
    ("quick", "1", "exit 0", "succeeded 1"),
    ("second", "3", "exit 1 | run 2s exit 0", "succeeded 2"),
    // Another owner has a pod of the name that its first one should have.
    ("taken", "2", "exit 0", "failed 1"),
];

/// The toy with a bug, or none.
#[derive(Clone, Copy, Debug)]
pub struct OrderScenario(pub Bug);

/// See [`OrderScenario`].
#[derive(Debug)]
pub struct OrderWorld {
    cluster: Cluster,
    clock: Arc<SimClock>,
    node: ScriptedNode,
}

impl Scenario for OrderScenario {
    type World = OrderWorld;
    type Subject = JoinSet<()>;

    fn name(&self) -> String {
        format!("orders with {:?}", self.0)
    }

    async fn build(&self) -> OrderWorld {
        let clock = SimClock::start();
        let cluster = clock::cluster(clock.clone(), 1);
        let client = cluster.client();
        create::<Pod>(&client, pod("taken-1").scripted("hang")).await;
        for (name, attempts, script, _) in ORDERS {
            let order = config_map(name).labelled(LABEL_ORDER, "");
            let order = order
                .holding("attempts", attempts)
                .holding("script", script);
            create::<ConfigMap>(&client, order).await;
        }
        let node = ScriptedNode::start(client, clock.clone(), NodeConfig::default());
        OrderWorld {
            cluster,
            clock,
            node,
        }
    }

    fn start(&self, world: &mut OrderWorld, process: &Process) -> JoinSet<()> {
        let client = process.client(world.cluster.service());
        let mut tasks = JoinSet::new();
        let clock = world.clock.clone();
        tasks.spawn(Orders::run(self.0, client, clock, CancellationToken::new()));
        tasks
    }

    async fn digest(&self, world: &OrderWorld) -> String {
        let mut text = String::new();
        for map in list::<ConfigMap>(world).await {
            let state = map.data.as_ref().and_then(|data| data.get("state"));
            let _ = writeln!(text, "order {:?}: {state:?}", map.metadata.name);
        }
        for pod in list::<Pod>(world).await {
            let phase = pod.status.and_then(|status| status.phase);
            let _ = writeln!(text, "pod {:?}: {phase:?}", pod.metadata.name);
        }
        let history = world.node.history();
        for runs in history.by(identity).values() {
            let first = runs.first().map(|run| &run.pod);
            let _ = writeln!(
                text,
                "{first:?} and others of its identity ran {} times",
                runs.len()
            );
        }
        text
    }

    async fn broken(&self, world: &OrderWorld) -> Vec<Violation> {
        let mut broken: Vec<Violation> = Vec::new();
        for map in list::<ConfigMap>(world).await {
            let name = map.metadata.name.unwrap_or_default();
            let state = map.data.and_then(|data| data.get("state").cloned());
            let expected = ORDERS.iter().find(|(order, ..)| *order == name);
            let expected = expected.map(|(.., end)| (*end).to_owned());
            if name == "taken" && state != expected {
                let detail = format!("the order whose name was taken is {state:?}");
                broken.push(Violation::of(Law::AdoptsOnlyItsOwn, detail));
            }
        }
        let repeated = world.node.history().repeated(identity);
        broken.extend(
            repeated
                .into_iter()
                .map(|line| Violation::of(Law::OwnInvariant, line)),
        );
        broken
    }
}

/// One attempt of one order.
fn identity(run: &PodRun) -> Option<String> {
    run.annotations.get(ANNOTATION_IDENTITY).cloned()
}

#[expect(
    clippy::expect_used,
    reason = "a scenario that cannot be built cannot be judged"
)]
async fn create<K>(client: &Client, fixture: Fixture)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::default_namespaced(client.clone());
    let created = api.create(&PostParams::default(), &fixture.typed()).await;
    created.expect("the scenario's objects");
}

#[expect(clippy::expect_used, reason = "the cluster is in memory")]
async fn list<K>(world: &OrderWorld) -> Vec<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::default_namespaced(world.cluster.client());
    let list = api.list(&ListParams::default()).await;
    list.expect("a list").items
}
