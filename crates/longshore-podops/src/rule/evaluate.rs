//! What the rules of one PodTransitionRule say of its pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use longshore_api::podops::{
    ANNOTATION_SKIP_RULES, Detail, OperationLabel, PodTransitionRuleSpec, RejectInfo, RuleState,
    Stage, TransitionRule,
};
use longshore_k8s::Selector;
use serde::Deserialize;
use serde_json::Value;

use super::{
    available,
    kind::RuleKind,
    task::{Poll, Polls},
    webhook::{Answers, Asking, Checked, Question},
};
use crate::model::{Labels, Pod, has_prefix, parse_stamp};

/// Passed, or why not.
pub type Outcome = Result<(), String>;

/// A pod, as far as rules look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Names of rules that the pod skips.
    pub skipped: BTreeSet<String>,
    /// Whether it serves.
    pub is_available: bool,
    /// The stage of the pod; the first one where it is in both.
    pub stage: Option<Stage>,
    /// What brought the pod to its stage: another operation, or another pod of the same name, is another occasion.
    pub occasion: String,
    /// When the pod came to its stage, as its labels say: the last time where there are several.
    pub entered_at: Option<Timestamp>,
}

impl Subject {
    /// What rules see of a pod.
    pub fn of(pod: &Pod) -> Self {
        let stage = stage_of(pod);
        Self {
            namespace: pod.target.namespace.clone(),
            name: pod.target.name.clone(),
            labels: pod.labels.clone(),
            // An annotation that cannot be read skips no rule; the standing of the pod says that.
            skipped: skipped_rules(pod).unwrap_or_default(),
            is_available: pod.is_available(),
            occasion: occasion(pod, stage),
            entered_at: entered(pod, stage)
                .filter_map(|(_, at)| parse_stamp(at))
                .max(),
            stage,
        }
    }
}

/// Where a pod is on its way; the first stage where it is in both.
pub(crate) fn stage_of(pod: &Pod) -> Option<Stage> {
    let is_in = |label| pod.labels.keys().any(|key| has_prefix(key, &[label]));
    if is_in(OperationLabel::PreCheck) {
        Some(Stage::PreCheck)
    } else if is_in(OperationLabel::PostCheck) {
        Some(Stage::PostCheck)
    } else {
        None
    }
}

/// The rules that are not asked about a pod.
///
/// # Errors
/// What was expected of the annotation, and why it is not that.
pub(crate) fn skipped_rules(pod: &Pod) -> Result<BTreeSet<String>, String> {
    let Some(text) = pod.annotations.get(ANNOTATION_SKIP_RULES) else {
        return Ok(BTreeSet::new());
    };
    let skipped = serde_json::from_str::<Skipped>(text);
    let skipped = skipped.map_err(|error| {
        format!(
            "expected {{\"skipRules\": [\"<rule name>\"]}} in the annotation {ANNOTATION_SKIP_RULES}: {error}"
        )
    })?;
    Ok(skipped.skip_rules)
}

/// The pod, and the labels that say that it is in this stage, with their times.
fn occasion(pod: &Pod, stage: Option<Stage>) -> String {
    if stage.is_none() {
        return String::new();
    }
    let labels = entered(pod, stage);
    let labels: Vec<String> = labels.map(|(key, at)| format!("{key}={at}")).collect();
    let uid = pod.target.uid.as_deref().unwrap_or_default();
    format!("{} {uid} {}", pod.target.name, labels.join(","))
}

/// The labels that say that it is in this stage, each with its time.
fn entered(pod: &Pod, stage: Option<Stage>) -> impl Iterator<Item = (&String, &String)> {
    let label = stage.map(|stage| match stage {
        Stage::PreCheck => OperationLabel::PreCheck,
        Stage::PostCheck => OperationLabel::PostCheck,
    });
    let labels = pod.labels.iter();
    labels.filter(move |(key, _)| label.is_some_and(|label| label.is_in(key)))
}

/// The value of [`ANNOTATION_SKIP_RULES`].
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Skipped {
    skip_rules: BTreeSet<String>,
}

/// What rules say of pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// Of each pod that is in a stage, sorted by pod.
    pub details: Vec<Detail>,
    /// What webhooks are to be asked.
    pub questions: Vec<Question>,
    /// What they are to be asked about tasks that the status has.
    pub polls: Vec<Poll>,
    /// What the status is to say of tasks.
    pub states: Vec<RuleState>,
    /// When something is due that no change tells of.
    pub next_at: Option<Timestamp>,
}

