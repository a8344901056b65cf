//! Jobs: defaults, the selector that the server makes, rules of spec and status.

mod policies;
mod rules;
mod status;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub(super) use rules::violations;
pub(super) use status::violations as status_violations;

use super::workloads::{set_all, take_template_labels};
use crate::server::meta;

const LABEL_CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const LABEL_JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// The names of both before they had a prefix.
const OLD_LABEL_CONTROLLER_UID: &str = "controller-uid";
const OLD_LABEL_JOB_NAME: &str = "job-name";

/// Fills in what the type of Jobs fills in when it is decoded.
pub(super) fn set_defaults(spec: &mut Map<String, Value>) {
    // A work queue has parallelism and no number of completions.
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        set_all(spec, &[("completions", json!(1))]);
    }
    let backoff_limit = match spec.get("backoffLimitPerIndex") {
        Some(_) => i32::MAX,
        None => 6,
    };
    let replacement = match spec.get("podFailurePolicy") {
        Some(_) => "Failed",
        None => "TerminatingOrFailed",
    };
    set_all(
        spec,
        &[
            ("parallelism", json!(1)),
            ("backoffLimit", json!(backoff_limit)),
            ("completionMode", json!("NonIndexed")),
            ("suspend", json!(false)),
            ("podReplacementPolicy", json!(replacement)),
            ("manualSelector", json!(false)),
            ("template", json!({})),
        ],
    );
    let template = spec.get_mut("template").and_then(Value::as_object_mut);
    if let Some(template) = template {
        set_all(template, &[("metadata", json!({})), ("spec", json!({}))]);
    }
    let rules = spec
        .get_mut("podFailurePolicy")
        .and_then(|policy| policy.get_mut("rules"));
    for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
        let patterns = rule
            .get_mut("onPodConditions")
            .and_then(Value::as_array_mut);
        for pattern in patterns.into_iter().flatten() {
            set_all(meta::members(pattern), &[("status", json!("True"))]);
        }
    }
}

/// Completes a changed Job.
pub(super) fn prepare_update(job: &mut Value) {
    take_template_labels(job);
}

/// A new Job gets a selector, and its pods the labels that it selects, from its uid. What a client has set there
/// stays, and is refused when it is wrong.
pub(super) fn select_own_pods(job: &mut Value) {
    let is_manual = job.pointer("/spec/manualSelector") == Some(&Value::Bool(true));
    let uid = meta::text(job, "/metadata/uid").to_owned();
    let name = meta::name(job).to_owned();
    // A Job without labels of its own has those of its pods, the new ones too.
    let own = job.pointer("/metadata/labels").cloned();
    let is_shared = own.is_none() || own.as_ref() == job.pointer("/spec/template/metadata/labels");
    if !is_manual && !uid.is_empty() {
        let spec = meta::member(job, "spec");
        let selector = meta::members(spec.entry("selector").or_insert_with(|| json!({})));
        let chosen = meta::members(selector.entry("matchLabels").or_insert_with(|| json!({})));
        set_all(chosen, &[(LABEL_CONTROLLER_UID, json!(uid))]);
        let template = spec.entry("template").or_insert_with(|| json!({}));
        let metadata = meta::metadata(template);
        let labels = meta::members(metadata.entry("labels").or_insert_with(|| json!({})));
        let made = [
            (OLD_LABEL_JOB_NAME, json!(name)),
            (LABEL_JOB_NAME, json!(name)),
            (OLD_LABEL_CONTROLLER_UID, json!(uid)),
            (LABEL_CONTROLLER_UID, json!(uid)),
        ];
        set_all(labels, &made);
    }
    if is_shared {
        meta::metadata(job).remove("labels");
        take_template_labels(job);
    }
}
