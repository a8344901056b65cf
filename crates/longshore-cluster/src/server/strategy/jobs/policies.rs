//! What is wrong with the failure policy and the success policy of a Job.

use std::collections::BTreeSet;

use longshore_k8s::names::key_violations;
use serde_json::{Value, json};

use super::rules::{is_indexed, number};
use crate::server::{error::Cause, meta};

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];
const MAX_RULES: usize = 20;
const MAX_CODES: usize = 255;
const MAX_INDEXES_TEXT: usize = 64 * 1024;

fn list<'a>(parent: &'a Value, key: &str) -> &'a [Value] {
    let list = parent.get(key).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

fn too_many(field: &str, n: usize, limit: usize) -> Option<Cause> {
    (n > limit).then(|| {
        let message = format!("Too many: {n}: must have at most {limit} items");
        Cause::new("FieldValueTooMany", field, message)
    })
}

/// A complaint about a thing as a whole, which is not shown.
fn wrong(field: &str, why: &str) -> Cause {
    Cause::new("FieldValueInvalid", field, format!("Invalid value: {why}"))
}

/// A word that is missing or unknown.
fn word(field: &str, found: &str, known: &[&str]) -> Option<Cause> {
    if found.is_empty() {
        let known: Vec<String> = known.iter().map(|it| format!("{it:?}")).collect();
        let why = format!("valid values: [{}]", known.join(" "));
        Some(Cause::required(field, &why))
    } else if known.contains(&found) {
        None
    } else {
        Some(Cause::unsupported(field, found, known))
    }
}

pub(super) fn failure_violations(job: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(policy) = job.pointer("/spec/podFailurePolicy") else {
        return causes;
    };
    let rules = list(policy, "rules");
    let field = "spec.podFailurePolicy.rules";
    causes.extend(too_many(field, rules.len(), MAX_RULES));
    let pod = &job["spec"]["template"]["spec"];
    let containers = list(pod, "containers")
        .iter()
        .chain(list(pod, "initContainers"));
    let names: BTreeSet<&str> = containers.map(|it| meta::text(it, "/name")).collect();
    for (index, rule) in rules.iter().enumerate() {
        rule_violations(job, rule, &format!("{field}[{index}]"), &names, &mut causes);
    }
    causes
}

fn rule_violations(
    job: &Value,
    rule: &Value,
    field: &str,
    names: &BTreeSet<&str>,
    causes: &mut Vec<Cause>,
) {
    let action = meta::text(rule, "/action");
    let at = format!("{field}.action");
    if action == "FailIndex" {
        if number(job, "backoffLimitPerIndex").is_none() {
            let why = "requires the backoffLimitPerIndex to be set";
            causes.push(Cause::invalid(&at, &action.into(), why));
        }
    } else {
        causes.extend(word(&at, action, ACTIONS));
    }
    let codes = rule.get("onExitCodes");
    if let Some(codes) = codes {
        code_violations(codes, &format!("{field}.onExitCodes"), names, causes);
    }
    let patterns = list(rule, "onPodConditions");
    let at = format!("{field}.onPodConditions");
    causes.extend(too_many(&at, patterns.len(), MAX_RULES));
    for (index, pattern) in patterns.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let kind = meta::text(pattern, "/type");
        let complaints = key_violations(kind);
        let complaints = complaints.iter();
        let field = format!("{at}.type");
        causes.extend(complaints.map(|why| Cause::invalid(&field, &kind.into(), why)));
        let status = meta::text(pattern, "/status");
        causes.extend(word(&format!("{at}.status"), status, STATUSES));
    }
    match (codes, patterns) {
        (Some(_), [_, ..]) => {
            let why = "specifying both OnExitCodes and OnPodConditions is not supported";
            causes.push(wrong(field, why));
        }
        (None, []) => {
            let why = "specifying one of OnExitCodes and OnPodConditions is required";
            causes.push(wrong(field, why));
        }
        (Some(_), []) | (None, _) => {}
    }
}

