//! What the controller writes about a PodTransitionRule.
//!
//! The status is what holds pods: it is written first, upon the version that was seen. What people see of it on the pods
//! follows, a few in a round; a crash in between leaves annotations that the next round compares again.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use longshore_api::podops::{
    Detail, FINALIZER_PROTECTED, PodTransitionRuleSpec, REASON_INVALID_RULE,
    REASON_STATUS_TOO_LARGE, RuleState, RuleWebhookStatus, detail_annotation,
};
use longshore_core::{
    Action, Announcement, EventType, Never, Next, Patch, PatchKind, Plan, QuestionId, Seen,
    StatusForm,
};
use longshore_k8s::Selector;
use serde_json::json;

use super::{
    admit::LONGEST_NAME,
    annotate::annotate,
    evaluate::{Before, Said, Subject, evaluate},
    fit::{Content, Lacks, fit},
    kind::RuleKind,
    model::Rule,
    questions::RuleAsk,
    task::{Poll, Polls},
    webhook::{Answers, Question},
};
use crate::{
    LOOK_AGAIN,
    model::Pod,
    replicas::{Workload, missing},
};

/// A question to the webhook of a rule, asked beside the rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inquiry {
    /// May these pods go on?
    Ask(Question),
    /// How far is this task?
    Poll(Poll),
}

/// What is done about a rule.
pub type RulePlan = Plan<Never, Never, RuleAsk>;

type RuleAction = Action<Never, Never, RuleAsk>;

/// Annotations that are written in one round.
const ANNOTATIONS_A_ROUND: usize = 16;

/// A snapshot of all that a round about a rule reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The current instant.
    pub now: Timestamp,
    /// The name of the rule, whether the rule exists or not.
    pub name: String,
    /// The rule.
    pub rule: Seen<Rule>,
    /// The pods of its namespace.
    pub pods: Seen<Vec<Pod>>,
    /// The workloads of its namespace whose pods take part.
    pub workloads: Seen<Vec<Workload>>,
    /// What webhooks have answered about pods that are in a stage still.
    pub answers: Answers,
    /// What they have answered about tasks that the status has.
    pub polls: Polls,
    /// Questions whose answers no rule waits for any more.
    pub spent: Vec<QuestionId>,
    /// Kinds of rules that are skipped.
    pub skipped: BTreeSet<RuleKind>,
    /// The form in which the status is written.
    pub form: StatusForm,
}

/// Decides about one rule.
pub fn decide(observed: &Observed) -> RulePlan {
    let (rule, pods) = match (&observed.rule, &observed.pods) {
        (Seen::Present(rule), Seen::Present(pods)) => (rule, pods.as_slice()),
        (Seen::Present(rule), Seen::Absent) => (rule, &[][..]),
        (Seen::Absent, pods) => return of_no_rule(&observed.name, pods),
        (Seen::Unknown(_), _) | (_, Seen::Unknown(_)) => return Plan::after(LOOK_AGAIN),
    };
    let finalizer = FINALIZER_PROTECTED;
    let is_held = rule.finalizers.iter().any(|held| held == finalizer);
    if rule.is_deleting {
        return removal(rule, pods, is_held);
    }
    let workloads = match &observed.workloads {
        Seen::Present(workloads) => workloads.as_slice(),
        Seen::Absent => &[],
        Seen::Unknown(_) => return Plan::after(LOOK_AGAIN),
    };
    if !is_held {
        let target = rule.target.clone();
        return Plan::of(vec![Action::EnsureFinalizer { target, finalizer }]);
    }
    if let Some(Err(invalid)) = rule.spec.selector.as_ref().map(Selector::read) {
        return complain(rule, invalid.to_string());
    }
    let mut selected: Vec<Subject> = pods
        .iter()
        .filter(|pod| rule.selects(pod))
        .map(Subject::of)
        .collect();
    selected.sort_by(|a, b| a.name.cmp(&b.name));
    let before = &rule.status;
    let spec = asked(&rule.spec, &observed.skipped);
    let said = evaluate(
        &spec,
        &selected,
        &Before {
            details: &before.details,
            answers: &observed.answers,
            n_missing: missing(workloads.iter().filter(|it| rule.is_of(it)), pods),
            states: &before.rule_states,
            polls: &observed.polls,
            key: &format!("{}/{}", rule.target.namespace, rule.target.name),
            seed: &seed(rule),
            now: observed.now,
        },
    );
    let targets = selected.into_iter().map(|subject| subject.name).collect();
    record(rule, pods, observed, targets, said)
}

