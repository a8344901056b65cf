//! A clustered task as a JobSet.

use longshore_api::flyte;
use longshore_proto::flyteidl2::plugins::{ClusteredTaskSpec, RdzvBackend, runtime::Kind};
use serde_json::{Value, json};

use super::{MAX_REPLICAS, RESOURCE, WORKERS};
use crate::{
    config::Config,
    context::TaskContext,
    custom,
    json::{Object, list},
    names,
    plugin::BuildError,
    pod::Pod,
};

/// The port on which rank 0 listens.
const MASTER_PORT: &str = "29500";

/// The JobSet of this name, which is the domain of its pods too. The interconnect is always TCP, as upstream.
pub(super) fn of(context: &TaskContext, config: &Config, name: &str) -> Result<Value, BuildError> {
    let task: ClusteredTaskSpec = custom::read(&context.template)?;
    check(&task)?;
    let mut pod = Pod::for_operator(context, &config.k8s)?;
    let primary = pod.primary.clone();
    set_env(pod.primary()?, env(&task));
    pod.spec.insert("restartPolicy".into(), json!("Never"));
    let domain = pod.spec.entry("subdomain").or_insert(Value::Null);
    if domain.as_str().unwrap_or_default().is_empty() {
        *domain = json!(name);
    }
    let mut spec = json!({
        "network": {"enableDNSHostnames": true},
        "successPolicy": {"operator": "All"},
        "replicatedJobs": [{
            "name": WORKERS,
            "replicas": 1,
            "template": {"spec": {
                "parallelism": task.replicas,
                "completions": task.replicas,
                "completionMode": "Indexed",
                "backoffLimit": 0,
                "template": pod.into_template(context, &config.k8s),
            }},
        }],
    });
    let restarts = max_restarts(&task);
    if restarts > 0 {
        spec["failurePolicy"] = json!({"maxRestarts": restarts});
    }
    if let Some(ttl) = task.ttl_seconds_after_finished {
        spec["ttlSecondsAfterFinished"] = json!(ttl);
    }
    let run = match context.run_name.as_str() {
        "" => "none".to_owned(),
        run => names::label_value(run),
    };
    Ok(json!({
        "apiVersion": RESOURCE.api_version(),
        "kind": RESOURCE.kind,
        "metadata": {
            "labels": {(flyte::LABEL_EXECUTION): run},
            "annotations": {
                (flyte::ANNOTATION_TASK_TYPE): "clustered-task",
                (flyte::ANNOTATION_JOB_SET_PRIMARY): primary,
            },
        },
        "spec": spec,
    }))
}

fn check(task: &ClusteredTaskSpec) -> Result<(), BuildError> {
    let in_range = |field: &str, value: i64, least: i64, most: i64| {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(BuildError::bad_specification(format!(
            "expected {field} between {least} and {most}, found {value}"
        )))
    };
    let most = i64::from(i32::MAX);
    in_range("replicas", task.replicas.into(), 1, MAX_REPLICAS.into())?;
    in_range("nprocPerNode", task.nproc_per_node.into(), 1, most)?;
    in_range(
        "failurePolicy.maxRestarts",
        max_restarts(task).into(),
        0,
        most,
    )?;
    let ttl = task.ttl_seconds_after_finished.unwrap_or_default();
    in_range("ttlSecondsAfterFinished", ttl.into(), 0, most)
}

pub(super) fn max_restarts(task: &ClusteredTaskSpec) -> i32 {
    task.failure_policy
        .as_ref()
        .map_or(0, |policy| policy.max_restarts)
}

/// What the SDK's entrypoint needs to start `torchrun`.
fn env(task: &ClusteredTaskSpec) -> Vec<Value> {
    let runtime = task
        .runtime
        .as_ref()
        .and_then(|runtime| runtime.kind.as_ref());
    let backend = match runtime {
        Some(Kind::Torchrun(torch)) if torch.rdzv_backend() == RdzvBackend::C10d => "c10d",
        Some(Kind::Torchrun(_)) | None => "static",
    };
    let value = |name: &str, value: &str| json!({"name": name, "value": value});
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    vec![
        value("NNODES", &task.replicas.to_string()),
        value("NPROC_PER_NODE", &task.nproc_per_node.to_string()),
        value("MASTER_PORT", MASTER_PORT),
        value("RDZV_BACKEND", backend),
        value("JOBSET_MAX_RESTARTS", &max_restarts(task).to_string()),
        field(
            "JOBSET_NAME",
            "metadata.labels['jobset.sigs.k8s.io/jobset-name']",
        ),
        field(
            "JOBSET_RESTART_ATTEMPT",
            "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']",
        ),
        field("POD_NAMESPACE", "metadata.namespace"),
    ]
}

/// Each variable once: which of two counts is not said anywhere.
fn set_env(container: &mut Object, variables: Vec<Value>) {
    let Some(env) = list(container, "env") else {
        return;
    };
    for variable in variables {
        match env.iter_mut().find(|own| own["name"] == variable["name"]) {
            Some(own) => *own = variable,
            None => env.push(variable),
        }
    }
}