fn code_violations(codes: &Value, field: &str, names: &BTreeSet<&str>, causes: &mut Vec<Cause>) {
    let operator = meta::text(codes, "/operator");
    causes.extend(word(&format!("{field}.operator"), operator, OPERATORS));
    if let Some(name) = codes.get("containerName")
        && !name.as_str().is_some_and(|it| names.contains(it))
    {
        let why = "must be one of the container or initContainer names in the pod template";
        causes.push(Cause::invalid(&format!("{field}.containerName"), name, why));
    }
    let values: Vec<i64> = list(codes, "values")
        .iter()
        .filter_map(Value::as_i64)
        .collect();
    let field = format!("{field}.values");
    if values.is_empty() {
        let shown = codes.get("values").unwrap_or(&Value::Null);
        causes.push(Cause::invalid(
            &field,
            shown,
            "at least one value is required",
        ));
    }
    causes.extend(too_many(&field, values.len(), MAX_CODES));
    let mut seen = BTreeSet::new();
    for (index, value) in values.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if operator == "In" && *value == 0 {
            let why = "must not be 0 for the In operator";
            causes.push(Cause::invalid(&field, &json!(value), why));
        }
        if !seen.insert(value) {
            let message = format!("Duplicate value: {value}");
            causes.push(Cause::new("FieldValueDuplicate", &field, message));
        }
    }
    if !values.is_sorted() {
        causes.push(Cause::invalid(&field, &json!(values), "must be ordered"));
    }
}

pub(super) fn success_violations(job: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(policy) = job.pointer("/spec/successPolicy") else {
        return causes;
    };
    let field = "spec.successPolicy";
    if !is_indexed(job) {
        causes.push(Cause::invalid(
            field,
            policy,
            "requires indexed completion mode",
        ));
        return causes;
    }
    let field = format!("{field}.rules");
    let rules = list(policy, "rules");
    if rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        causes.push(Cause::required(&field, why));
    }
    causes.extend(too_many(&field, rules.len(), MAX_RULES));
    let completions = number(job, "completions").unwrap_or(0);
    for (index, rule) in rules.iter().enumerate() {
        success_rule_violations(rule, &format!("{field}[{index}]"), completions, &mut causes);
    }
    causes
}

fn success_rule_violations(rule: &Value, field: &str, completions: i64, causes: &mut Vec<Cause>) {
    let count = rule.get("succeededCount").and_then(Value::as_i64);
    let indexes = rule.get("succeededIndexes").and_then(Value::as_str);
    if count.is_none() && indexes.is_none() {
        let why = "at least one of succeededCount or succeededIndexes must be specified";
        causes.push(Cause::required(field, why));
    }
    let mut n_indexes = 0;
    if let Some(indexes) = indexes {
        let at = format!("{field}.succeededIndexes");
        if indexes.len() > MAX_INDEXES_TEXT {
            causes.push(Cause::too_long(&at, MAX_INDEXES_TEXT));
        }
        match read_indexes(indexes, completions) {
            Ok(intervals) => n_indexes = intervals.iter().map(|it| it.1 - it.0 + 1).sum(),
            Err(why) => {
                let why = format!("error parsing succeededIndexes: {why}");
                causes.push(Cause::invalid(&at, &indexes.into(), &why));
            }
        }
    }
    let Some(count) = count else { return };
    let at = format!("{field}.succeededCount");
    let mut refuse = |why: &str| causes.push(Cause::invalid(&at, &count.into(), why));
    if count < 0 {
        refuse("must be greater than or equal to 0");
    }
    if count > completions {
        refuse(&format!(
            "must be less than or equal to {completions} (the number of specified completions)"
        ));
    }
    if indexes.is_some() && count > n_indexes {
        refuse(&format!(
            "must be less than or equal to {n_indexes} (the number of indexes in the specified succeededIndexes field)"
        ));
    }
}

/// Intervals of indexes, first and last, as `0,3-5`.
pub(super) fn read_indexes(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let number = |text: &str| -> Result<i64, String> {
        let read = text.parse::<i64>();
        let found =
            read.map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if found < completions {
            Ok(found)
        } else {
            Err(format!("too large index: {text:?}"))
        }
    };
    let order = |previous: i64, current: i64| {
        format!("non-increasing order, previous: {previous}, current: {current}")
    };
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = match part.split('-').collect::<Vec<_>>().as_slice() {
            [only] => (number(only)?, None),
            [first, last] => (number(first)?, Some(number(last)?)),
            _ => {
                return Err(format!(
                    "the fragment {part:?} violates the requirement that an index interval can have at most two parts \
                     separated by '-'"
                ));
            }
        };
        if let Some(last) = last.filter(|last| first >= *last) {
            return Err(order(first, last));
        }
        if let Some((_, previous)) = intervals.last().filter(|it| it.1 >= first) {
            return Err(order(*previous, first));
        }
        intervals.push((first, last.unwrap_or(first)));
    }
    Ok(intervals)
}
