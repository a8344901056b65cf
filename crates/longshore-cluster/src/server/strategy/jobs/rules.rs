//! What is wrong with the spec of a Job: upstream's complaints, in its words and in its order.

use std::collections::BTreeMap;

use longshore_k8s::{Selector, names::label_violations};
use serde_json::{Value, json};

use super::{
    LABEL_CONTROLLER_UID, LABEL_JOB_NAME, OLD_LABEL_CONTROLLER_UID, OLD_LABEL_JOB_NAME, policies,
};
use crate::server::{admission, error::Cause, meta, strategy::pod_rules};

const MODES: &[&str] = &["NonIndexed", "Indexed"];
const REPLACEMENTS: &[&str] = &["Failed", "TerminatingOrFailed"];
const RESTARTS: &[&str] = &["OnFailure", "Never"];
/// The most that an indexed Job may have of pods at a time and of failed indexes.
const MAX_INDEXED: i64 = 100_000;
/// The same above `MAX_INDEXED` completions, with a limit for each index.
const MAX_WHEN_LARGE: i64 = 10_000;
const MAX_MANAGER: usize = 63;

/// Complaints about a Job; `old` is there when it is not a new one.
pub(in crate::server::strategy) fn violations(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = selector_violations(new);
    causes.extend(spec_violations(new));
    causes.extend(hostname_violation(new));
    if let Some(old) = old {
        // Upstream judges the spec of an update twice.
        causes.extend(spec_violations(new));
        causes.extend(changes(new, old));
    }
    causes
}

/// A number of the spec.
pub(super) fn number(job: &Value, key: &str) -> Option<i64> {
    job.get("spec")?.get(key)?.as_i64()
}

pub(super) fn is_indexed(job: &Value) -> bool {
    meta::text(job, "/spec/completionMode") == "Indexed"
}

/// The selector that the server makes, and its labels, are what it would make.
fn selector_violations(job: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let is_manual = job.pointer("/spec/manualSelector") == Some(&Value::Bool(true));
    if is_manual || job.pointer("/spec/selector").is_none() {
        return causes;
    }
    let (uid, name) = (meta::text(job, "/metadata/uid"), meta::name(job));
    let labels = job.pointer("/spec/template/metadata/labels");
    let wanted = [
        (OLD_LABEL_CONTROLLER_UID, uid),
        (OLD_LABEL_JOB_NAME, name),
        (LABEL_CONTROLLER_UID, uid),
        (LABEL_JOB_NAME, name),
    ];
    for (key, value) in wanted {
        let field = format!("spec.template.metadata.labels[{key}]");
        let why = format!("must be '{value}'");
        match labels.and_then(|it| it.get(key)) {
            None => causes.push(Cause::required(&field, &why)),
            Some(found) if found != value => {
                causes.push(Cause::invalid(&field, labels.unwrap_or(&Value::Null), &why));
            }
            Some(_) => {}
        }
    }
    let made: BTreeMap<String, String> = wanted
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let selector = &job["spec"]["selector"];
    if Selector::read(selector).is_ok_and(|it| !it.matches(&made)) {
        let why = "`selector` not auto-generated";
        causes.push(Cause::invalid("spec.selector", selector, why));
    }
    causes
}

fn spec_violations(job: &Value) -> Vec<Cause> {
    let mut causes = number_violations(job);
    causes.extend(mode_violations(job));
    causes.extend(policies::failure_violations(job));
    causes.extend(policies::success_violations(job));
    let policy = meta::text(job, "/spec/podReplacementPolicy");
    let has_failure_policy = job.pointer("/spec/podFailurePolicy").is_some();
    let known: &[&str] = if has_failure_policy {
        &["Failed"]
    } else {
        REPLACEMENTS
    };
    if !policy.is_empty() && !known.contains(&policy) {
        let field = "spec.podReplacementPolicy";
        causes.push(Cause::unsupported(field, policy, known));
    }
    causes.extend(template_violations(job, has_failure_policy));
    let selector = job.pointer("/spec/selector");
    match selector {
        None => causes.push(Cause::required("spec.selector", "")),
        Some(selector) => {
            causes.extend(admission::selector_violations("spec.selector", selector));
        }
    }
    let template = job.pointer("/spec/template").unwrap_or(&Value::Null);
    let read = selector.map(Selector::read);
    let is_other = match read {
        // Without a selector nothing is selected.
        None => true,
        Some(Ok(selector)) => !selector.matches_object(template),
        Some(Err(_)) => false,
    };
    if is_other {
        let labels = template.pointer("/metadata/labels").cloned();
        let why = "`selector` does not match template `labels`";
        let field = "spec.template.metadata.labels";
        causes.push(Cause::invalid(field, &labels.unwrap_or_default(), why));
    }
    causes
}

