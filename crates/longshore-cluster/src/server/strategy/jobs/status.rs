//! What is wrong with a new status of a Job: a controller that mixes up counts or conditions is refused.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    policies::read_indexes,
    rules::{is_indexed, number},
};
use crate::server::error::Cause;

/// A status of a Job, with the questions that the rules ask.
struct Status<'a>(&'a Value);

impl Status<'_> {
    fn get(&self, key: &str) -> &Value {
        let value = self.0.get("status").and_then(|it| it.get(key));
        value.unwrap_or(&Value::Null)
    }

    fn count(&self, key: &str) -> i64 {
        self.get(key).as_i64().unwrap_or(0)
    }

    /// The status of a condition, empty without it.
    fn condition(&self, kind: &str) -> &str {
        let conditions = self.get("conditions").as_array();
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|it| it["type"] == kind);
        found.and_then(|it| it["status"].as_str()).unwrap_or("")
    }

    fn is(&self, kind: &str) -> bool {
        self.condition(kind) == "True"
    }

    fn is_finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn time(&self, key: &str) -> Option<Timestamp> {
        self.get(key).as_str()?.parse().ok()
    }
}

/// A complaint about the conditions as a whole.
fn conditions(why: &str) -> Cause {
    let message = format!("Invalid value: {why}");
    Cause::new("FieldValueInvalid", "status.conditions", message)
}

/// Complaints about a write of a status.
pub(in crate::server::strategy) fn violations(new: &Value, old: &Value) -> Vec<Cause> {
    let (after, before) = (Status(new), Status(old));
    let mut causes = number_violations(&after);
    causes.extend(uncounted_violations(&after));
    causes.extend(condition_violations(&after, &before));
    causes.extend(time_violations(new, &after, &before));
    causes.extend(index_violations(new, &after, &before));
    causes.extend(finish_violations(new, &after, &before));
    causes.extend(change_violations(new, &after, &before));
    causes
}

fn number_violations(after: &Status<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        if after.count(key) < 0 {
            let why = "must be greater than or equal to 0";
            causes.push(Cause::invalid(
                &format!("status.{key}"),
                after.get(key),
                why,
            ));
        }
    }
    causes
}

fn uncounted_violations(after: &Status<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = BTreeSet::new();
    for list in ["succeeded", "failed"] {
        let uids = after.get("uncountedTerminatedPods").get(list);
        let uids = uids.and_then(Value::as_array).into_iter().flatten();
        for (index, uid) in uids.enumerate() {
            let field = format!("status.uncountedTerminatedPods.{list}[{index}]");
            let uid = uid.as_str().unwrap_or("");
            if uid.is_empty() {
                causes.push(Cause::invalid(&field, &json!(""), "must not be empty"));
            } else if !seen.insert(uid) {
                causes.push(Cause::duplicate(&field, uid));
            }
        }
    }
    causes
}

/// Whether one of these conditions is another one than before.
fn changes(after: &Status<'_>, before: &Status<'_>, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| after.is(kind) != before.is(kind))
}

fn condition_violations(after: &Status<'_>, before: &Status<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (one, other) in [("Complete", "Failed"), ("Complete", "FailureTarget")] {
        if changes(after, before, &[one, other]) && after.is(one) && after.is(other) {
            let shown = if other == "Failed" {
                "Failed=true"
            } else {
                "FailureTarget=true"
            };
            causes.push(conditions(&format!(
                "cannot set {one}=True and {shown} conditions"
            )));
        }
    }
    if changes(after, before, &["Failed"]) && after.is("Failed") && !after.is("FailureTarget") {
        let why = "cannot set Failed=True condition without the FailureTarget=true condition";
        causes.push(conditions(why));
    }
    let is_changed = changes(after, before, &["Complete", "SuccessCriteriaMet"]);
    if is_changed && after.is("Complete") && !after.is("SuccessCriteriaMet") {
        let why =
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        causes.push(conditions(why));
    }
    for other in ["Failed", "FailureTarget"] {
        if after.is("SuccessCriteriaMet") && after.is(other) {
            let why = format!("cannot set SuccessCriteriaMet=True and {other}=true conditions");
            causes.push(conditions(&why));
        }
    }
    causes
}

fn time_violations(job: &Value, after: &Status<'_>, before: &Status<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (start, end) = ("startTime", "completionTime");
    let is_changed = |key: &str| after.get(key) != before.get(key);
    let is_complete = after.is("Complete");
    if changes(after, before, &["Complete"]) || is_changed(end) {
        if after.get(end).is_string() && !is_complete {
            let why = "cannot set completionTime when there is no Complete=True condition";
            causes.push(Cause::invalid("status.completionTime", after.get(end), why));
        }
        if !after.get(end).is_string() && is_complete {
            let why = "completionTime is required for Complete jobs";
            causes.push(Cause::required("status.completionTime", why));
        }
    }
    if (is_changed(start) || is_changed(end))
        && let (Some(began), Some(ended)) = (after.time(start), after.time(end))
        && ended < began
    {
        let why = "must be equal to or after `startTime`";
        causes.push(Cause::invalid("status.completionTime", after.get(end), why));
    }
    if after.get(end).is_string() && before.get(end).is_string() && is_changed(end) {
        let why = "field is immutable";
        causes.push(Cause::invalid("status.completionTime", after.get(end), why));
    }
    let is_suspended = job.pointer("/spec/suspend") == Some(&Value::Bool(true));
    let is_resumed = before.is("Suspended") && after.condition("Suspended") == "False";
    if before.get(start).is_string() && is_changed(start) && !is_resumed && !is_suspended {
        let why = "startTime cannot be removed for unsuspended job";
        causes.push(Cause::required("status.startTime", why));
    }
    causes
}

