//! The controllers, running: their watches and three loops.

use std::sync::Arc;

use kube::{Client, Resource as _};
use longshore_api::podops::LABEL_RELEASED;
use longshore_core::Resource;
use longshore_kit::{
    Applier, Cache, Clock, Controller, Gate, Kind, Memory, Namespaces, RawObject, Router, Runner,
    Wiring,
};
use longshore_outbound::Permit;
use tokio_util::sync::CancellationToken;

use crate::{
    ask_webhooks::{AskWebhooks, RuleTransport},
    caches::{Caches, Requeued},
    config::PodOpsConfig,
    evictions::Evictions,
    measures::Counting,
    model::PodKey,
    pods::Pods,
    released::Released,
    transition_rules::{self, Rules},
};

/// The controllers of PodOpsLifecycle. API servers ask the [`webhooks`](crate::webhooks) beside them.
#[derive(Debug)]
pub struct PodOps {
    config: PodOpsConfig,
    clock: Arc<dyn Clock>,
    /// What carries the questions of rules, where that is not our own client.
    transport: Option<Arc<dyn RuleTransport>>,
    gate: Gate,
}

impl PodOps {
    /// Controllers with this configuration.
    pub fn new(config: PodOpsConfig, clock: Arc<dyn Clock>) -> Self {
        Self {
            config,
            clock,
            transport: None,
            gate: Gate::always_open(),
        }
    }

    /// The same, where `transport` carries the questions of rules.
    #[must_use]
    pub fn asking(mut self, transport: Arc<dyn RuleTransport>) -> Self {
        self.transport = Some(transport);
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
        let wiring = caches.wiring(&client, &self.config);
        let release = Box::pin(self.release(client.clone(), shutdown.clone()));
        let applier = self.applier(client, &wiring);
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
        let (forms, notes) = Memory::new();
        let of_rules = Rules {
            transport: self.transport(),
            forms,
            notes,
            pods: caches.pods,
            rules: caches.rules,
            selections: caches.selections,
            workloads: caches.workloads,
            skipped: self.config.skipped_rules.clone(),
        };
        let mut router = Router::default();
        let pods = router.keys(Requeued::pod);
        let rules = router.keys(Requeued::rule);
        let evictions = router.keys(Requeued::evictions);
        let pod_rounds = self.runner(of_pods, applier.clone());
        let memory = of_evictions.memory().clone();
        let eviction_rounds = self.runner(of_evictions, applier.clone());
        let eviction_rounds = eviction_rounds.remembering(&memory);
        let rule_rounds = self.rule_runner(of_rules, applier);
        tokio::join!(
            pod_rounds.run(pods, shutdown.clone()),
            rule_rounds.run(rules, shutdown.clone()),
            eviction_rounds.run(evictions, shutdown.clone()),
            release,
            shutdown.run_until_cancelled(router.run(wiring.into_triggers()))
        );
    }

    fn transport(&self) -> Arc<dyn RuleTransport> {
        let own = || {
            let gate = self.gate.clone();
            let permit = Permit::new(move || gate.is_open());
            let boundaries = Arc::clone(&self.config.boundaries);
            Arc::new(AskWebhooks::within(boundaries, permit)) as Arc<dyn RuleTransport>
        };
        self.transport.clone().unwrap_or_else(own)
    }

    fn applier<T: Send + 'static>(&self, client: Client, wiring: &Wiring<T>) -> Applier {
        let metrics = self.config.metrics.clone();
        Applier::new(client, "podops", wiring.feeds()).with_metrics(metrics)
    }

    fn runner<C: Controller>(&self, controller: C, applier: Applier) -> Runner<C> {
        Runner::new(Arc::new(controller), applier, Arc::clone(&self.clock))
            .gated_by(self.gate.clone())
            .concurrency(self.config.concurrency)
    }

    fn rule_runner(&self, rules: Rules, applier: Applier) -> Runner<Rules> {
        let forms = rules.forms.clone();
        let runner = self.runner(rules, applier);
        let runner = runner.asking(transition_rules::limits());
        runner.remembering(&forms)
    }

    /// Opens the gates of pods that take part no more. They are watched by their mark, in a cache of their own: there are
    /// none, as a rule.
    async fn release(&self, client: Client, shutdown: CancellationToken) {
        let pods: Arc<Cache<RawObject>> = Cache::new();
        let marked = Kind::new(Resource::POD, pods.clone()).labels(LABEL_RELEASED);
        let namespaces = Namespaces::one_or_all(self.config.namespace.as_deref());
        let wiring = Wiring::new(&client, namespaces)
            .keyed(marked, |update| Some(key_of(&*update.into_object()?)));
        let runner = self.runner(Released { pods }, self.applier(client, &wiring));
        let runner = runner.concurrency(1);
        runner.run(wiring.into_triggers(), shutdown).await;
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
