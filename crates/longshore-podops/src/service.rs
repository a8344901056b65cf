//! The controllers, running: their watches and three loops.

use std::sync::Arc;

use futures::{Stream, StreamExt, channel::mpsc, stream, stream::BoxStream};
use kube::{Api, Client, Resource as _};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, LABEL_RELEASED};
use longshore_core::{Resource, Scope, Seen};
use longshore_kit::{
    Applier, Cache, CacheFeed, Clock, ListWatch, RawObject, Runner, Update, api_resource,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admit::grace::may_delete,
    ask_webhooks::{AskWebhooks, RuleTransport},
    config::PodOpsConfig,
    conversations::Conversations,
    eviction::{self, BUDGET, Budget},
    evictions::{Evictions, EvictionsOf, Failed, Waiting, read_all},
    measures::{Counting, PodMeasures},
    model::{Pod, PodKey},
    pods::{self, Pods},
    released::Released,
    replicas::{Changed, REPLICA_SET, STATEFUL_SET, Workloads},
    rule::{RULE, Rule, RuleKey, Subject},
    traffic::{Concerned, ENDPOINT_SLICE, Routes},
    transition_rules::Rules,
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
}

/// What the loops see. Objects are kept as the text that came: a round reads few of them, and little of each.
#[derive(Clone, Debug)]
struct Caches {
    pods: Arc<Cache<RawObject>>,
    rules: Arc<Cache<RawObject>>,
    budgets: Arc<Cache<RawObject>>,
    namespaces: Arc<Cache<RawObject>>,
    workloads: Workloads,
    waiting: Waiting,
    clock: Arc<dyn Clock>,
    /// `None` where Services protect no pods.
    routes: Option<Routes>,
    measures: PodMeasures,
}

/// Whom a change wakes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Woken {
    Pod(PodKey),
    Rule(RuleKey),
    Evictions(EvictionsOf),
}

type Updates = BoxStream<'static, Update<RawObject>>;

impl PodOps {
    /// Controllers with this configuration.
    pub fn new(config: PodOpsConfig, clock: Arc<dyn Clock>) -> Self {
        let boundaries = Arc::clone(&config.boundaries);
        Self {
            config,
            clock,
            transport: Arc::new(AskWebhooks::within(boundaries)),
        }
    }

    /// The same, where somebody else carries the questions of rules.
    #[must_use]
    pub fn asking(mut self, transport: Arc<dyn RuleTransport>) -> Self {
        self.transport = transport;
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
        let feeds: [(Resource, Arc<dyn CacheFeed>); 2] = [
            (Resource::POD, caches.pods.clone()),
            (RULE, caches.rules.clone()),
        ];
        let applier =
            Applier::new(client, "podops", feeds).with_metrics(self.config.metrics.clone());
        let of_pods = Pods {
            pods: caches.pods.clone(),
            rules: caches.rules.clone(),
            budgets: self.config.grace_delete.then(|| caches.budgets.clone()),
            namespaces: caches.namespaces.clone(),
            routes: caches.routes.clone(),
            applier: applier.clone(),
            config: self.config.clone(),
        };
        let of_evictions = Evictions {
            pods: caches.pods.clone(),
            rules: caches.rules.clone(),
            budgets: caches.budgets,
            applier: applier.clone(),
            clock: Arc::clone(&self.clock),
            failed: Failed::default(),
        };
        let (conversations, answered) =
            Conversations::new(Arc::clone(&self.transport), Arc::clone(&self.clock));
        let of_rules = Rules {
            conversations,
            pods: caches.pods,
            rules: caches.rules,
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
            std::future::ready(())
        });
        let pod_rounds = Runner::new(Arc::new(of_pods), applier.clone(), Arc::clone(&self.clock))
            .concurrency(self.config.concurrency)
            .run(woken_pods, shutdown.clone());
        let of_evictions = Arc::new(of_evictions);
        let eviction_rounds = Runner::new(of_evictions, applier.clone(), Arc::clone(&self.clock))
            .concurrency(self.config.concurrency)
            .run(woken_evictions, shutdown.clone());
        let rule_rounds = Runner::new(Arc::new(of_rules), applier, Arc::clone(&self.clock))
            .concurrency(self.config.concurrency)
            .run(stream::select(woken_rules, answered), shutdown.clone());
        tokio::join!(
            pod_rounds,
            rule_rounds,
            eviction_rounds,
            release,
            shutdown.run_until_cancelled(waking)
        );
    }

    /// Opens the gates of pods that take part no more. They are watched by their mark, in a cache of their own: there are
    /// none, as a rule.
    async fn release(&self, client: Client, shutdown: CancellationToken) {
        let pods = Cache::new();
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
        Runner::new(
            Arc::new(Released { pods }),
            applier,
            Arc::clone(&self.clock),
        )
        .concurrency(1)
        .run(woken, shutdown)
        .await;
    }

    fn api(&self, client: &Client, resource: Resource) -> Api<RawObject> {
        let kind = api_resource(resource);
        match self.config.namespace.as_deref() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        }
    }

    /// Whom the changes of everything that is watched wake.
    fn watch(&self, client: &Client, caches: &Caches) -> impl Stream<Item = Woken> + Send + use<> {
        let namespace = self.config.namespace.as_deref();
        let api = |resource: Resource| self.api(client, resource);
        let pods = ListWatch::new(api(Resource::POD))
            .labels(format!("{LABEL_CONTROL}={CONTROLLED}"))
            .into_cache(caches.pods.clone())
            .boxed();
        let rules = ListWatch::new(api(RULE)).into_cache(caches.rules.clone());
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
            let updates = ListWatch::new(api(BUDGET)).into_cache(caches.budgets.clone());
            let caches = caches.clone();
            updates.map(move |update| caches.by_budget(update)).boxed()
        } else {
            stream::pending().boxed()
        };
        let counted = stream::select(by_workloads, by_budgets).flat_map(stream::iter);
        let woken = caches.woken([pods, rules.boxed(), namespaces]);
        stream::select_all([woken.boxed(), by_traffic, counted.boxed()])
    }
}

