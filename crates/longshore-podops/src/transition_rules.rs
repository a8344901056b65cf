//! The controller of PodTransitionRules.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_core::{AskError, Class, Classify, Incarnation, Never, NoAnswer, Question, Seen};
use longshore_kit::{Answers, AskLimits, Cache, Controller, KindLimits, Parsed};

use crate::{
    ask_webhooks::RuleTransport,
    model::Pod,
    pods::try_map,
    replicas::{Workload, Workloads},
    rule::{
        Exchange, Inquiry, Observed, Rule, RuleAnswers, RuleAsk, RuleKey, RuleKind, RulePlan,
        RuleReply, Subject, Wanted, decide, known, stage_of,
    },
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
    pub(crate) transport: Arc<dyn RuleTransport>,
}

/// Longer than a transport takes: its own failures say more.
const ASK_TIMEOUT: Duration = Duration::from_secs(40);

/// Webhooks that take their whole time keep only the rules of their own namespace waiting.
pub(crate) fn limits() -> AskLimits {
    AskLimits {
        in_flight: 128,
        each: KindLimits {
            in_flight: 64,
            in_flight_per_host: 8,
            timeout: ASK_TIMEOUT,
            ..KindLimits::default()
        },
        ..AskLimits::default()
    }
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
    type Question = RuleAsk;
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
        answers: &Answers<RuleAsk>,
    ) -> Result<Observed, UnreadableRule> {
        Ok(assemble(self.load(key)?, key, now, answers, &self.skipped))
    }

    /// Another generation asks anew.
    fn incarnation(&self, observed: &Observed) -> Seen<Incarnation> {
        observed.rule.as_ref().map(incarnation)
    }

    fn decide(&self, observed: &Observed) -> RulePlan {
        decide(observed)
    }

    async fn persist(&self, _: &RuleKey, status: &Never) -> Result<(), UnreadableRule> {
        match *status {}
    }

    async fn call(&self, _: &RuleKey, effect: &Never) -> Result<(), UnreadableRule> {
        match *effect {}
    }

    async fn ask(&self, key: &RuleKey, ask: &RuleAsk, _: usize) -> Result<RuleReply, AskError> {
        let failed = |why: String| AskError::new(NoAnswer::Unreachable, why);
        match &ask.inquiry {
            Inquiry::Ask(question) => {
                let body = question.body(|name| {
                    let pod = self.pods.get(&key.namespace, name);
                    pod.present().and_then(|pod| pod.raw().to_value().ok())
                });
                let whom = &question.webhook.client_config;
                let answer = self.transport.ask(whom, &body).await;
                answer.map(RuleReply::Asked).map_err(failed)
            }
            Inquiry::Poll(poll) => {
                let answer = self.transport.poll(&poll.poll, &poll.task_id).await;
                answer.map(RuleReply::Polled).map_err(failed)
            }
        }
    }
}

fn incarnation(rule: &Rule) -> Incarnation {
    let uid = rule.target.uid.clone().unwrap_or_default();
    Incarnation::of(uid).since(rule.generation)
}

/// What the caches show of a rule.
struct Loaded {
    rule: Seen<Arc<Rule>>,
    pods: Seen<Vec<Pod>>,
    workloads: Seen<Vec<Workload>>,
}

impl Rules {
    fn load(&self, key: &RuleKey) -> Result<Loaded, UnreadableRule> {
        let rule = self.rules.get(&key.namespace, &key.name);
        let rule = try_map(rule, |object| {
            object.read().map_err(|source| UnreadableRule {
                key: key.clone(),
                source,
            })
        })?;
        let (mut pods, mut workloads) = (Seen::Absent, Seen::Absent);
        if let Seen::Present(rule) = &rule {
            workloads = self.workloads.of(&key.namespace, |it| rule.is_of(it));
        }
        if !rule.is_unknown() {
            // Of a rule that is gone: those that have its annotation still.
            pods = self.pods(key, &workloads);
        }
        Ok(Loaded {
            rule,
            pods,
            workloads,
        })
    }

    /// The pods that a decision about a rule is made from: those that it selects or shows something on, and those that
    /// its workloads have. All other pods are of no consequence for the decision.
    fn pods(&self, key: &RuleKey, workloads: &Seen<Vec<Workload>>) -> Seen<Vec<Pod>> {
        let workloads = workloads.present().map_or(&[][..], Vec::as_slice);
        self.pods.complete().map(|()| {
            let pods = self.selections.pods_of(key, workloads);
            pods.iter().map(|pod| Pod::clone(pod)).collect()
        })
    }
}

fn assemble(
    loaded: Loaded,
    key: &RuleKey,
    now: Timestamp,
    answers: &Answers<RuleAsk>,
    skipped: &BTreeSet<RuleKind>,
) -> Observed {
    let known = match (&loaded.rule, &loaded.pods) {
        (Seen::Present(rule), Seen::Present(pods)) => answered(key, rule, pods, answers),
        _ => RuleAnswers::default(),
    };
    Observed {
        now,
        name: key.name.clone(),
        rule: loaded.rule.map(|rule| Rule::clone(&rule)),
        pods: loaded.pods,
        workloads: loaded.workloads,
        answers: known.answers,
        polls: known.polls,
        spent: known.spent,
        skipped: skipped.clone(),
    }
}

/// What was said about the pods that are in a stage, and about the tasks that the status has.
fn answered(key: &RuleKey, rule: &Rule, pods: &[Pod], answers: &Answers<RuleAsk>) -> RuleAnswers {
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
    let incarnation = incarnation(rule);
    let exchanges = answers.all(&incarnation).map(|(ask, asked)| Exchange {
        ask,
        asked,
        before: answers.before(&incarnation, &ask.id()),
    });
    known(key, exchanges, &wanted)
}
