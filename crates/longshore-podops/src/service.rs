//! The controllers, running: their watches and three loops.

use std::sync::Arc;

use futures::{Stream, StreamExt, channel::mpsc, stream, stream::BoxStream};
use kube::{
    Api, Client, Resource as _,
    core::{ApiResource, DynamicResourceScope},
};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, LABEL_RELEASED};
use longshore_core::{Resource, Scope};
use longshore_kit::{
    Applier, Cache, CacheFeed, Clock, Controller, Gate, ListWatch, RawObject, Runner, Update,
    api_resource,
};
use tokio::task::coop::consume_budget;
use tokio_util::sync::CancellationToken;

use crate::{
    ask_webhooks::{AskWebhooks, RuleTransport},
    caches::{Caches, Woken},
    config::PodOpsConfig,
    eviction::BUDGET,
    evictions::Evictions,
    measures::Counting,
    model::PodKey,
    pods::{self, Pods},
    released::Released,
    replicas::{REPLICA_SET, STATEFUL_SET},
    rule::RULE,
    traffic::ENDPOINT_SLICE,
    transition_rules::{self, Rules},
};

/// `v1` Namespace.
const NAMESPACE: Resource = Resource {
    group: "",
    version: "v1",
    kind: "Namespace",
    plural: "namespaces",
    scope: Scope::Cluster,
};

/// The controllers of PodOpsLifecycle. API servers ask the [`webhooks`](crate::webhooks) beside them.
#[derive(Debug)]
pub struct PodOps {
    config: PodOpsConfig,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn RuleTransport>,
    gate: Gate,
}

/// Changes of one kind of object.
pub(crate) type Updates<K = RawObject> = BoxStream<'static, Update<K>>;

impl PodOps {
    /// Controllers with this configuration.
    pub fn new(config: PodOpsConfig, clock: Arc<dyn Clock>) -> Self {
        let boundaries = Arc::clone(&config.boundaries);
        Self {
            config,
            clock,
            transport: Arc::new(AskWebhooks::within(boundaries)),
            gate: Gate::always_open(),
        }
    }

    /// The same, where somebody else carries the questions of rules.
    #[must_use]
    pub fn asking(mut self, transport: Arc<dyn RuleTransport>) -> Self {
        self.transport = transport;
        self
    }

