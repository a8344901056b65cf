//! The controller of pods: their lifecycle, their deletion and their traffic, in one loop.
//!
//! Upstream has a controller for each. They write the same pods, so one that decides about all is never in its own way,
//! and needs fewer requests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Resource as _;
use longshore_core::{Action, Class, Classify, Never, ObjectRef, Resource, Scope, Seen};
use longshore_kit::{Answers, Applier, ApplyError, Cache, Controller, Parsed, RawObject};
use serde_json::Value;

use crate::{
    config::PodOpsConfig,
    deletion,
    eviction::{self, Budget},
    evictions::read_all,
    lifecycle::{self, Observed, PodEffect, PodPlan, RuleSays, look_again},
    model::{Labels, Namespace, Operations, Pod, PodKey, Undecodable},
    rule::Rule,
    selections::Selections,
    traffic::{self, Routes, Traffic},
};

/// `v1` Service.
pub(crate) const SERVICE: Resource = Resource {
    group: "",
    version: "v1",
    kind: "Service",
    plural: "services",
    scope: Scope::Namespaced,
};

/// Decides about pods.
#[derive(Debug)]
pub(crate) struct Pods {
    pub(crate) config: PodOpsConfig,
    pub(crate) pods: Arc<Cache<Parsed<Pod>>>,
    pub(crate) rules: Arc<Cache<Parsed<Rule>>>,
    /// What the rules say.
    pub(crate) selections: Selections,
    /// `None` where Services protect no pods.
    pub(crate) routes: Option<Routes>,
    /// `None` where deletes and evictions do not become operations.
    pub(crate) budgets: Option<Arc<Cache<Parsed<Budget>>>>,
    /// Empty where deletes do not become operations.
    pub(crate) namespaces: Arc<Cache<RawObject>>,
    pub(crate) applier: Applier,
}

/// A pod that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("pod {key} cannot be read")]
pub(crate) struct UnreadablePod {
    key: PodKey,
    source: Undecodable,
}

/// Why a round about a pod failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodError {
    /// The pod cannot be read.
    #[error(transparent)]
    Unreadable(#[from] UnreadablePod),
    /// Its eviction was refused, or was not answered.
    #[error(transparent)]
    Evict(#[from] ApplyError),
}

impl Classify for PodError {
    fn class(&self) -> Class {
        match self {
            Self::Unreadable(_) => Class::Invalid,
            Self::Evict(error) => error.class(),
        }
    }
}

impl Controller for Pods {
    type Key = PodKey;
    type Observed = Observed;
    type Status = Never;
    type Effect = PodEffect;
    type Question = Never;
    type Error = PodError;

    fn name(&self) -> &'static str {
        "podops.pods"
    }

    fn group<'a>(&self, key: &'a PodKey) -> &'a str {
        &key.namespace
    }

    async fn observe(
        &self,
        key: &PodKey,
        now: Timestamp,
        _answers: &Answers<Never>,
    ) -> Result<Observed, PodError> {
        let loaded = self.load(key, now).await?;
        Ok(loaded.assemble(now, self.config.protection_deadline))
    }

    /// Counts a pod where it stands. Each change of the pod and of what rules say of it leads to a round.
    fn measure(&self, key: &PodKey, observed: &Observed) {
        let (pod, now) = match &observed.pod {
            Seen::Present(pod) => (pod, observed.now),
            Seen::Absent => return self.config.measures.count(key, None),
            Seen::Unknown(_) => return,
        };
        let mut held = Vec::new();
        if (eviction::is_waiting(pod, now) || eviction::is_to_leave(pod))
            && let Some(budgets) = &self.budgets
            && let Seen::Present(budgets) = read_all(budgets.beginning(&key.namespace, ""))
        {
            if eviction::is_waiting(pod, now) {
                let selecting = budgets.iter().filter(|budget| budget.selects(pod));
                held.extend(selecting.map(Budget::holds));
            } else {
                held = eviction::holding(pod, &budgets, now);
            }
        }
        let rules = observed.rules.present().map_or(&[][..], Vec::as_slice);
        self.config.measures.count(key, Some((pod, rules, &held)));
    }

    fn decide(&self, observed: &Observed) -> PodPlan {
        let mut plan = decide(observed);
        if observed.namespace == Namespace::Goes {
            // API servers take no new Events there.
            plan.actions
                .retain(|action| !matches!(action, Action::Announce(_)));
        }
        plan
    }

    async fn persist(&self, _: &PodKey, status: &Never) -> Result<(), PodError> {
        match *status {}
    }

    async fn call(&self, key: &PodKey, effect: &PodEffect) -> Result<(), PodError> {
        let PodEffect::Evict(target) = effect;
        Ok(self.applier.evict(key, target).await?)
    }
}

/// Decides about one pod: first its traffic, because nothing else may close its gate while it is unprotected.
pub(crate) fn decide(observed: &Observed) -> PodPlan {
    let Some(traffic) = traffic::decide(observed) else {
        return look_again();
    };
    if !traffic.actions.is_empty() {
        return traffic;
    }
    let deletion = deletion::decide(observed);
    let mut plan = deletion.unwrap_or_else(|| lifecycle::decide(observed));
    plan.next = plan.next.min(traffic.next);
    plan
}

