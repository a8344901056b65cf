//! What the rules of one PodTransitionRule say of its pods.

use std::collections::{BTreeMap, BTreeSet};

use longshore_api::podops::{
    ANNOTATION_SKIP_RULES, Detail, OperationLabel, PodTransitionRuleSpec, RejectInfo, Stage,
    TransitionRule,
};
use serde::Deserialize;

use super::{available, kind::RuleKind};
use crate::{
    model::{Labels, Pod, has_prefix},
    selector::{parse, selects},
};

/// Passed, or why not.
pub(super) type Outcome = Result<(), String>;

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
}

impl Subject {
    /// What rules see of a pod.
    pub fn of(pod: &Pod) -> Self {
        let is_in = |label| pod.labels.keys().any(|key| has_prefix(key, &[label]));
        let skipped = pod.annotations.get(ANNOTATION_SKIP_RULES);
        let skipped = skipped.and_then(|text| serde_json::from_str::<Skipped>(text).ok());
        Self {
            namespace: pod.target.namespace.clone(),
            name: pod.target.name.clone(),
            labels: pod.labels.clone(),
            skipped: skipped.unwrap_or_default().skip_rules,
            is_available: pod.is_available(),
            stage: if is_in(OperationLabel::PreCheck) {
                Some(Stage::PreCheck)
            } else if is_in(OperationLabel::PostCheck) {
                Some(Stage::PostCheck)
            } else {
                None
            },
        }
    }
}

/// The value of [`ANNOTATION_SKIP_RULES`].
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Skipped {
    skip_rules: BTreeSet<String>,
}

/// What webhooks have answered, by rule: observed before.
pub type Answers = BTreeMap<String, Asked>;

/// What a webhook has answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Pods that it lets pass.
    pub passed: BTreeSet<String>,
    /// Why it does not let the others pass.
    pub why_not: String,
}

/// What the rules say of the pods that are in a stage, sorted by pod. `targets` are all selected pods, `before` is what
/// was said the last time.
pub fn evaluate(
    spec: &PodTransitionRuleSpec,
    targets: &[Subject],
    before: &[Detail],
    answers: &Answers,
) -> Vec<Detail> {
    let mut details = Vec::new();
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
            let outcomes = ask(rule, targets, &subjects, before, answers);
            for (subject, outcome) in subjects.into_iter().zip(outcomes) {
                if let Some(detail) = said.get_mut(subject.name.as_str()) {
                    note(detail, rule, outcome);
                }
            }
        }
        details.extend(said.into_values());
    }
    details.sort_by(|a, b| a.name.cmp(&b.name));
    details
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

/// What a rule says of each subject, in their order.
fn ask(
    rule: &TransitionRule,
    targets: &[Subject],
    subjects: &[&Subject],
    before: &[Detail],
    answers: &Answers,
) -> Vec<Outcome> {
    if let Some(policy) = &rule.available_policy {
        let has_passed = |subject: &Subject| {
            let stage = subject.stage.map(Stage::as_str);
            before.iter().any(|detail| {
                detail.name == subject.name
                    && Some(detail.stage.as_str()) == stage
                    && detail.passed_rules.contains(&rule.name)
            })
        };
        return available::check(&rule.name, policy, targets, subjects, has_passed);
    }
    let check = |subject: &&Subject| {
        if let Some(check) = &rule.label_check {
            check_labels(check.requires.as_ref(), subject)
        } else if rule.webhook.is_some() {
            check_answer(rule, subject, answers)
        } else {
            Ok(())
        }
    };
    subjects.iter().map(check).collect()
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

fn check_answer(rule: &TransitionRule, subject: &Subject, answers: &Answers) -> Outcome {
    match answers.get(&rule.name) {
        Some(asked) if asked.passed.contains(&subject.name) => Ok(()),
        Some(asked) => Err(asked.why_not.clone()),
        None => Err(format!("the webhook of rule {} was not asked", rule.name)),
    }
}
