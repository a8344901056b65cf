//! Defaults and rules of workloads.

use std::borrow::Cow;

use longshore_k8s::Selector;
use serde_json::{Map, Value, json};

use super::{jobs, pod_defaults, pod_rules};
use crate::server::{admission, error::Cause, meta};

/// Completes a workload of a kind.
pub(super) fn set_defaults(kind: &str, object: &mut Value) {
    let spec = meta::member(object, "spec");
    match kind {
        "Deployment" => set_deployment_defaults(spec),
        "ReplicaSet" => set_all(spec, &[("replicas", json!(1))]),
        "ReplicationController" => {
            set_all(spec, &[("replicas", json!(1))]);
            let labels = spec
                .get("template")
                .and_then(|template| template.pointer("/metadata/labels"))
                .cloned();
            if let Some(labels) = labels {
                set_all(spec, &[("selector", labels)]);
                take_template_labels(object);
            }
        }
        "StatefulSet" => set_stateful_set_defaults(spec),
        "DaemonSet" => {
            set_all(spec, &[("revisionHistoryLimit", json!(10))]);
            let update = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
            set_all(spec, &[("updateStrategy", update)]);
        }
        "Job" => jobs::set_defaults(spec),
        "CronJob" => {
            set_all(
                spec,
                &[
                    ("concurrencyPolicy", json!("Allow")),
                    ("suspend", json!(false)),
                    ("successfulJobsHistoryLimit", json!(3)),
                    ("failedJobsHistoryLimit", json!(1)),
                ],
            );
            if let Some(Value::Object(job)) = spec
                .get_mut("jobTemplate")
                .and_then(|it| it.get_mut("spec"))
            {
                set_template_defaults(job);
            }
        }
        _ => {}
    }
    set_template_defaults(meta::member(object, "spec"));
}

/// The status of a new workload: the numbers that its type always has.
pub(super) fn first_status(kind: &str) -> Value {
    match kind {
        "ReplicaSet" | "ReplicationController" => json!({"replicas": 0}),
        "StatefulSet" => json!({"availableReplicas": 0, "replicas": 0}),
        "DaemonSet" => json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0,
            "numberMisscheduled": 0, "numberReady": 0,
        }),
        _ => json!({}),
    }
}

pub(super) fn set_all(members: &mut Map<String, Value>, defaults: &[(&str, Value)]) {
    for (key, value) in defaults {
        members.entry(*key).or_insert_with(|| value.clone());
    }
}

fn set_template_defaults(spec: &mut Map<String, Value>) {
    if let Some(template) = spec.get_mut("template").and_then(|it| it.get_mut("spec")) {
        pod_defaults::set_defaults(template);
    }
}

fn set_deployment_defaults(spec: &mut Map<String, Value>) {
    set_all(
        spec,
        &[
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("progressDeadlineSeconds", json!(600)),
            ("strategy", json!({})),
        ],
    );
    let strategy = meta::members(spec.entry("strategy").or_insert_with(|| json!({})));
    set_all(strategy, &[("type", json!("RollingUpdate"))]);
    if strategy.get("type") == Some(&json!("RollingUpdate")) {
        let rolling = meta::members(strategy.entry("rollingUpdate").or_insert_with(|| json!({})));
        set_all(
            rolling,
            &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))],
        );
    }
}

fn set_stateful_set_defaults(spec: &mut Map<String, Value>) {
    set_all(
        spec,
        &[
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("podManagementPolicy", json!("OrderedReady")),
            (
                "updateStrategy",
                json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
            ),
            (
                "persistentVolumeClaimRetentionPolicy",
                json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
            ),
        ],
    );
}

/// Kinds from before Deployments have the labels of their pods when they have none of their own.
pub(super) fn take_template_labels(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    let metadata = meta::metadata(object);
    if let (Some(labels), None) = (labels, metadata.get("labels")) {
        metadata.insert("labels".into(), labels);
    }
}

