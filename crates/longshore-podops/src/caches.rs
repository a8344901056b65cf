//! What the controllers see of the cluster, and whom each change wakes.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream, stream::BoxStream};
use kube::Resource as _;
use longshore_core::Seen;
use longshore_kit::{Cache, Clock, Parsed, RawObject, Update};

use crate::{
    config::PodOpsConfig,
    eviction::{self, Budget},
    evictions::{EvictionsOf, Waiting},
    model::{Pod, PodKey},
    pods,
    replicas::{Changed, Workloads},
    rule::{Rule, RuleKey, stage_of},
    selections::Selections,
    service::{Updates, key_of},
    traffic::{Concerned, Routes},
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
    waiting: Waiting,
    clock: Arc<dyn Clock>,
    /// `None` where Services protect no pods.
    pub(crate) routes: Option<Routes>,
}

/// Whom a change wakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Pod(PodKey),
    Rule(RuleKey),
    Evictions(EvictionsOf),
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
            waiting: Waiting::default(),
            clock,
            routes: config.drain_delay.map(Routes::new),
        }
    }

    /// What routes traffic to pods wakes those that it concerns. Nothing is watched where Services protect no pods.
    pub(crate) fn woken_by_traffic(
        &self,
        services: Updates,
        slices: Updates,
    ) -> BoxStream<'static, Woken> {
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
        pods.iter()
            .map(|pod| Woken::Pod(key_of(pod.raw())))
            .collect()
    }

    pub(crate) fn woken(
        &self,
        pods: Updates<Parsed<Pod>>,
        rules: Updates<Parsed<Rule>>,
        namespaces: Updates,
    ) -> impl Stream<Item = Woken> + use<> {
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
    fn by_pod(&self, update: &Update<Parsed<Pod>>) -> Vec<Woken> {
        let (object, is_gone) = match update {
            Update::Applied(object) => (object, false),
            Update::Deleted(object) => (object, true),
            Update::Reached(_) => return Vec::new(),
        };
        let key = key_of(object.raw());
        let mut woken = Vec::new();
        if is_gone && let (Some(routes), Some(uid)) = (&self.routes, &object.meta().uid) {
            routes.forget(uid);
        }
        let pod = object.value().map(|pod| &**pod);
        self.waiting.see(&key, pod.filter(|_| !is_gone));
        if let Some(pod) = pod {
            let rules = self.selections.rules_about(pod);
            woken.extend(rules.into_iter().map(Woken::Rule));
        }
        woken.extend(self.evictions_of(&key.namespace));
        woken.push(Woken::Pod(key));
        woken
    }

    /// The evictions of a namespace, where a pod of it waits for one, or has begun and is still Ready.
    fn evictions_of(&self, namespace: &str) -> Option<Woken> {
        let is_any = self.waiting.is_any_in(namespace, self.clock.now());
        is_any.then(|| Woken::Evictions(EvictionsOf(namespace.to_owned())))
    }

    /// The evictions that may wait for a budget, and the pods that are evicted.
    pub(crate) fn by_budget(&self, update: Update<Parsed<Budget>>) -> Vec<Woken> {
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
        let pods = pods.map(|pod| Woken::Pod(key_of(pod.raw())));
        pods.chain(self.evictions_of(&namespace)).collect()
    }

    /// The rules that count its pods.
    pub(crate) fn by_workload(&self, kind: &'static str, update: &Update<RawObject>) -> Vec<Woken> {
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
        rules.into_iter().map(Woken::Rule).collect()
    }

    /// The rule itself, and the pods in a stage of which it says something else: those that it has let go as well.
    fn by_rule(&self, update: Update<Parsed<Rule>>) -> Vec<Woken> {
        let Some(object) = update.into_object() else {
            return Vec::new();
        };
        let key = key_of(object.raw());
        let mut woken = Vec::new();
        for pod in self.selections.take_news(&key) {
            if stage_of(&pod).is_some() {
                woken.push(Woken::Pod(PodKey {
                    namespace: pod.target.namespace.clone(),
                    name: pod.target.name.clone(),
                }));
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
        pods.iter()
            .map(|pod| Woken::Pod(key_of(pod.raw())))
            .collect()
    }

    fn pods_in(&self, namespace: &str) -> Vec<Arc<Parsed<Pod>>> {
        known(self.pods.beginning(namespace, ""))
    }
}

/// What is known by now: the rest is told of as it comes.
fn known<K>(objects: Seen<Vec<Arc<K>>>) -> Vec<Arc<K>> {
    match objects {
        Seen::Present(objects) => objects,
        Seen::Absent | Seen::Unknown(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