/// What was seen beside the pods.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// What rules said the last time.
    pub details: &'a [Detail],
    /// What webhooks have answered.
    pub answers: &'a Answers,
    /// How many more pods there should be.
    pub n_missing: usize,
    /// What the status says of tasks.
    pub states: &'a [RuleState],
    /// What was answered about tasks.
    pub polls: &'a Polls,
    /// The namespace and the name of the PodTransitionRule, as upstream writes them.
    pub key: &'a str,
    /// What tells this version of the PodTransitionRule from all others.
    pub seed: &'a str,
    /// The current instant.
    pub now: Timestamp,
}

/// What the rules say of the pods that are in a stage. `targets` are all selected pods.
pub fn evaluate(spec: &PodTransitionRuleSpec, targets: &[Subject], before: &Before<'_>) -> Said {
    let mut all = Said::default();
    for stage in [Stage::PreCheck, Stage::PostCheck] {
        let mut said = in_stage(targets, stage);
        for rule in rules_of(spec, stage) {
            let subjects: Vec<&Subject> = targets
                .iter()
                .filter(|target| {
                    let detail = said.get(target.name.as_str());
                    detail.is_some_and(|detail| detail.passed) && is_about(rule, target)
                })
                .collect();
            let asking = Asked {
                rule,
                stage,
                is_named_again: is_named_again(spec, rule),
                passed: passed(rule, before),
            };
            let checked = asking.check(targets, &subjects, before);
            let outcomes = all.take(rule, checked);
            for (subject, outcome) in subjects.into_iter().zip(outcomes) {
                if let Some(detail) = said.get_mut(subject.name.as_str()) {
                    note(detail, rule, outcome);
                }
            }
        }
        all.details.extend(said.into_values());
    }
    all.details.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

impl Said {
    /// Takes over what a rule says, but for what it says of pods.
    fn take(&mut self, rule: &TransitionRule, checked: Checked) -> Vec<Outcome> {
        self.questions.extend(checked.questions);
        self.polls.extend(checked.polls);
        self.next_at = match (self.next_at, checked.next_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if checked.status != Default::default() {
            self.states.push(RuleState {
                name: rule.name.clone(),
                webhook_status: Some(checked.status),
            });
        }
        checked.outcomes
    }
}

fn in_stage(targets: &[Subject], stage: Stage) -> BTreeMap<&str, Detail> {
    let targets = targets.iter().filter(|target| target.stage == Some(stage));
    let detail = |target: &Subject| Detail {
        name: target.name.clone(),
        stage: stage.as_str().to_owned(),
        passed: true,
        ..Detail::default()
    };
    targets
        .map(|target| (target.name.as_str(), detail(target)))
        .collect()
}

fn note(detail: &mut Detail, rule: &TransitionRule, outcome: Outcome) {
    match outcome {
        Ok(()) => detail.passed_rules.push(rule.name.clone()),
        Err(reason) => {
            detail.passed = false;
            detail.reject_info.push(RejectInfo {
                rule_name: rule.name.clone(),
                reason,
            });
        }
    }
}

/// The rules that are asked in a stage: those that cost least first.
fn rules_of(spec: &PodTransitionRuleSpec, stage: Stage) -> Vec<&TransitionRule> {
    let rules = spec.rules.iter();
    let mut rules: Vec<_> = rules
        .filter(|rule| !rule.disabled && rule.stage.unwrap_or_default() == stage)
        .collect();
    let dearest = |rule: &&TransitionRule| {
        let kind = RuleKind::all_of(rule).next_back();
        kind.unwrap_or(RuleKind::Webhook)
    };
    rules.sort_by_key(dearest);
    rules
}

/// Whether an earlier rule has the name of this one, and both need it: the pods that passed are kept by stage and name,
/// and the tasks of webhooks by name. Such rules are refused when they are written, but may have been stored before
/// that was checked; without the check, the later rule lets all pods pass that the earlier one has let pass.
fn is_named_again(spec: &PodTransitionRuleSpec, rule: &TransitionRule) -> bool {
    let rules = spec.rules.iter();
    let mut earlier = rules.take_while(|earlier| !std::ptr::eq(*earlier, rule));
    let stage = |rule: &TransitionRule| rule.stage.unwrap_or_default();
    earlier.any(|earlier| {
        let both_ask = earlier.webhook.is_some() && rule.webhook.is_some();
        let share = both_ask || stage(earlier) == stage(rule);
        !earlier.disabled && earlier.name == rule.name && share
    })
}

/// Whether a rule is asked about a pod. No pod conditions are known, so a rule with some is about none, and so is a rule
/// whose selector cannot be read.
fn is_about(rule: &TransitionRule, target: &Subject) -> bool {
    let selector = rule
        .filter
        .as_ref()
        .and_then(|filter| filter.label_selector.as_ref());
    rule.conditions.is_empty()
        && !target.skipped.contains(&rule.name)
        && selector.is_none_or(|selector| {
            Selector::read(selector).is_ok_and(|selector| selector.matches(&target.labels))
        })
}

/// A rule that is asked in a stage.
struct Asked<'a> {
    rule: &'a TransitionRule,
    stage: Stage,
    /// Whether an earlier rule has its name.
    is_named_again: bool,
    /// The names and stages of the pods that have passed the rule before.
    passed: BTreeSet<(&'a str, &'a str)>,
}

/// The names and stages of the pods that have passed a rule before. It is made once for each rule, because thousands of
/// pods may be among the details.
fn passed<'a>(rule: &TransitionRule, before: &Before<'a>) -> BTreeSet<(&'a str, &'a str)> {
    let details = before.details.iter();
    let passed = details.filter(|detail| detail.passed_rules.contains(&rule.name));
    passed
        .map(|detail| (detail.name.as_str(), detail.stage.as_str()))
        .collect()
}

