//! Workloads and Services: values that they have when nobody sets them.

use serde_json::{Map, Value, json};

use super::pod_defaults;
use crate::server::error::Cause;
use crate::server::meta;

const LABEL_CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const LABEL_JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// Completes a workload of a kind.
pub(super) fn set_defaults(kind: &str, object: &mut Value) {
    let spec = meta::member(object, "spec");
    match kind {
        "Deployment" => set_deployment_defaults(spec),
        "ReplicaSet" | "ReplicationController" => set_all(spec, &[("replicas", json!(1))]),
        "StatefulSet" => set_stateful_set_defaults(spec),
        "DaemonSet" => {
            set_all(spec, &[("revisionHistoryLimit", json!(10))]);
            let update = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
            set_all(spec, &[("updateStrategy", update)]);
        }
        "Job" => set_job_defaults(spec),
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

fn set_all(members: &mut Map<String, Value>, defaults: &[(&str, Value)]) {
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

fn set_job_defaults(spec: &mut Map<String, Value>) {
    // A work queue has parallelism and no number of completions.
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        set_all(
            spec,
            &[("completions", json!(1)), ("parallelism", json!(1))],
        );
    }
    set_all(
        spec,
        &[
            ("parallelism", json!(1)),
            ("backoffLimit", json!(6)),
            ("completionMode", json!("NonIndexed")),
            ("suspend", json!(false)),
            ("podReplacementPolicy", json!("TerminatingOrFailed")),
            ("manualSelector", json!(false)),
        ],
    );
}

/// A new job gets a selector, and its pods the labels that it selects, from its uid.
pub(super) fn select_own_pods(job: &mut Value) {
    let is_manual = job.pointer("/spec/manualSelector") == Some(&Value::Bool(true));
    let uid = meta::text(job, "/metadata/uid").to_owned();
    let name = meta::name(job).to_owned();
    if is_manual || uid.is_empty() {
        return;
    }
    let spec = meta::member(job, "spec");
    let selector = meta::members(spec.entry("selector").or_insert_with(|| json!({})));
    meta::members(selector.entry("matchLabels").or_insert_with(|| json!({})))
        .insert(LABEL_CONTROLLER_UID.into(), uid.as_str().into());
    let template = spec.entry("template").or_insert_with(|| json!({}));
    let metadata = meta::metadata(template);
    let labels = meta::members(metadata.entry("labels").or_insert_with(|| json!({})));
    for (key, value) in [
        (LABEL_CONTROLLER_UID, &uid),
        (LABEL_JOB_NAME, &name),
        // The names of both before they had a prefix.
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        labels.insert(key.into(), value.as_str().into());
    }
}

/// What is wrong with the selector of a workload.
pub(super) fn violations(kind: &str, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !matches!(
        kind,
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job"
    ) {
        return causes;
    }
    let selector = new.pointer("/spec/selector");
    if selector.is_none() {
        causes.push(Cause::required("spec.selector", ""));
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
    let labels = new.pointer("/spec/template/metadata/labels");
    let wanted = selector
        .and_then(|it| it.get("matchLabels"))
        .and_then(Value::as_object);
    let is_selected = |(key, value): (&String, &Value)| {
        labels
            .and_then(|labels| labels.get(key))
            .is_some_and(|it| it == value)
    };
    if !wanted.into_iter().flatten().all(is_selected) {
        let found = labels.cloned().unwrap_or_default();
        let why = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", &found, why));
    }
    causes
}

/// Completes a service. Cluster addresses are not given out: a service without `clusterIP` is
/// headless here.
pub(super) fn set_service_defaults(service: &mut Value) {
    let spec = meta::member(service, "spec");
    set_all(
        spec,
        &[
            ("type", json!("ClusterIP")),
            ("sessionAffinity", json!("None")),
            ("internalTrafficPolicy", json!("Cluster")),
            ("ipFamilies", json!(["IPv4"])),
            ("ipFamilyPolicy", json!("SingleStack")),
        ],
    );
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let port = meta::members(port);
        port.entry("protocol").or_insert(json!("TCP"));
        if let Some(number) = port.get("port").cloned() {
            port.entry("targetPort").or_insert(number);
        }
    }
}
