//! The controller of PodTransitionRules.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use longshore_core::{Class, Classify, Never, Plan, Seen};
use longshore_kit::{Answers, Cache, Controller, Parsed};

use crate::{
    conversations::{Conversations, Known, Wanted},
    model::Pod,
    replicas::{Workload, Workloads},
    rule::{Inquiry, Observed, Rule, RuleKey, RuleKind, Subject, decide, stage_of},
    selections::Selections,
};

/// Decides about rules.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) pods: Arc<Cache<Parsed<Pod>>>,
    pub(crate) rules: Arc<Cache<Parsed<Rule>>>,
    pub(crate) selections: Selections,
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
    type Effect = Inquiry;
    type Question = Never;
    type Error = UnreadableRule;

    fn name(&self) -> &'static str {
        "podops.rules"
    }

    fn group<'a>(&self, key: &'a RuleKey) -> &'a str {
        &key.namespace
    }

    async fn observe(
        &self,
        key: &RuleKey,
        now: Timestamp,
        _answers: &Answers<Never>,
    ) -> Result<Observed, UnreadableRule> {
        let rule = self.read(key)?;
        let (mut pods, mut workloads) = (Seen::Absent, Seen::Absent);
        let mut known = Known::default();
        match &rule {
            Seen::Present(rule) => {
                workloads = self.workloads.of(&key.namespace, |it| rule.is_of(it));
                pods = self.pods(key, &workloads);
                if let Seen::Present(pods) = &pods {
                    known = self.known(key, rule, pods);
                }
            }
            Seen::Absent => {
                self.conversations.forget(key);
                // Those that have its annotation still.
                pods = self.pods(key, &workloads);
            }
            Seen::Unknown(_) => {}
        }
        Ok(Observed {
            now,
            name: key.name.clone(),
            rule: rule.map(|rule| Rule::clone(&rule)),
            pods,
            workloads,
            answers: known.answers,
            polls: known.polls,
            skipped: self.skipped.clone(),
        })
    }

    fn decide(&self, observed: &Observed) -> Plan<Never, Inquiry> {
        decide(observed)
    }

    async fn persist(&self, _: &RuleKey, status: &Never) -> Result<(), UnreadableRule> {
        match *status {}
    }

    async fn call(&self, key: &RuleKey, inquiry: &Inquiry) -> Result<(), UnreadableRule> {
        // Of the version that was decided upon, or of the next one, which has a round of its own.
        let Seen::Present(rule) = self.read(key)? else {
            return Ok(());
        };
        let asked = &self.conversations;
        match inquiry {
            Inquiry::Ask(question) => {
                let body = question.body(|name| {
                    let pod = self.pods.get(&key.namespace, name);
                    pod.present().and_then(|pod| pod.raw().to_value().ok())
                });
                asked.ask(key, rule.generation, question, body);
            }
            Inquiry::Poll(poll) => asked.poll(key, rule.generation, poll),
        }
        Ok(())
    }
}

impl Rules {
    fn read(&self, key: &RuleKey) -> Result<Seen<Arc<Rule>>, UnreadableRule> {
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

    /// The pods that a decision about a rule is made from: those that it selects or shows something on, and those that
    /// its workloads have. All others are of no consequence for it.
    fn pods(&self, key: &RuleKey, workloads: &Seen<Vec<Workload>>) -> Seen<Vec<Pod>> {
        let workloads = workloads.present().map_or(&[][..], Vec::as_slice);
        self.pods.complete().map(|()| {
            let pods = self.selections.pods_of(key, workloads);
            pods.iter().map(|pod| Pod::clone(pod)).collect()
        })
    }

    /// What was said about the pods that are in a stage, and about the tasks that the status has.
    fn known(&self, key: &RuleKey, rule: &Rule, pods: &[Pod]) -> Known {
        let is_in_stage = |pod: &&Pod| stage_of(pod).is_some() && rule.selects(pod);
        let subjects = pods.iter().filter(is_in_stage).map(Subject::of);
        let tasks = rule.status.rule_states.iter().flat_map(|state| {
            let status = state.webhook_status.iter();
            let tasks = status.flat_map(|status| &status.task_states);
            tasks.map(move |task| (state.name.clone(), task.task_id.clone()))
        });
        let wanted = Wanted {
            occasions: subjects.map(|subject| subject.occasion).collect(),
            tasks: tasks.collect(),
        };
        self.conversations.known(key, rule.generation, &wanted)
    }
}
