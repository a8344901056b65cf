//! The controller of PodTransitionRules.

use std::sync::Arc;

use jiff::Timestamp;
use kube::core::DynamicObject;
use longshore_core::{Class, Classify, Never, Plan, Seen};
use longshore_kit::{Cache, Controller};

use crate::{
    model::{Pod, PodKey},
    pods,
    rule::{Answers, Observed, Rule, RuleKey, decide},
};

/// Decides about rules.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) pods: Arc<Cache<DynamicObject>>,
    pub(crate) rules: Arc<Cache<DynamicObject>>,
}

/// A rule that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("PodTransitionRule {key} does not have the shape of its schema")]
pub(crate) struct UnreadableRule {
    key: RuleKey,
    source: serde_json::Error,
}

impl Classify for UnreadableRule {
    fn class(&self) -> Class {
        Class::Invalid
    }
}

impl Controller for Rules {
    type Key = RuleKey;
    type Observed = Observed;
    type Status = Never;
    type Effect = Never;
    type Error = UnreadableRule;

    fn name(&self) -> &'static str {
        "podops.rules"
    }

    async fn observe(&self, key: &RuleKey, now: Timestamp) -> Result<Observed, UnreadableRule> {
        let rule = match self.rules.get(&key.namespace, &key.name) {
            Seen::Present(object) => {
                let rule = serde_json::to_value(&*object).and_then(|object| Rule::of(&object));
                Seen::Present(rule.map_err(|source| UnreadableRule {
                    key: key.clone(),
                    source,
                })?)
            }
            Seen::Absent => Seen::Absent,
            Seen::Unknown(why) => Seen::Unknown(why),
        };
        Ok(Observed {
            now,
            rule,
            pods: self.pods.all().map(|pods| in_namespace(&pods, key)),
            answers: Answers::new(),
        })
    }

    fn decide(&self, observed: &Observed) -> Plan<Never, Never> {
        decide(observed)
    }

    async fn persist(&self, _: &RuleKey, status: &Never) -> Result<(), UnreadableRule> {
        match *status {}
    }

    async fn call(&self, _: &RuleKey, effect: &Never) -> Result<(), UnreadableRule> {
        match *effect {}
    }
}

fn in_namespace(pods: &[Arc<DynamicObject>], key: &RuleKey) -> Vec<Pod> {
    let pods = pods.iter().filter(|pod| {
        let namespace = pod.metadata.namespace.as_deref();
        namespace.unwrap_or_default() == key.namespace
    });
    pods.filter_map(|pod| {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let namespace = key.namespace.clone();
        pods::read(&PodKey { namespace, name }, pod).ok()
    })
    .collect()
}
