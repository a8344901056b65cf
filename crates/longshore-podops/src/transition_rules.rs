//! The controller of PodTransitionRules.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use longshore_core::{Class, Classify, Never, Plan, Seen};
use longshore_kit::{Cache, Controller, RawObject};

use crate::{
    conversations::Conversations,
    model::Pod,
    replicas::Workloads,
    rule::{Answers, Observed, Question, Rule, RuleKey, RuleKind, Subject, decide},
};

/// Decides about rules.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) pods: Arc<Cache<RawObject>>,
    pub(crate) rules: Arc<Cache<RawObject>>,
    pub(crate) workloads: Workloads,
    pub(crate) skipped: BTreeSet<RuleKind>,
    pub(crate) conversations: Arc<Conversations>,
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
    type Effect = Question;
    type Error = UnreadableRule;

    fn name(&self) -> &'static str {
        "podops.rules"
    }

    async fn observe(&self, key: &RuleKey, now: Timestamp) -> Result<Observed, UnreadableRule> {
        let rule = self.read(key)?;
        let pods = self.pods.beginning(&key.namespace, "").map(readable);
        let answers = match (&rule, &pods) {
            (Seen::Present(rule), Seen::Present(pods)) => self.answers(key, rule, pods),
            _ => Answers::new(),
        };
        if matches!(rule, Seen::Absent) {
            self.conversations.forget(key);
        }
        Ok(Observed {
            now,
            rule,
            pods,
            workloads: self.workloads.of(&key.namespace),
            answers,
            skipped: self.skipped.clone(),
        })
    }

    fn decide(&self, observed: &Observed) -> Plan<Never, Question> {
        decide(observed)
    }

    async fn persist(&self, _: &RuleKey, status: &Never) -> Result<(), UnreadableRule> {
        match *status {}
    }

    async fn call(&self, key: &RuleKey, question: &Question) -> Result<(), UnreadableRule> {
        // Of the version that was decided upon, or of the next one, which has a round of its own.
        let Seen::Present(rule) = self.read(key)? else {
            return Ok(());
        };
        let pod = |name: &str| {
            let pod = self.pods.get(&key.namespace, name);
            pod.present().and_then(|pod| pod.to_value().ok())
        };
        let body = |trace: &str| question.body(trace, pod);
        let asked = &self.conversations;
        asked.ask(key, rule.generation, question, body);
        Ok(())
    }
}

impl Rules {
    fn read(&self, key: &RuleKey) -> Result<Seen<Rule>, UnreadableRule> {
        Ok(match self.rules.get(&key.namespace, &key.name) {
            Seen::Present(object) => {
                Seen::Present(object.read().map_err(|source| UnreadableRule {
                    key: key.clone(),
                    source,
                })?)
            }
            Seen::Absent => Seen::Absent,
            Seen::Unknown(why) => Seen::Unknown(why),
        })
    }

    /// What was said about the pods that are in a stage.
    fn answers(&self, key: &RuleKey, rule: &Rule, pods: &[Pod]) -> Answers {
        let subjects = pods.iter().filter(|pod| rule.selects(pod)).map(Subject::of);
        let occasions = subjects.filter(|subject| subject.stage.is_some());
        let occasions = occasions.map(|subject| subject.occasion).collect();
        self.conversations.known(key, rule.generation, &occasions)
    }
}

/// Those that can be read; the others are told about where pods are decided upon.
fn readable(pods: Vec<Arc<RawObject>>) -> Vec<Pod> {
    pods.iter().filter_map(|pod| pod.read().ok()).collect()
}