impl Caches {
    /// Nothing was seen yet.
    fn new(config: &PodOpsConfig, clock: Arc<dyn Clock>) -> Self {
        Self {
            pods: Cache::new(),
            rules: Cache::new(),
            budgets: Cache::new(),
            namespaces: Cache::new(),
            workloads: Workloads::default(),
            waiting: Waiting::default(),
            clock,
            routes: config.drain_delay.map(Routes::new),
            measures: config.measures.clone(),
        }
    }

    /// What routes traffic to pods wakes those that it concerns. Nothing is watched where Services protect no pods.
    fn woken_by_traffic(&self, services: Updates, slices: Updates) -> BoxStream<'static, Woken> {
        let Some(routes) = self.routes.clone() else {
            return stream::pending().boxed();
        };
        let of_slices = routes.clone();
        let by_services = services.map(move |update| routes.see_service(&update));
        let by_slices = slices.map(move |update| of_slices.see_slice(&update));
        let caches = self.clone();
        let concerned = stream::select(by_services, by_slices);
        let woken = concerned.map(move |concerned| stream::iter(caches.concerned(concerned)));
        woken.flatten().boxed()
    }

    /// Those that take part.
    fn concerned(&self, concerned: Concerned) -> Vec<Woken> {
        let pods = match concerned {
            Concerned::Nobody => Vec::new(),
            Concerned::Pods(pods) => {
                let pods = pods.into_iter();
                let known =
                    pods.filter(|pod| self.pods.get(&pod.namespace, &pod.name).present().is_some());
                return known.map(Woken::Pod).collect();
            }
            Concerned::Namespace(namespace) => self.pods_in(&namespace),
            Concerned::All => known(self.pods.all()),
        };
        pods.iter().map(|pod| Woken::Pod(key_of(pod))).collect()
    }

    fn woken(&self, [pods, rules, namespaces]: [Updates; 3]) -> impl Stream<Item = Woken> + use<> {
        let caches = self.clone();
        let by_pods = pods.map(move |update| caches.by_pod(&update));
        let caches = self.clone();
        let by_rules = rules.map(move |update| caches.by_rule(update));
        let caches = self.clone();
        let by_namespaces = namespaces.map(move |update| caches.by_namespace(update));
        let all = [by_pods.boxed(), by_rules.boxed(), by_namespaces.boxed()];
        stream::select_all(all).flat_map(stream::iter)
    }

    /// The pod itself, and the rules that are about it or were.
    fn by_pod(&self, update: &Update<RawObject>) -> Vec<Woken> {
        let (object, is_gone) = match update {
            Update::Applied(object) => (object, false),
            Update::Deleted(object) => (object, true),
            Update::Reached(_) => return Vec::new(),
        };
        let key = key_of(object);
        let mut woken = Vec::new();
        if is_gone {
            self.measures.forget(&key);
            if let (Some(routes), Some(uid)) = (&self.routes, &object.meta().uid) {
                routes.forget(uid);
            }
        }
        let pod = pods::read(&key, object).ok();
        self.waiting.see(&key, pod.as_ref().filter(|_| !is_gone));
        if let Some(pod) = pod {
            let rules = self.rules_in(&key.namespace);
            if !is_gone {
                self.measure(&key, &pod, &rules);
            }
            let rules = rules.iter().filter_map(|object| object.read::<Rule>().ok());
            let is_concerned =
                |rule: &Rule| rule.selects(&pod) || rule.status.targets.contains(&key.name);
            woken.extend(rules.filter(is_concerned).map(|rule| {
                Woken::Rule(RuleKey {
                    namespace: rule.target.namespace,
                    name: rule.target.name,
                })
            }));
        }
        woken.extend(self.evictions_of(&key.namespace));
        woken.push(Woken::Pod(key));
        woken
    }

    /// The evictions of a namespace, where a pod of it waits for one.
    fn evictions_of(&self, namespace: &str) -> Option<Woken> {
        let is_any = self.waiting.is_any_in(namespace, self.clock.now());
        is_any.then(|| Woken::Evictions(EvictionsOf(namespace.to_owned())))
    }

    /// Counts a pod where it stands.
    fn measure(&self, key: &PodKey, pod: &Pod, rules: &[Arc<RawObject>]) {
        let mut held = Vec::new();
        if eviction::is_waiting(pod, self.clock.now()) {
            let budgets = self.budgets.beginning(&key.namespace, "");
            let budgets = read_all::<Budget>(budgets);
            let selecting = budgets.present().into_iter().flatten();
            let selecting = selecting.filter(|budget| budget.selects(pod));
            held.extend(selecting.map(Budget::holds));
        }
        self.measures.see(key, pod, &pods::say(rules, pod), &held);
    }

    /// The evictions that may wait for a budget, and the pods that are to be evicted.
    fn by_budget(&self, update: Update<RawObject>) -> Vec<Woken> {
        let Some(object) = update.into_object() else {
            return Vec::new();
        };
        let namespace = key_of(&object).namespace;
        let pods = self.pods_in(&namespace);
        let is_to_go = |object: &&Arc<RawObject>| {
            let pod = object.read::<Pod>();
            pod.is_ok_and(|pod| eviction::evicted_at(&pod).is_some() && may_delete(&pod))
        };
        let pods = pods.iter().filter(is_to_go);
        let pods = pods.map(|pod| Woken::Pod(key_of(pod)));
        pods.chain(self.evictions_of(&namespace)).collect()
    }

    /// The rules that count its pods.
    fn by_workload(&self, kind: &'static str, update: &Update<RawObject>) -> Vec<Woken> {
        let rules = match self.workloads.see(kind, update) {
            Changed::Nothing => Vec::new(),
            Changed::Namespace(namespace) => self.rules_in(&namespace),
            Changed::All => known(self.rules.all()),
        };
        rules.iter().map(|it| Woken::Rule(key_of(it))).collect()
    }

    /// The rule itself, and the pods of its namespace that wait for rules: those that it has let go as well.
    fn by_rule(&self, update: Update<RawObject>) -> Vec<Woken> {
        let Some(object) = update.into_object() else {
            return Vec::new();
        };
        let key = key_of(&object);
        let mut woken = Vec::new();
        let rules = self.rules_in(&key.namespace);
        for object in self.pods_in(&key.namespace) {
            let Ok(pod) = object.read::<Pod>() else {
                continue;
            };
            if Subject::of(&pod).stage.is_some() {
                let key = key_of(&object);
                self.measure(&key, &pod, &rules);
                woken.push(Woken::Pod(key));
            }
        }
        woken.extend(self.evictions_of(&key.namespace));
        woken.push(Woken::Rule(key));
        woken
    }

    /// All pods of a namespace that goes.
    fn by_namespace(&self, update: Update<RawObject>) -> Vec<Woken> {
        let namespace = update.into_object().filter(|object| pods::goes(object));
        let Some(namespace) = namespace else {
            return Vec::new();
        };
        let pods = self.pods_in(&key_of(&namespace).name);
        pods.iter().map(|pod| Woken::Pod(key_of(pod))).collect()
    }

    fn rules_in(&self, namespace: &str) -> Vec<Arc<RawObject>> {
        known(self.rules.beginning(namespace, ""))
    }

    fn pods_in(&self, namespace: &str) -> Vec<Arc<RawObject>> {
        known(self.pods.beginning(namespace, ""))
    }
}

/// What is known by now: the rest is told of as it comes.
fn known(objects: Seen<Vec<Arc<RawObject>>>) -> Vec<Arc<RawObject>> {
    match objects {
        Seen::Present(objects) => objects,
        Seen::Absent | Seen::Unknown(_) => Vec::new(),
    }
}

pub(crate) fn key_of(object: &RawObject) -> PodKey {
    let metadata = object.meta();
    PodKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
