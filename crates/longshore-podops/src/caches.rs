//! What the controllers see of the cluster, and which keys each change is about.

use std::sync::Arc;

use kube::{Client, Resource as _};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL};
use longshore_core::{Resource, Scope, Seen};
use longshore_kit::{Cache, Clock, Kind, Namespaces, Parsed, RawObject, Update, Wiring};

use crate::{
    config::PodOpsConfig,
    eviction::{self, BUDGET, Budget},
    evictions::EvictionsOf,
    model::{Pod, PodKey},
    pods::{self, SERVICE},
    replicas::{Changed, REPLICA_SET, STATEFUL_SET, Workloads},
    rule::{RULE, Rule, RuleKey, stage_of},
    selections::Selections,
    service::key_of,
    traffic::{Concerned, ENDPOINT_SLICE, Routes},
};

/// `v1` Namespace.
const NAMESPACE: Resource = Resource {
    group: "",
    version: "v1",
    kind: "Namespace",
    plural: "namespaces",
    scope: Scope::Cluster,
};

/// What the loops see.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    pub(crate) pods: Arc<Cache<Parsed<Pod>>>,
    pub(crate) rules: Arc<Cache<Parsed<Rule>>>,
    pub(crate) budgets: Arc<Cache<Parsed<Budget>>>,
    pub(crate) namespaces: Arc<Cache<RawObject>>,
    /// In step with the caches of pods and rules.
    pub(crate) selections: Selections,
    pub(crate) workloads: Workloads,
    clock: Arc<dyn Clock>,
    /// `None` where Services protect no pods.
    pub(crate) routes: Option<Routes>,
}

/// A key that a change is about: its controller decides about it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requeued {
    Pod(PodKey),
    Rule(RuleKey),
    Evictions(EvictionsOf),
}

impl Requeued {
    pub(crate) fn pod(&self) -> Option<&PodKey> {
        if let Self::Pod(key) = self {
            Some(key)
        } else {
            None
        }
    }

    pub(crate) fn rule(&self) -> Option<&RuleKey> {
        if let Self::Rule(key) = self {
            Some(key)
        } else {
            None
        }
    }

    pub(crate) fn evictions(&self) -> Option<&EvictionsOf> {
        if let Self::Evictions(key) = self {
            Some(key)
        } else {
            None
        }
    }
}

impl Caches {
    /// Nothing was seen yet.
    pub(crate) fn new(config: &PodOpsConfig, clock: Arc<dyn Clock>) -> Self {
        let selections = Selections::default();
        Self {
            pods: Cache::<Parsed<Pod>>::followed_by(Arc::new(selections.clone())),
            rules: Cache::<Parsed<Rule>>::followed_by(Arc::new(selections.clone())),
            budgets: Cache::new(),
            namespaces: Cache::new(),
            selections,
            workloads: Workloads::default(),
            clock,
            routes: config.drain_delay.map(Routes::new),
        }
    }

    /// What is watched, and the keys that each change is about.
    pub(crate) fn wiring(&self, client: &Client, config: &PodOpsConfig) -> Wiring<Requeued> {
        let namespace = config.namespace.as_deref();
        let pods = Kind::new(Resource::POD, self.pods.clone());
        let pods = pods.labels(format!("{LABEL_CONTROL}={CONTROLLED}"));
        let mut wiring = Wiring::new(client, Namespaces::one_or_all(namespace))
            .keyed(pods, self.by(Self::by_pod))
            .keyed(Kind::new(RULE, self.rules.clone()), self.by(Self::by_rule));
        for resource in [STATEFUL_SET, REPLICA_SET] {
            let (kind, caches) = (Kind::new(resource, Cache::passing_on()), self.clone());
            wiring = wiring.watched(kind, move |update| {
                caches.by_workload(resource.kind, &update)
            });
        }
        if config.grace_delete {
            let mut namespaces = Kind::new(NAMESPACE, self.namespaces.clone());
            if let Some(namespace) = namespace {
                namespaces = namespaces.fields(format!("metadata.name={namespace}"));
            }
            let budgets = Kind::new(BUDGET, self.budgets.clone());
            wiring = wiring
                .watched(namespaces, self.by(Self::by_namespace))
                .watched(budgets, self.by(Self::by_budget));
        }
        if let Some(routes) = &self.routes {
            let (of_services, of_slices) = (routes.clone(), routes.clone());
            let (by_services, by_slices) = (self.clone(), self.clone());
            wiring = wiring
                .watched(Kind::new(SERVICE, Cache::new()), move |update| {
                    by_services.concerned(of_services.see_service(&update))
                })
                .watched(Kind::new(ENDPOINT_SLICE, Cache::new()), move |update| {
                    by_slices.concerned(of_slices.see_slice(&update))
                });
        }
        wiring
    }

    fn by<K>(
        &self,
        keys: fn(&Self, Update<K>) -> Vec<Requeued>,
    ) -> impl Fn(Update<K>) -> Vec<Requeued> + Send + Sync + use<K> {
        let caches = self.clone();
        move |update| keys(&caches, update)
    }

