//! What the rules of one PodTransitionRule say of its pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use longshore_api::podops::{
    ANNOTATION_SKIP_RULES, Detail, OperationLabel, PodTransitionRuleSpec, RejectInfo, Stage,
    TransitionRule,
};
use serde::Deserialize;

use super::{
    available,
    kind::RuleKind,
    webhook::{self, Answers, Question},
};
use crate::{
    model::{Labels, Pod, has_prefix},
    selector::{parse, selects},
};

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
    /// Names of rules that are not asked about it.
    pub skipped: BTreeSet<String>,
    /// Whether it serves.
    pub is_available: bool,
    /// Where it is on its way; the first stage where it is in both.
    pub stage: Option<Stage>,
    /// What brought it there: another operation, or a pod of the same name, is another one.
    pub occasion: String,
}

impl Subject {
    /// What rules see of a pod.
    pub fn of(pod: &Pod) -> Self {
        let is_in = |label| pod.labels.keys().any(|key| has_prefix(key, &[label]));
        let stage = if is_in(OperationLabel::PreCheck) {
            Some(Stage::PreCheck)
        } else if is_in(OperationLabel::PostCheck) {
            Some(Stage::PostCheck)
        } else {
            None
        };
        let skipped = pod.annotations.get(ANNOTATION_SKIP_RULES);
        let skipped = skipped.and_then(|text| serde_json::from_str::<Skipped>(text).ok());
        Self {
            namespace: pod.target.namespace.clone(),
            name: pod.target.name.clone(),
            labels: pod.labels.clone(),
            skipped: skipped.unwrap_or_default().skip_rules,
            is_available: pod.is_available(),
            occasion: occasion(pod, stage),
            stage,
        }
    }
}

/// The pod, and the labels that say that it is in this stage, with their times.
fn occasion(pod: &Pod, stage: Option<Stage>) -> String {
    let label = match stage {
        None => return String::new(),
        Some(Stage::PreCheck) => OperationLabel::PreCheck,
        Some(Stage::PostCheck) => OperationLabel::PostCheck,
    };
    let labels = pod.labels.iter();
    let labels = labels.filter(|(key, _)| has_prefix(key, &[label]));
    let labels: Vec<String> = labels.map(|(key, at)| format!("{key}={at}")).collect();
    let uid = pod.target.uid.as_deref().unwrap_or_default();
    format!("{} {uid} {}", pod.target.name, labels.join(","))
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
            let (outcomes, question) = ask(rule, stage, targets, &subjects, before);
            all.questions.extend(question);
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
    let asks = |rule: &&TransitionRule| RuleKind::of(rule).unwrap_or(RuleKind::Webhook);
    rules.sort_by_key(asks);
    rules
}

/// Whether a rule is asked about a pod. No pod conditions are known, so a rule with some is about none.
fn is_about(rule: &TransitionRule, target: &Subject) -> bool {
    let selector = rule
        .filter
        .as_ref()
        .and_then(|filter| filter.label_selector.as_ref());
    rule.conditions.is_empty()
        && !target.skipped.contains(&rule.name)
        && (selector.is_none() || selects(selector, &target.labels))
}

/// What a rule says of each subject, in their order, and what it has to ask for that.
fn ask(
    rule: &TransitionRule,
    stage: Stage,
    targets: &[Subject],
    subjects: &[&Subject],
    before: &Before<'_>,
) -> (Vec<Outcome>, Option<Question>) {
    let has_passed = |subject: &Subject| {
        let stage = subject.stage.map(Stage::as_str);
        before.details.iter().any(|detail| {
            detail.name == subject.name
                && Some(detail.stage.as_str()) == stage
                && detail.passed_rules.contains(&rule.name)
        })
    };
    if let Some(policy) = &rule.available_policy {
        let outcomes = available::check(
            &rule.name,
            policy,
            targets,
            before.n_missing,
            subjects,
            has_passed,
        );
        return (outcomes, None);
    }
    if let Some(check) = &rule.label_check {
        let check = |subject: &&Subject| check_labels(check.requires.as_ref(), subject);
        return (subjects.iter().map(check).collect(), None);
    }
    let Some(asked) = &rule.webhook else {
        return (subjects.iter().map(|_| Ok(())).collect(), None);
    };
    // Who has passed is not asked about again.
    let open: Vec<&Subject> = subjects
        .iter()
        .copied()
        .filter(|subject| !has_passed(subject))
        .collect();
    let (outcomes, question) =
        webhook::check(&rule.name, asked, stage, &open, before.answers, before.now);
    let mut outcomes = outcomes.into_iter();
    let outcomes = subjects.iter().map(|subject| match has_passed(subject) {
        true => Ok(()),
        false => outcomes.next().unwrap_or(Ok(())),
    });
    (outcomes.collect(), question)
}

fn check_labels(requires: Option<&serde_json::Value>, subject: &Subject) -> Outcome {
    let Some(requires) = requires else {
        return Err("labelCheck.requires is missing".to_owned());
    };
    let selector = parse(requires).map_err(|error| error.to_string())?;
    if selects(Some(requires), &subject.labels) {
        return Ok(());
    }
    Err(format!(
        "block by label check policy, pod {}/{} labels not match {selector}",
        subject.namespace, subject.name
    ))
}
