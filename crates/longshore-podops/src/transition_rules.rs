//! The controller of PodTransitionRules.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use longshore_core::{Class, Classify, Never, Plan, Seen};
use longshore_kit::{Cache, Controller, RawObject};

use crate::{
    model::Pod,
    rule::{Answers, Observed, RuleKey, RuleKind, decide},
};

/// Decides about rules.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) pods: Arc<Cache<RawObject>>,
    pub(crate) rules: Arc<Cache<RawObject>>,
    pub(crate) skipped: BTreeSet<RuleKind>,
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
                Seen::Present(object.read().map_err(|source| UnreadableRule {
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
            pods: self.pods.beginning(&key.namespace, "").map(readable),
            answers: Answers::new(),
            skipped: self.skipped.clone(),
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

/// Those that can be read; the others are told about where pods are decided upon.
fn readable(pods: Vec<Arc<RawObject>>) -> Vec<Pod> {
    pods.iter().filter_map(|pod| pod.read().ok()).collect()
}
