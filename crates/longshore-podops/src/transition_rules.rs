//! The controller of PodTransitionRules.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_core::{
    AskError, Class, Classify, Incarnation, Never, NoAnswer, Question, Seen, StatusForm,
};
use longshore_kit::{
    Answers, AskLimits, Cache, Change, Controller, KindLimits, Memory, NotDone, Notes, Parsed,
    Refusal, Verb,
};

use crate::{
    ask_webhooks::RuleTransport,
    model::Pod,
    pods::try_map,
    replicas::{Workload, Workloads},
    rule::{
        InFlight, Inquiry, Observed, RULE, Rule, RuleAnswers, RuleAsk, RuleKey, RuleKind, RulePlan,
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
    /// What the API server takes of the statuses.
    pub(crate) forms: Memory<RuleKey, StatusForm>,
    pub(crate) notes: Notes<RuleKey, StatusForm>,
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
        let loaded = self.load(key)?;
        let form = match &loaded.rule {
            Seen::Present(rule) => *self.forms.get(key, &incarnation(rule)),
            Seen::Absent | Seen::Unknown(_) => StatusForm::Full,
        };
        Ok(Observed {
            form,
            ..assemble(loaded, key, now, answers, &self.skipped)
        })
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

    fn refused(&self, key: &RuleKey, of: &Seen<Incarnation>, refusal: &Refusal) {
        if let Seen::Present(of) = of {
            let note = |form: &mut StatusForm| *form = after_refusal(*form, refusal);
            self.notes.note(key, of, note);
        }
    }

    /// Of a rule itself, only the status is patched.
    fn changed(
        &self,
        key: &RuleKey,
        of: &Seen<Incarnation>,
        change: &Change,
        not_done: Option<&NotDone>,
    ) {
        let is_written = change.verb == Verb::Patch && change.target.resource == RULE;
        if let (Seen::Present(of), true, None) = (of, is_written, not_done) {
            let note = |form: &mut StatusForm| *form = form.after_write();
            self.notes.note(key, of, note);
        }
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

/// What is tried next after the API server has refused something.
fn after_refusal(form: StatusForm, refusal: &Refusal) -> StatusForm {
    let patch = refusal.patch.as_ref();
    let is_status = patch.is_some_and(|patch| patch.subresource == Some("status"));
    if is_status && refusal.code == Some(413) {
        form.after_refusal()
    } else {
        form
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
        form: StatusForm::Full,
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
    let requests = answers.all(&incarnation).map(|(ask, asked)| InFlight {
        ask,
        asked,
        before: answers.before(&incarnation, &ask.id()),
    });
    known(key, requests, &wanted)
}

#[cfg(test)]
mod tests {
    use longshore_core::{ObjectRef, Patch, PatchKind};
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_status_is_short_after_it_was_refused_as_too_large() {
        let refusal = |subresource, code| Refusal {
            create: None,
            patch: Some(Patch {
                target: ObjectRef {
                    resource: RULE,
                    namespace: "default".to_owned(),
                    name: "ptr".to_owned(),
                    uid: None,
                },
                subresource,
                kind: PatchKind::Merge,
                patch: Value::Null,
            }),
            code: Some(code),
            message: "etcdserver: request is too large".to_owned(),
        };
        for (subresource, code, expected) in [
            (Some("status"), 413, StatusForm::Short),
            (Some("status"), 422, StatusForm::Full),
            (None, 413, StatusForm::Full),
        ] {
            let form = after_refusal(StatusForm::Full, &refusal(subresource, code));
            assert_eq!(form, expected, "{subresource:?} {code}");
        }
    }
}