    /// The pods among `concerned` that take part.
    fn concerned(&self, concerned: Concerned) -> Vec<Requeued> {
        let pods = match concerned {
            Concerned::Nobody => Vec::new(),
            Concerned::Pods(pods) => {
                let pods = pods.into_iter();
                let known =
                    pods.filter(|pod| self.pods.get(&pod.namespace, &pod.name).present().is_some());
                return known.map(Requeued::Pod).collect();
            }
            Concerned::Namespace(namespace) => self.pods_in(&namespace),
            Concerned::All => known(self.pods.all()),
        };
        pods.iter()
            .map(|pod| Requeued::Pod(key_of(pod.raw())))
            .collect()
    }

    /// The pod itself, and the rules that are about it or were.
    fn by_pod(&self, update: Update<Parsed<Pod>>) -> Vec<Requeued> {
        let is_gone = matches!(update, Update::Deleted(_));
        let Some(object) = update.into_object() else {
            return Vec::new();
        };
        let key = key_of(object.raw());
        let mut keys = Vec::new();
        if is_gone && let (Some(routes), Some(uid)) = (&self.routes, &object.meta().uid) {
            routes.forget(uid);
        }
        let pod = object.value().map(|pod| &**pod);
        if let Some(pod) = pod {
            let rules = self.selections.rules_about(pod);
            keys.extend(rules.into_iter().map(Requeued::Rule));
        }
        keys.extend(self.evictions_of(&key.namespace));
        keys.push(Requeued::Pod(key));
        keys
    }

    /// The evictions of a namespace, where a pod of it waits for one, or has begun and is still Ready.
    fn evictions_of(&self, namespace: &str) -> Option<Requeued> {
        let is_any = self.selections.is_any_waiting(namespace, self.clock.now());
        is_any.then(|| Requeued::Evictions(EvictionsOf(namespace.to_owned())))
    }

    /// The evictions that may wait for a budget, and the pods that are evicted.
    pub(crate) fn by_budget(&self, update: Update<Parsed<Budget>>) -> Vec<Requeued> {
        let Some(object) = update.into_object() else {
            return Vec::new();
        };
        let namespace = key_of(object.raw()).namespace;
        let pods = self.pods_in(&namespace);
        let is_evicted = |object: &&Arc<Parsed<Pod>>| {
            let pod = object.value();
            pod.is_some_and(|pod| eviction::needs_budgets(pod))
        };
        let pods = pods.iter().filter(is_evicted);
        let pods = pods.map(|pod| Requeued::Pod(key_of(pod.raw())));
        pods.chain(self.evictions_of(&namespace)).collect()
    }

    /// The rules that count its pods.
    pub(crate) fn by_workload(
        &self,
        kind: &'static str,
        update: &Update<RawObject>,
    ) -> Vec<Requeued> {
        let rules = match self.workloads.see(kind, update) {
            Changed::Nothing => Vec::new(),
            Changed::Pods(namespace, labels) => {
                let matching = |labels| self.selections.rules_matching(&namespace, labels);
                labels.iter().flat_map(matching).collect()
            }
            Changed::All => {
                let rules = known(self.rules.all());
                rules.iter().map(|rule| key_of(rule.raw())).collect()
            }
        };
        rules.into_iter().map(Requeued::Rule).collect()
    }

    /// The rule itself, and the pods in a stage of which it says something else: those that it has let go as well.
    fn by_rule(&self, update: Update<Parsed<Rule>>) -> Vec<Requeued> {
        let Some(object) = update.into_object() else {
            return Vec::new();
        };
        let key = key_of(object.raw());
        let mut keys = Vec::new();
        for pod in self.selections.take_news(&key) {
            if stage_of(&pod).is_some() {
                keys.push(Requeued::Pod(PodKey {
                    namespace: pod.target.namespace.clone(),
                    name: pod.target.name.clone(),
                }));
            }
        }
        keys.extend(self.evictions_of(&key.namespace));
        keys.push(Requeued::Rule(key));
        keys
    }

    /// All pods of a namespace that goes.
    fn by_namespace(&self, update: Update<RawObject>) -> Vec<Requeued> {
        let namespace = update.into_object().filter(|object| pods::goes(object));
        let Some(namespace) = namespace else {
            return Vec::new();
        };
        let pods = self.pods_in(&key_of(&namespace).name);
        pods.iter()
            .map(|pod| Requeued::Pod(key_of(pod.raw())))
            .collect()
    }

    fn pods_in(&self, namespace: &str) -> Vec<Arc<Parsed<Pod>>> {
        known(self.pods.beginning(namespace, ""))
    }
}

/// What is known by now: watches deliver the rest as it comes.
fn known<K>(objects: Seen<Vec<Arc<K>>>) -> Vec<Arc<K>> {
    match objects {
        Seen::Present(objects) => objects,
        Seen::Absent | Seen::Unknown(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