/// Writes what the rules say, shows it on the pods, and asks what is to be asked.
fn record(
    rule: &Rule,
    pods: &[Pod],
    observed: &Observed,
    targets: Vec<String>,
    mut said: Said,
) -> RulePlan {
    let wanted = Content {
        targets,
        details: said.details.clone(),
        rule_states: std::mem::take(&mut said.states),
    };
    let (content, lacks) = fit(observed.form, wanted, &rule.status);
    let is_written = is_written(rule, &content, &said.questions);
    let mut plan = if is_written {
        // The annotations have the whole messages. A pod that passes, and for which there is no room yet, shows nothing.
        let is_said = |detail: &Detail| !detail.passed || content.lets_go(&detail.name);
        said.details.retain(is_said);
        let wanted = |pod: &Pod| shown(&said.details, pod);
        in_part(annotations(&rule.target.name, pods, wanted))
    } else {
        write_status(rule, &content, observed.now)
    };
    // Asking is beside the rounds, and takes no time of this one. The status has a request before the controller sends
    // it, and the last answer about a task before the controller asks about the task again. Where the API server takes
    // no status, the webhook is asked nevertheless.
    let asks_first = is_written || observed.form == StatusForm::Unwritable;
    let questions = said.questions.into_iter().map(Inquiry::Ask);
    let polls = said.polls.into_iter().filter(|_| asks_first);
    let asks = asks(rule, questions.chain(polls.map(Inquiry::Poll)));
    let first = if asks_first { 0 } else { plan.actions.len() };
    plan.actions.splice(first..first, asks);
    if !is_written {
        // Before the write, which may be refused.
        let warning = too_large(observed.form, lacks);
        let warning = warning.map(|note| warn(rule, REASON_STATUS_TOO_LARGE, note.to_owned()));
        let unnamed = unnamed(&rule.target.name);
        let unnamed = unnamed.map(|note| warn(rule, REASON_INVALID_RULE, note));
        plan.actions
            .splice(0..0, warning.into_iter().chain(unnamed));
    }
    // First, because the same question may be asked anew.
    let spent = observed.spent.iter().cloned().map(Action::Used);
    plan.actions.splice(0..0, spent);
    let next_at = asked_again(&observed.answers)
        .into_iter()
        .chain(said.next_at);
    plan.next = plan.next.min(at(next_at.min(), observed.now));
    plan
}

/// Whether the status says this, and has all that is to be asked now, as far as it has room for that.
fn is_written(rule: &Rule, content: &Content, questions: &[Question]) -> bool {
    let status = &rule.status;
    let is_recorded = |question: &Question| {
        question.is_recorded(&status.rule_states) || !question.is_recorded(&content.rule_states)
    };
    status.observed_generation == rule.generation
        && status.details == content.details
        && status.targets == content.targets
        && without_requests(&status.rule_states) == without_requests(&content.rule_states)
        && questions.iter().all(is_recorded)
}

/// What people have to know of the size of a status; `None` where that is nothing.
fn too_large(form: StatusForm, lacks: Lacks) -> Option<&'static str> {
    const WORDS: &str = "the status of this rule is at its limit of size: messages in it are shortened, and the \
                         annotations of the pods have them as they are";
    const PODS: &str = "the status of this rule is at its limit of size: messages in it are shortened, pods that wait \
                        are left out, and the others go on in turns; select fewer pods with one PodTransitionRule";
    const UNWRITABLE: &str = "the API server refuses the status of this rule as too large, in short as well: no pod \
                              can go on by it; make its spec smaller, or delete it";
    match (form, lacks) {
        (StatusForm::Unwritable, Lacks::Nothing | Lacks::Words | Lacks::Pods) => Some(UNWRITABLE),
        (StatusForm::Full | StatusForm::Short, Lacks::Words) => Some(WORDS),
        (StatusForm::Full | StatusForm::Short, Lacks::Pods) => Some(PODS),
        (StatusForm::Full | StatusForm::Short, Lacks::Nothing) => None,
    }
}

/// What the status says of tasks. A request that is not sent now is worth no write of its own.
fn without_requests(states: &[RuleState]) -> Vec<RuleState> {
    let mut states = states.to_vec();
    states.retain_mut(|state| {
        state.webhook_status.as_mut().is_none_or(|status| {
            status.requests.clear();
            *status != RuleWebhookStatus::default()
        })
    });
    states
}

/// Takes the details off the pods of a rule that does not exist: a client removed its finalizer before they were gone.
fn of_no_rule(name: &str, pods: &Seen<Vec<Pod>>) -> RulePlan {
    let pods = pods.present().map_or(&[][..], Vec::as_slice);
    in_part(annotations(name, pods, |_| None))
}

fn asks(rule: &Rule, inquiries: impl Iterator<Item = Inquiry>) -> impl Iterator<Item = RuleAction> {
    inquiries.map(|inquiry| {
        let namespace = rule.target.namespace.clone();
        Action::Ask(RuleAsk { namespace, inquiry })
    })
}