fn number_violations(job: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        if let Some(number) = number(job, key).filter(|number| *number < 0) {
            let why = "must be greater than or equal to 0";
            causes.push(Cause::invalid(&format!("spec.{key}"), &number.into(), why));
        }
    }
    let has_limit = number(job, "backoffLimitPerIndex").is_some();
    if number(job, "maxFailedIndexes").is_some() && !has_limit {
        let why = "when maxFailedIndexes is specified";
        causes.push(Cause::required("spec.backoffLimitPerIndex", why));
    }
    if let Some(manager) = job.pointer("/spec/managedBy") {
        let text = manager.as_str().unwrap_or("");
        let is_path = text
            .split_once('/')
            .is_some_and(|it| !it.0.is_empty() && !it.1.is_empty());
        if !is_path {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            causes.push(Cause::invalid("spec.managedBy", manager, why));
        }
        if text.len() > MAX_MANAGER {
            causes.push(Cause::too_long("spec.managedBy", MAX_MANAGER));
        }
    }
    causes
}

fn mode_violations(job: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mode = meta::text(job, "/spec/completionMode");
    if !MODES.contains(&mode) {
        causes.push(Cause::unsupported("spec.completionMode", mode, MODES));
    }
    let failed = number(job, "maxFailedIndexes");
    if mode == "Indexed" {
        indexed_violations(job, &mut causes);
    } else if mode == "NonIndexed" {
        let why = "requires indexed completion mode";
        let limits = [
            (
                "spec.backoffLimitPerIndex",
                number(job, "backoffLimitPerIndex"),
            ),
            ("spec.maxFailedIndexes", failed),
        ];
        for (field, limit) in limits {
            causes.extend(limit.map(|limit| Cause::invalid(field, &limit.into(), why)));
        }
    }
    causes
}

fn indexed_violations(job: &Value, causes: &mut Vec<Cause>) {
    let completions = number(job, "completions");
    if completions.is_none() {
        let why = "when completion mode is Indexed";
        causes.push(Cause::required("spec.completions", why));
    }
    let has_limit = number(job, "backoffLimitPerIndex").is_some();
    let is_large = has_limit && completions.is_some_and(|it| it > MAX_INDEXED);
    let of_large = format!(
        "{MAX_WHEN_LARGE} when completions are above {MAX_INDEXED} and used with backoff limit per index"
    );
    let mut limits = vec![(
        "parallelism",
        MAX_INDEXED,
        format!("{MAX_INDEXED} when completion mode is Indexed"),
    )];
    limits.extend(completions.map(|it| ("maxFailedIndexes", it, "completions".to_owned())));
    limits.push(("maxFailedIndexes", MAX_INDEXED, MAX_INDEXED.to_string()));
    if is_large {
        limits.push(("parallelism", MAX_WHEN_LARGE, of_large.clone()));
        limits.push(("maxFailedIndexes", MAX_WHEN_LARGE, of_large));
    }
    if is_large && number(job, "maxFailedIndexes").is_none() {
        let why = format!("must be specified when completions is above {MAX_INDEXED}");
        causes.push(Cause::required("spec.maxFailedIndexes", &why));
    }
    for (key, limit, shown) in limits {
        if let Some(found) = number(job, key).filter(|found| *found > limit) {
            let why = format!("must be less than or equal to {shown}");
            causes.push(Cause::invalid(&format!("spec.{key}"), &found.into(), &why));
        }
    }
}

