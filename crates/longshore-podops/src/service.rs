//! The controllers, running: two watches and two loops.

use std::sync::Arc;

use futures::{Stream, StreamExt, channel::mpsc, stream};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL};
use longshore_core::{Resource, Seen};
use longshore_kit::{Applier, Cache, CacheFeed, Clock, ListWatch, Runner, Update};
use tokio_util::sync::CancellationToken;

use crate::{
    config::PodOpsConfig,
    model::{Pod, PodKey},
    pods::{self, Pods},
    rule::{RULE, Rule, RuleKey, Subject},
    transition_rules::Rules,
};

/// The controllers of PodOpsLifecycle. The webhooks are served by somebody else: see [`admit`](crate::admit).
#[derive(Debug)]
pub struct PodOps {
    config: PodOpsConfig,
    clock: Arc<dyn Clock>,
}

/// What both loops see.
#[derive(Clone, Debug)]
struct Caches {
    pods: Arc<Cache<DynamicObject>>,
    rules: Arc<Cache<DynamicObject>>,
}

/// Whom a change wakes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Woken {
    Pod(PodKey),
    Rule(RuleKey),
}

impl PodOps {
    /// Controllers with this configuration.
    pub fn new(config: PodOpsConfig, clock: Arc<dyn Clock>) -> Self {
        Self { config, clock }
    }

    /// Runs until `shutdown`.
    ///
    /// *Assumptions*: the webhooks see every write of a controlled pod, and the `PodTransitionRule` resource is
    /// installed; while it is not, no operation passes its rules.
    ///
    /// *Cancellation*: after `shutdown` no round starts, and running ones have 30 s to finish. Dropping the future is
    /// like a crash: nothing is lost.
    pub async fn run(self, client: Client, shutdown: CancellationToken) {
        let namespace = self.config.namespace.as_deref();
        let caches = Caches {
            pods: Cache::new(),
            rules: Cache::new(),
        };
        let pods = ListWatch::new(api(&client, Resource::POD, namespace))
            .labels(format!("{LABEL_CONTROL}={CONTROLLED}"))
            .into_cache(caches.pods.clone());
        let rules = ListWatch::new(api(&client, RULE, namespace)).into_cache(caches.rules.clone());
        let feeds: [(Resource, Arc<dyn CacheFeed>); 2] = [
            (Resource::POD, caches.pods.clone()),
            (RULE, caches.rules.clone()),
        ];
        let applier = Applier::new(client, "podops", feeds);
        let of_pods = Pods {
            pods: caches.pods.clone(),
            rules: caches.rules.clone(),
            requests: applier.requests().clone(),
        };
        let of_rules = Rules {
            pods: caches.pods.clone(),
            rules: caches.rules.clone(),
        };
        let (wake_pod, woken_pods) = mpsc::unbounded();
        let (wake_rule, woken_rules) = mpsc::unbounded();
        let waking = caches.woken(pods.boxed(), rules.boxed()).for_each(|woken| {
            // Who does not listen any more has ended.
            let _ = match woken {
                Woken::Pod(key) => wake_pod.unbounded_send(key).is_ok(),
                Woken::Rule(key) => wake_rule.unbounded_send(key).is_ok(),
            };
            std::future::ready(())
        });
        let pod_rounds = Runner::new(Arc::new(of_pods), applier.clone(), Arc::clone(&self.clock))
            .concurrency(self.config.concurrency)
            .run(woken_pods, shutdown.clone());
        let rule_rounds = Runner::new(Arc::new(of_rules), applier, Arc::clone(&self.clock))
            .concurrency(self.config.concurrency)
            .run(woken_rules, shutdown.clone());
        tokio::join!(
            pod_rounds,
            rule_rounds,
            shutdown.run_until_cancelled(waking)
        );
    }
}

impl Caches {
    /// Whom the changes of both resources wake.
    fn woken(
        &self,
        pods: impl Stream<Item = Update<DynamicObject>> + Send,
        rules: impl Stream<Item = Update<DynamicObject>> + Send,
    ) -> impl Stream<Item = Woken> + Send {
        let by_pods = {
            let caches = self.clone();
            pods.map(move |update| caches.by_pod(update))
        };
        let caches = self.clone();
        let by_rules = rules.map(move |update| caches.by_rule(update));
        stream::select(by_pods, by_rules).flat_map(stream::iter)
    }

    /// The pod itself, and the rules that are about it or were.
    fn by_pod(&self, update: Update<DynamicObject>) -> Vec<Woken> {
        let Some((key, object)) = named(update) else {
            return Vec::new();
        };
        let mut woken = Vec::new();
        if let Ok(pod) = pods::read(&key, &object) {
            let is_concerned = |rule: &Rule| {
                let is_here = rule.target.namespace == key.namespace;
                is_here && (rule.selects(&pod) || rule.status.targets.contains(&key.name))
            };
            let rules = self.rules().filter(is_concerned);
            woken.extend(rules.map(|rule| {
                Woken::Rule(RuleKey {
                    namespace: rule.target.namespace,
                    name: rule.target.name,
                })
            }));
        }
        woken.push(Woken::Pod(key));
        woken
    }

    /// The rule itself, and the pods of its namespace that wait for rules: those that it has let go as well.
    fn by_rule(&self, update: Update<DynamicObject>) -> Vec<Woken> {
        let Some((key, _)) = named(update) else {
            return Vec::new();
        };
        let waiting = self.pods().filter(|pod| {
            pod.target.namespace == key.namespace && Subject::of(pod).stage.is_some()
        });
        let mut woken: Vec<Woken> = waiting
            .map(|pod| {
                Woken::Pod(PodKey {
                    namespace: pod.target.namespace,
                    name: pod.target.name,
                })
            })
            .collect();
        woken.push(Woken::Rule(key));
        woken
    }

    fn rules(&self) -> impl Iterator<Item = Rule> {
        let rules = all(&self.rules).into_iter();
        rules.filter_map(|object| pods::rule(&object))
    }

    fn pods(&self) -> impl Iterator<Item = Pod> {
        let pods = all(&self.pods).into_iter();
        pods.filter_map(|object| pods::read(&key_of(&object), &object).ok())
    }
}

fn all(cache: &Cache<DynamicObject>) -> Vec<Arc<DynamicObject>> {
    match cache.all() {
        Seen::Present(objects) => objects,
        Seen::Absent | Seen::Unknown(_) => Vec::new(),
    }
}

fn named(update: Update<DynamicObject>) -> Option<(PodKey, Arc<DynamicObject>)> {
    let object = update.into_object()?;
    Some((key_of(&object), object))
}

fn key_of(object: &DynamicObject) -> PodKey {
    PodKey {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
    }
}

/// The objects of a resource, in one namespace or in all.
fn api(client: &Client, resource: Resource, namespace: Option<&str>) -> Api<DynamicObject> {
    let kind = ApiResource {
        group: resource.group.to_owned(),
        version: resource.version.to_owned(),
        api_version: resource.api_version(),
        kind: resource.kind.to_owned(),
        plural: resource.plural.to_owned(),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}