/// Takes the details off the pods, and lets the rule go after them.
fn removal(rule: &Rule, pods: &[Pod], is_held: bool) -> RulePlan {
    let annotations = annotations(&rule.target.name, pods, |_| None);
    if !annotations.is_empty() {
        return in_part(annotations);
    }
    if !is_held {
        return Plan::await_change();
    }
    Plan::of(vec![Action::RemoveFinalizer {
        target: rule.target.clone(),
        finalizer: FINALIZER_PROTECTED,
    }])
}

/// What tells this version of a rule from all others.
fn seed(rule: &Rule) -> String {
    let uid = rule.target.uid.as_deref().unwrap_or_default();
    format!("{uid} {}", rule.generation)
}

/// When a rule next asks a webhook again, about a pod that the webhook did not let pass.
fn asked_again(answers: &Answers) -> Option<Timestamp> {
    let heard = answers.values().flat_map(|heard| heard.values());
    heard.filter_map(|heard| heard.again_at).min()
}

fn at(next: Option<Timestamp>, now: Timestamp) -> Next {
    next.map_or(Next::AwaitChange, |at| {
        Next::After(Duration::try_from(at.duration_since(now)).unwrap_or_default())
    })
}

/// What is left of it without rules of the kinds that are skipped.
fn asked(spec: &PodTransitionRuleSpec, skipped: &BTreeSet<RuleKind>) -> PodTransitionRuleSpec {
    let mut spec = spec.clone();
    spec.rules.retain_mut(|rule| {
        let asks_nothing = RuleKind::all_of(rule).next().is_none();
        for kind in skipped {
            match kind {
                RuleKind::AvailablePolicy => rule.available_policy = None,
                RuleKind::LabelCheck => rule.label_check = None,
                RuleKind::Webhook => rule.webhook = None,
            }
        }
        asks_nothing || RuleKind::all_of(rule).next().is_some()
    });
    spec
}

fn write_status(rule: &Rule, content: &Content, now: Timestamp) -> RulePlan {
    let mut status = json!(content);
    status["observedGeneration"] = rule.generation.into();
    status["updateTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
    let patch = Patch {
        target: rule.target.clone(),
        subresource: Some("status"),
        kind: PatchKind::Merge,
        patch: json!({
            "metadata": {"resourceVersion": rule.resource_version},
            "status": status,
        }),
    };
    Plan::of(vec![Action::Patch(patch)])
}

/// What a pod shows of a rule: what it says while the pod is in a stage, and nothing else. `details` are sorted by pod.
fn shown(details: &[Detail], pod: &Pod) -> Option<String> {
    let found = details.binary_search_by(|detail| detail.name.cmp(&pod.target.name));
    let mut detail = details.get(found.ok()?)?.clone();
    detail.name.clear(); // The name is the pod's own.
    serde_json::to_string(&detail).ok()
}

/// Why pods show nothing of a rule with this name; `None` where they do.
fn unnamed(rule: &str) -> Option<String> {
    let found = rule.len();
    (found > LONGEST_NAME).then(|| {
        format!(
            "expected a name of at most {LONGEST_NAME} characters, found {found}: the rule is followed, and no \
             annotation of its pods shows what it says; create it under a shorter name"
        )
    })
}

/// The annotations that are not as they should be. API servers take none of a longer name.
fn annotations(
    rule: &str,
    pods: &[Pod],
    wanted: impl Fn(&Pod) -> Option<String>,
) -> Vec<RuleAction> {
    if rule.len() > LONGEST_NAME {
        return Vec::new();
    }
    let key = detail_annotation(rule);
    let mut patches = Vec::new();
    for pod in pods {
        let wanted = wanted(pod);
        if pod.annotations.get(&key) != wanted.as_ref() {
            patches.push(Action::Patch(annotate(pod, &key, wanted)));
        }
    }
    patches
}

/// A few now, and the others in the next round, which comes at once: a pod that the rule has let go may never change
/// again.
fn in_part(mut actions: Vec<RuleAction>) -> RulePlan {
    let next = if actions.len() > ANNOTATIONS_A_ROUND {
        Next::After(Duration::ZERO)
    } else {
        Next::AwaitChange
    };
    actions.truncate(ANNOTATIONS_A_ROUND);
    Plan { actions, next }
}

fn complain(rule: &Rule, note: String) -> RulePlan {
    Plan::of(vec![warn(rule, REASON_INVALID_RULE, note)])
}

fn warn(rule: &Rule, reason: &'static str, note: String) -> RuleAction {
    Action::Announce(Announcement {
        regarding: rule.target.clone(),
        event_type: EventType::Warning,
        reason,
        note,
    })
}