/// Complaints about the template; Jobs end, so their pods do not restart for ever.
fn template_violations(job: &Value, has_failure_policy: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let template = job.pointer("/spec/template").unwrap_or(&Value::Null);
    let labels = template
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        causes.extend(meta::label_violations("spec.template.labels", key, value));
    }
    let spec = template.get("spec").unwrap_or(&Value::Null);
    causes.extend(pod_rules::violations(spec, "spec.template.spec"));
    causes.extend(restart_violation(
        spec,
        "spec.template.spec",
        has_failure_policy,
    ));
    causes
}

/// What is wrong with the restarts of the pods of a Job, whose spec stands at a path.
pub(in crate::server::strategy) fn restart_violation(
    spec: &Value,
    path: &str,
    has_failure_policy: bool,
) -> Option<Cause> {
    let field = format!("{path}.restartPolicy");
    match meta::text(spec, "/restartPolicy") {
        "" | "Always" => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            Some(Cause::required(&field, why))
        }
        "OnFailure" if has_failure_policy => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            Some(Cause::invalid(&field, &json!("OnFailure"), why))
        }
        policy if RESTARTS.contains(&policy) => None,
        other => Some(Cause::unsupported(&field, other, RESTARTS)),
    }
}

/// The pods of an indexed Job have its name and their index as host name.
fn hostname_violation(job: &Value) -> Option<Cause> {
    let completions = number(job, "completions").filter(|it| *it > 0 && is_indexed(job))?;
    let name = meta::name(job);
    let last = format!("{name}-{}", completions - 1);
    let why = format!("will not able to create pod with invalid DNS label: {last}");
    let is_wrong = !label_violations(&last).is_empty();
    is_wrong.then(|| Cause::invalid("metadata.name", &name.into(), &why))
}

/// What a Job may not change.
fn changes(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    // An earlier version has stored less.
    let old = &completed(old);
    let mut immutable = |key: &str, before: &Value| {
        let found = new["spec"].get(key).unwrap_or(&Value::Null);
        if found != before {
            let field = format!("spec.{key}");
            causes.push(Cause::invalid(&field, found, "field is immutable"));
        }
    };
    let before = |key: &str| old["spec"].get(key).unwrap_or(&Value::Null);
    let completions = number(new, "completions");
    if !is_indexed(new) {
        immutable("completions", before("completions"));
    }
    immutable("selector", before("selector"));
    immutable("template", &allowed_template(new, old));
    for key in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        immutable(key, before(key));
    }
    // An indexed Job may grow and shrink as a whole.
    let is_resized = is_indexed(new) && completions != number(old, "completions");
    if let Some(completions) = completions.filter(|_| is_resized)
        && number(new, "parallelism") != Some(completions)
    {
        let why = "can only be modified in tandem with spec.parallelism";
        let cause = Cause::invalid("spec.completions", &completions.into(), why);
        causes.insert(0, cause);
    }
    causes
}

fn completed(job: &Value) -> Value {
    let mut job = job.clone();
    super::set_defaults(meta::member(&mut job, "spec"));
    job
}

/// The old template, with what may still change: where the pods of a Job may run that is suspended and has never
/// begun.
fn allowed_template(new: &Value, old: &Value) -> Value {
    let mut allowed = old["spec"]["template"].clone();
    let is_suspended = old.pointer("/spec/suspend") == Some(&Value::Bool(true));
    if !is_suspended || old.pointer("/status/startTime").is_some() {
        return allowed;
    }
    let wanted = &new["spec"]["template"];
    let take = |to: &mut Value, from: &Value, key: &str| meta::keep(meta::members(to), from, key);
    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
        take(&mut allowed["spec"], &wanted["spec"], key);
    }
    for key in ["labels", "annotations"] {
        take(&mut allowed["metadata"], &wanted["metadata"], key);
    }
    let mut affinity = allowed["spec"]["affinity"].clone();
    take(&mut affinity, &wanted["spec"]["affinity"], "nodeAffinity");
    let spec = meta::members(&mut allowed["spec"]);
    if affinity.as_object().is_none_or(serde_json::Map::is_empty) {
        spec.remove("affinity");
    } else {
        spec.insert("affinity".into(), affinity);
    }
    allowed
}