    /// Acts only while this gate is open.
    #[must_use]
    pub fn gated_by(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Runs until `shutdown`.
    ///
    /// *Assumptions*: the webhooks see every write of a controlled pod, and the `PodTransitionRule` resource is
    /// installed; while it is not, no operation passes its rules.
    ///
    /// *Cancellation*: after `shutdown` no round starts, and running ones have 30 s to finish. Dropping the future is
    /// like a crash: nothing is lost.
    pub async fn run(self, client: Client, shutdown: CancellationToken) {
        let caches = Caches::new(&self.config, Arc::clone(&self.clock));
        let _counting = Counting(self.config.measures.clone());
        let woken = self.watch(&client, &caches);
        let release = Box::pin(self.release(client.clone(), shutdown.clone()));
        let feeds: [(Resource, Arc<dyn CacheFeed>); 3] = [
            (Resource::POD, caches.pods.clone()),
            (RULE, caches.rules.clone()),
            (BUDGET, caches.budgets.clone()),
        ];
        let applier =
            Applier::new(client, "podops", feeds).with_metrics(self.config.metrics.clone());
        let of_pods = Pods {
            pods: caches.pods.clone(),
            rules: caches.rules.clone(),
            selections: caches.selections.clone(),
            budgets: self.config.grace_delete.then(|| caches.budgets.clone()),
            namespaces: caches.namespaces.clone(),
            routes: caches.routes.clone(),
            applier: applier.clone(),
            config: self.config.clone(),
        };
        let of_evictions = Evictions::new(&caches, applier.clone(), Arc::clone(&self.clock));
        let of_rules = Rules {
            transport: Arc::clone(&self.transport),
            pods: caches.pods,
            rules: caches.rules,
            selections: caches.selections,
            workloads: caches.workloads,
            skipped: self.config.skipped_rules.clone(),
        };
        let (wake_pod, woken_pods) = mpsc::unbounded();
        let (wake_rule, woken_rules) = mpsc::unbounded();
        let (wake_evictions, woken_evictions) = mpsc::unbounded();
        let waking = woken.for_each(|woken| {
            // Who does not listen any more has ended.
            let _ = match woken {
                Woken::Pod(key) => wake_pod.unbounded_send(key).is_ok(),
                Woken::Rule(key) => wake_rule.unbounded_send(key).is_ok(),
                Woken::Evictions(key) => wake_evictions.unbounded_send(key).is_ok(),
            };
            // A list is one batch of updates: everybody else on this thread has their turn in between.
            consume_budget()
        });
        let pod_rounds = self.runner(of_pods, applier.clone());
        let eviction_rounds = self.runner(of_evictions, applier.clone());
        let rule_rounds = self.runner(of_rules, applier);
        let rule_rounds = rule_rounds.asking(transition_rules::limits());
        tokio::join!(
            pod_rounds.run(woken_pods, shutdown.clone()),
            rule_rounds.run(woken_rules, shutdown.clone()),
            eviction_rounds.run(woken_evictions, shutdown.clone()),
            release,
            shutdown.run_until_cancelled(waking)
        );
    }

    fn runner<C: Controller>(&self, controller: C, applier: Applier) -> Runner<C> {
        Runner::new(Arc::new(controller), applier, Arc::clone(&self.clock))
            .gated_by(self.gate.clone())
            .concurrency(self.config.concurrency)
    }

    /// Opens the gates of pods that take part no more. They are watched by their mark, in a cache of their own: there are
    /// none, as a rule.
    async fn release(&self, client: Client, shutdown: CancellationToken) {
        let pods: Arc<Cache<RawObject>> = Cache::new();
        let feeds: [(Resource, Arc<dyn CacheFeed>); 1] = [(Resource::POD, pods.clone())];
        let applier =
            Applier::new(client.clone(), "podops", feeds).with_metrics(self.config.metrics.clone());
        let marked = ListWatch::new(self.api(&client, Resource::POD))
            .labels(LABEL_RELEASED)
            .into_cache(pods.clone());
        let woken = marked.filter_map(|update| {
            let object = update.into_object();
            std::future::ready(object.map(|object| key_of(&object)))
        });
        let runner = self.runner(Released { pods }, applier).concurrency(1);
        runner.run(woken, shutdown).await;
    }

    fn api<K>(&self, client: &Client, resource: Resource) -> Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let kind = api_resource(resource);
        match self.config.namespace.as_deref() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        }
    }

    /// Whom the changes of everything that is watched wake.
    fn watch(&self, client: &Client, caches: &Caches) -> impl Stream<Item = Woken> + Send + use<> {
        let namespace = self.config.namespace.as_deref();
        let api = |resource: Resource| -> Api<RawObject> { self.api(client, resource) };
        let pods = ListWatch::new(self.api(client, Resource::POD))
            .labels(format!("{LABEL_CONTROL}={CONTROLLED}"))
            .into_cache(caches.pods.clone())
            .boxed();
        let rules = ListWatch::new(self.api(client, RULE)).into_cache(caches.rules.clone());
        let namespaces: Updates = if self.config.grace_delete {
            let all = Api::all_with(client.clone(), &api_resource(NAMESPACE));
            let mut namespaces = ListWatch::new(all);
            if let Some(namespace) = namespace {
                namespaces = namespaces.fields(format!("metadata.name={namespace}"));
            }
            namespaces.into_cache(caches.namespaces.clone()).boxed()
        } else {
            stream::pending().boxed()
        };
        let services = ListWatch::new(api(pods::SERVICE)).into_cache(Cache::new());
        let slices = ListWatch::new(api(ENDPOINT_SLICE)).into_cache(Cache::new());
        let by_traffic = caches.woken_by_traffic(services.boxed(), slices.boxed());
        let of_kind = |resource: Resource| {
            let updates = ListWatch::new(api(resource)).into_cache(Cache::passing_on());
            let caches = caches.clone();
            updates.map(move |update| caches.by_workload(resource.kind, &update))
        };
        let by_workloads = stream::select(of_kind(STATEFUL_SET), of_kind(REPLICA_SET));
        let by_budgets = if self.config.grace_delete {
            let budgets = ListWatch::new(self.api(client, BUDGET));
            let updates = budgets.into_cache(caches.budgets.clone());
            let caches = caches.clone();
            let woken = updates.map(move |update| caches.by_budget(update));
            woken.boxed()
        } else {
            stream::pending().boxed()
        };
        let counted = stream::select(by_workloads, by_budgets).flat_map(stream::iter);
        let woken = caches.woken(pods, rules.boxed(), namespaces);
        stream::select_all([woken.boxed(), by_traffic, counted.boxed()])
    }
}

/// The namespace and the name of an object.
pub(crate) fn key_of(object: &RawObject) -> PodKey {
    let metadata = object.meta();
    PodKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