impl Asked<'_> {
    /// What the rule says of each subject, in their order, and what it has to ask for that. Where it has several kinds, a
    /// pod has to pass all of them; a kind is not asked about a pod that an earlier kind holds.
    fn check(&self, targets: &[Subject], subjects: &[&Subject], before: &Before<'_>) -> Checked {
        let mut all = Checked::default();
        if self.is_named_again {
            let why = format!(
                "expected a name of its own for each rule, found another rule with the name {:?} before this one: \
                 rename one of them",
                self.rule.name
            );
            all.outcomes = subjects.iter().map(|_| Err(why.clone())).collect();
            return all;
        }
        all.outcomes = subjects.iter().map(|_| Ok(())).collect();
        for kind in RuleKind::all_of(self.rule) {
            let pairs = subjects.iter().zip(&all.outcomes);
            let open = pairs.filter(|(_, outcome)| outcome.is_ok());
            let open: Vec<&Subject> = open.map(|(subject, _)| *subject).collect();
            let mut checked = self.check_kind(kind, targets, &open, before);
            let mut outcomes = std::mem::take(&mut checked.outcomes).into_iter();
            for outcome in all.outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                *outcome = outcomes.next().unwrap_or(Ok(()));
            }
            // Only the webhook says more than outcomes, and it is the last kind.
            checked.outcomes = all.outcomes;
            all = checked;
        }
        all
    }

    fn check_kind(
        &self,
        kind: RuleKind,
        targets: &[Subject],
        subjects: &[&Subject],
        before: &Before<'_>,
    ) -> Checked {
        let rule = self.rule;
        let outcomes = match kind {
            RuleKind::AvailablePolicy => rule.available_policy.as_ref().map(|policy| {
                available::check(
                    &rule.name,
                    policy,
                    targets,
                    before.n_missing,
                    subjects,
                    |subject| self.has_passed(subject),
                )
            }),
            RuleKind::LabelCheck => rule.label_check.as_ref().map(|check| {
                let check = |subject: &&Subject| check_labels(check.requires.as_ref(), subject);
                subjects.iter().map(check).collect()
            }),
            RuleKind::Webhook => {
                let webhook = rule.webhook.as_ref();
                return webhook
                    .map(|webhook| self.ask(webhook, subjects, before))
                    .unwrap_or_default();
            }
        };
        Checked {
            outcomes: outcomes.unwrap_or_default(),
            ..Checked::default()
        }
    }

    /// Asks the webhook about the pods that have not passed, and never again about one that has.
    fn ask(&self, webhook: &Value, subjects: &[&Subject], before: &Before<'_>) -> Checked {
        let has_passed = |subject: &Subject| self.has_passed(subject);
        let subjects_in_order = subjects.iter().copied();
        let open: Vec<&Subject> = subjects_in_order
            .filter(|subject| !has_passed(subject))
            .collect();
        let asking = Asking {
            rule: &self.rule.name,
            webhook,
            stage: self.stage,
        };
        let mut checked = asking.check(&open, before);
        let mut outcomes = std::mem::take(&mut checked.outcomes).into_iter();
        let outcomes = subjects.iter().map(|subject| match has_passed(subject) {
            true => Ok(()),
            false => outcomes.next().unwrap_or(Ok(())),
        });
        checked.outcomes = outcomes.collect();
        checked
    }

    /// Whether a pod has passed the rule before.
    fn has_passed(&self, subject: &Subject) -> bool {
        let stage = subject.stage.map(Stage::as_str);
        stage.is_some_and(|stage| self.passed.contains(&(subject.name.as_str(), stage)))
    }
}

fn check_labels(requires: Option<&Value>, subject: &Subject) -> Outcome {
    let Some(requires) = requires else {
        return Err("labelCheck.requires is missing".to_owned());
    };
    let selector = Selector::read(requires).map_err(|error| error.to_string())?;
    if selector.matches(&subject.labels) {
        return Ok(());
    }
    Err(format!(
        "block by label check policy, pod {}/{} labels not match {selector}",
        subject.namespace, subject.name
    ))
}