fn index_violations(job: &Value, after: &Status<'_>, before: &Status<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let completions = number(job, "completions");
    let mut read = Vec::new();
    for key in ["completedIndexes", "failedIndexes"] {
        let field = format!("status.{key}");
        let text = after.get(key).as_str().unwrap_or("");
        let is_changed = after.get(key) != before.get(key);
        let intervals = completions.map(|it| read_indexes(text, it));
        if let (true, Some(Err(why))) = (is_changed, &intervals) {
            let why = format!("error parsing {key}: {why}");
            causes.push(Cause::invalid(&field, after.get(key), &why));
        }
        read.push((
            is_changed,
            intervals.and_then(Result::ok).unwrap_or_default(),
        ));
    }
    let text = after.get("completedIndexes");
    if read[0].0 && !is_indexed(job) && text.as_str().is_some_and(|it| !it.is_empty()) {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        causes.push(Cause::invalid("status.completedIndexes", text, why));
    }
    let failed = after.get("failedIndexes");
    let has_limit = number(job, "backoffLimitPerIndex").is_some();
    if read[1].0 && !has_limit && failed.is_string() {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        causes.push(Cause::invalid("status.failedIndexes", failed, why));
    }
    if read[0].0 || read[1].0 {
        let overlap = read[0].1.iter().find_map(|completed| {
            let mut failed = read[1].1.iter();
            let found = failed.find(|it| it.0 <= completed.1 && completed.0 <= it.1);
            found.map(|it| it.0.max(completed.0))
        });
        if let Some(index) = overlap {
            let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
            causes.push(Cause::invalid("status.failedIndexes", failed, &why));
        }
    }
    causes
}

/// A Job that has ended has nothing left to do.
fn finish_violations(job: &Value, after: &Status<'_>, before: &Status<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let ends = after.is_finished() != before.is_finished();
    let is_checked = |key: &str| ends || after.get(key) != before.get(key);
    let is_finished = after.is_finished();
    for key in ["active", "terminating"] {
        if is_checked(key) && is_finished && after.count(key) > 0 {
            let why = format!("{key}>0 is invalid for finished job");
            causes.push(Cause::invalid(
                &format!("status.{key}"),
                after.get(key),
                &why,
            ));
        }
    }
    let is_suspended = job.pointer("/spec/suspend") == Some(&Value::Bool(true));
    let needs_none = is_suspended && number(job, "completions") == Some(0);
    let has_start = after.get("startTime").is_string();
    if is_checked("startTime") && is_finished && !has_start && !needs_none {
        let why = "startTime is required for finished job";
        causes.push(Cause::required("status.startTime", why));
    }
    let key = "uncountedTerminatedPods";
    let uncounted = after.get(key).as_object();
    let mut lists = uncounted.into_iter().flatten();
    let has_some = lists.any(|(_, list)| list.as_array().is_some_and(|it| !it.is_empty()));
    if is_checked(key) && is_finished && has_some {
        let why = "must be empty for finished job";
        let field = "status.uncountedTerminatedPods";
        causes.push(Cause::invalid(field, after.get(key), why));
    }
    let is_changed = after.get("ready") != before.get("ready") || is_checked("active");
    if is_changed && after.count("ready") > after.count("active") {
        let why = "cannot set more ready pods than active";
        causes.push(Cause::invalid("status.ready", after.get("ready"), why));
    }
    causes
}

/// What has been said once stays.
fn change_violations(job: &Value, after: &Status<'_>, before: &Status<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if before.is(kind) && !after.is(kind) {
            let why = format!("cannot disable the terminal {kind}=True condition");
            causes.push(conditions(&why));
        }
    }
    if after.count("failed") < before.count("failed") {
        let why = "cannot decrease the failed counter";
        causes.push(Cause::invalid(
            "status.failed",
            &after.count("failed").into(),
            why,
        ));
    }
    let may_shrink = is_indexed(job) && number(job, "completions") == number(job, "parallelism");
    if !may_shrink && after.count("succeeded") < before.count("succeeded") {
        let why = "cannot decrease the succeeded counter";
        let found = after.count("succeeded").into();
        causes.push(Cause::invalid("status.succeeded", &found, why));
    }
    if before.is("SuccessCriteriaMet") && !after.is("SuccessCriteriaMet") {
        let why = "cannot disable the SuccessCriteriaMet=True condition";
        causes.push(conditions(why));
    }
    causes
}