/// What is wrong with a workload.
pub(super) fn violations(kind: &str, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    if kind == "Job" {
        return jobs::violations(new, old);
    }
    let mut causes = Vec::new();
    let replicas = new.pointer("/spec/replicas").and_then(Value::as_i64);
    if let Some(replicas) = replicas.filter(|replicas| *replicas < 0) {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.replicas", &replicas.into(), why));
    }
    let has_selector = matches!(
        kind,
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet"
    );
    if has_selector {
        selector_violations(kind, new, old, &mut causes);
    }
    let template = if kind == "CronJob" {
        "spec.jobTemplate.spec.template.spec"
    } else {
        "spec.template.spec"
    };
    let spec = new
        .pointer(&format!("/{}", template.replace('.', "/")))
        .unwrap_or(&Value::Null);
    // What was accepted once may be changed elsewhere.
    if old.is_none() {
        causes.extend(pod_rules::violations(&with_claims(new, spec), template));
        causes.extend(restart_policy_violation(kind, spec, template));
    }
    causes
}

/// The specification of the pods with the volumes that the claim templates of a StatefulSet give them, in the place of
/// others of their names.
fn with_claims<'a>(workload: &Value, spec: &'a Value) -> Cow<'a, Value> {
    let claims = workload.pointer("/spec/volumeClaimTemplates");
    let claims: Vec<&str> = claims
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|claim| meta::text(claim, "/metadata/name"))
        .collect();
    if claims.is_empty() {
        return Cow::Borrowed(spec);
    }
    let volumes = pod_rules::items(spec, "volumes");
    let kept = volumes.filter(|it| !claims.contains(&meta::text(it, "/name")));
    let volumes = kept
        .cloned()
        .chain(claims.iter().map(|name| json!({"name": name})));
    let volumes: Vec<Value> = volumes.collect();
    let mut spec = spec.clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("volumes".into(), volumes.into());
    }
    Cow::Owned(spec)
}

/// The pods of a CronJob end, those of all others do not.
fn restart_policy_violation(kind: &str, spec: &Value, template: &str) -> Option<Cause> {
    let field = format!("{template}.restartPolicy");
    match (kind, meta::text(spec, "/restartPolicy")) {
        ("CronJob", "Always") => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            Some(Cause::required(&field, why))
        }
        ("CronJob", _) | (_, "Always") => None,
        (_, other) => Some(Cause::unsupported(&field, other, &["Always"])),
    }
}

fn selector_violations(kind: &str, new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let selector = new.pointer("/spec/selector");
    match selector {
        None => causes.push(Cause::required("spec.selector", "")),
        Some(Value::Object(members)) if members.is_empty() => {
            let why = format!("empty selector is invalid for {}", kind.to_lowercase());
            causes.push(Cause::invalid("spec.selector", &json!({}), &why));
        }
        Some(selector) => causes.extend(admission::selector_violations("spec.selector", selector)),
    }
    if let Some(old) = old
        && selector != old.pointer("/spec/selector")
    {
        let found = selector.cloned().unwrap_or_default();
        causes.push(Cause::invalid(
            "spec.selector",
            &found,
            "field is immutable",
        ));
    }
    let template = new.pointer("/spec/template").unwrap_or(&Value::Null);
    match selector.map(Selector::read) {
        Some(Ok(read)) if read.matches_object(template) => {}
        Some(Err(_)) => {
            let found = selector.cloned().unwrap_or_default();
            causes.push(Cause::invalid(
                "spec.selector",
                &found,
                "invalid label selector",
            ));
        }
        Some(Ok(_)) | None => {
            let labels = template.pointer("/metadata/labels");
            let found = labels.cloned().unwrap_or_default();
            let why = "`selector` does not match template `labels`";
            causes.push(Cause::invalid("spec.template.metadata.labels", &found, why));
        }
    }
}