/// What the caches and the API server show of a pod, and of what is around it.
pub(crate) struct Loaded {
    pub(crate) pod: Seen<Pod>,
    pub(crate) rules: Seen<Vec<RuleSays>>,
    /// The Services that hold a finalizer which the pod lacks, by holder.
    pub(crate) services: BTreeMap<String, Seen<Value>>,
    pub(crate) budgets: Seen<Vec<Arc<Parsed<Budget>>>>,
    pub(crate) namespace: Seen<Arc<RawObject>>,
    pub(crate) traffic: Seen<Traffic>,
}

impl Loaded {
    pub(crate) fn assemble(self, now: Timestamp, deadline: Option<Duration>) -> Observed {
        let services = self.services.into_iter();
        let selectors = services
            .map(|(holder, service)| (holder, service.map(|service| selector_of(&service))));
        Observed {
            now,
            pod: self.pod,
            rules: self.rules,
            services: selectors.collect(),
            budgets: read_all(self.budgets),
            // One that was not seen yet counts as one that stays: its watch will deliver it.
            namespace: match self.namespace {
                Seen::Present(namespace) if goes(&namespace) => Namespace::Goes,
                Seen::Present(_) | Seen::Absent | Seen::Unknown(_) => Namespace::Stays,
            },
            traffic: self.traffic,
            deadline,
        }
    }
}

impl Pods {
    async fn load(&self, key: &PodKey, now: Timestamp) -> Result<Loaded, UnreadablePod> {
        let pod = try_map(self.pods.get(&key.namespace, &key.name), |object| {
            let known = object.value().map(|pod| Ok(Pod::clone(pod)));
            known.unwrap_or_else(|| read(key, object.raw()))
        })?;
        let (mut rules, mut services) = (Seen::Absent, BTreeMap::new());
        let (mut traffic, mut budgets) = (Seen::Absent, Seen::Absent);
        if let Seen::Present(pod) = &pod {
            rules = self.rules_of(pod);
            services = self.services_of(pod).await;
            budgets = self.budgets_of(pod);
            if let Some(routes) = &self.routes {
                traffic = routes.of(pod, now);
            }
        }
        Ok(Loaded {
            pod,
            rules,
            services,
            budgets,
            namespace: self.namespaces.get("", &key.namespace),
            traffic,
        })
    }

    fn rules_of(&self, pod: &Pod) -> Seen<Vec<RuleSays>> {
        let rules = self.rules.complete();
        rules.map(|()| self.selections.say(pod))
    }

    /// The budgets of its namespace, where a client has asked for its eviction, and it may go or be taken out of
    /// service.
    fn budgets_of(&self, pod: &Pod) -> Seen<Vec<Arc<Parsed<Budget>>>> {
        let is_evicted = eviction::needs_budgets(pod);
        match self.budgets.as_ref().filter(|_| is_evicted) {
            Some(budgets) => budgets.beginning(&pod.target.namespace, ""),
            None => Seen::Absent,
        }
    }

    /// The Services that a pod without an operation waits for.
    async fn services_of(&self, pod: &Pod) -> BTreeMap<String, Seen<Value>> {
        let is_idle = Operations::of(&pod.labels).is_ok_and(|operations| operations.is_empty());
        let is_waiting = pod.is_controlled() && !pod.is_deleting && !pod.is_available();
        let mut services = BTreeMap::new();
        if !is_idle || !is_waiting {
            return services;
        }
        for (holder, finalizer) in pod.expected_finalizers().unwrap_or_default() {
            if let Some(service) = service(&holder).filter(|_| !pod.finalizers.contains(&finalizer))
            {
                let service = match self.applier.requests().get(&service).await {
                    Ok(Some(object)) => Seen::Present(object),
                    Ok(None) => Seen::Absent,
                    Err(error) => Seen::Unknown(error.to_unknown()),
                };
                services.insert(holder, service);
            }
        }
        services
    }
}

/// What can be read of what is seen.
pub(crate) fn try_map<T, U, E>(
    seen: Seen<T>,
    read: impl FnOnce(T) -> Result<U, E>,
) -> Result<Seen<U>, E> {
    match seen {
        Seen::Present(value) => read(value).map(Seen::Present),
        Seen::Absent => Ok(Seen::Absent),
        Seen::Unknown(why) => Ok(Seen::Unknown(why)),
    }
}

pub(crate) fn read(key: &PodKey, object: &RawObject) -> Result<Pod, UnreadablePod> {
    object.read().map_err(|source| UnreadablePod {
        key: key.clone(),
        source: Undecodable::from(source),
    })
}

/// Whether a namespace was deleted.
pub(crate) fn goes(namespace: &RawObject) -> bool {
    namespace.meta().deletion_timestamp.is_some()
}

/// The Service of `Service/<namespace>/<name>`; a pod waits for other holders whatever becomes of them.
fn service(holder: &str) -> Option<ObjectRef> {
    let mut parts = holder.split('/');
    let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    (kind == SERVICE.kind && parts.next().is_none()).then(|| ObjectRef {
        resource: SERVICE,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: None,
    })
}

fn selector_of(service: &Value) -> Labels {
    let selector = service["spec"]["selector"].as_object();
    let pairs = selector.into_iter().flatten();
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    pairs.filter_map(pair).collect()
}
