//! The phase of a task, from its training job.

use jiff::Timestamp;
use longshore_proto::flyteidl2::core::TaskLog;
use serde_json::Value;

use super::{Kind, MPI, PYTORCH, replica::WORKER};
use crate::{
    config::Config,
    context::TaskContext,
    json::text,
    links::Variables,
    phase::{DOWNSTREAM_SYSTEM_ERROR, ErrorKind, Info, Phase, PhaseInfo},
    pod,
};

/// The code of a job that its operator does not look at.
const OPERATOR_SILENT: &str = "OperatorSilent";

/// The phase of a job: what the newest condition that holds says.
pub(super) fn of(
    context: &TaskContext,
    job: &Value,
    kind: &Kind,
    config: &Config,
    now: Timestamp,
) -> PhaseInfo {
    let info = info(context, job, kind, config, now);
    let status = &job["status"];
    if is_ignored(job, config, now) {
        let name = kind.resource.kind;
        let message = format!(
            "the training operator has not started the {name} since its creation at {}; is it installed?",
            text(&job["metadata"], "creationTimestamp")
        );
        return PhaseInfo::retryable(ErrorKind::System, OPERATOR_SILENT, message).with_info(info);
    }
    if kind.head.is_some()
        && let Some(trouble) = pod::trouble(context, kind.container, &config.k8s.grace, now)
    {
        return trouble.with_info(info);
    }
    let condition = newest_condition(status);
    let phase = match condition.map(|condition| text(condition, "type")) {
        None | Some("Created") => PhaseInfo::of(Phase::Queued, "JobCreated"),
        Some("Running" | "Restarting") => PhaseInfo::of(Phase::Running, ""),
        Some("Suspended") => PhaseInfo::of(Phase::Queued, "job is suspended"),
        Some("Succeeded") => PhaseInfo::of(Phase::Success, ""),
        Some("Failed") => {
            let condition = condition.unwrap_or(&Value::Null);
            let (reason, why) = (text(condition, "reason"), text(condition, "message"));
            let message = format!("Job failed:\n\t{reason} - {why}");
            PhaseInfo::retryable(ErrorKind::User, DOWNSTREAM_SYSTEM_ERROR, message)
        }
        Some(other) => {
            let message = format!("the job has the unknown condition {other:?}");
            PhaseInfo::unknown(&context.last, message)
        }
    };
    phase.with_info(info)
}

/// Of conditions of the same second, the last in the list: operators append.
pub(crate) fn newest_condition(status: &Value) -> Option<&Value> {
    let conditions = status["conditions"].as_array()?.iter();
    conditions
        .filter(|condition| condition["status"] == "True")
        .max_by_key(|condition| {
            let at: Option<Timestamp> = text(condition, "lastTransitionTime").parse().ok();
            at
        })
}

fn is_ignored(job: &Value, config: &Config, now: Timestamp) -> bool {
    let created: Option<Timestamp> = text(&job["metadata"], "creationTimestamp").parse().ok();
    let Some(created) = created.filter(|_| text(&job["status"], "startTime").is_empty()) else {
        return false;
    };
    let age = std::time::Duration::try_from(now.duration_since(created)).unwrap_or_default();
    age > config.kubeflow.timeout
}

fn info(context: &TaskContext, job: &Value, kind: &Kind, config: &Config, now: Timestamp) -> Info {
    let has_started = |pod: &&Value| pod["status"]["phase"] != "Pending";
    let head = context.head_pod.as_ref().filter(has_started);
    let status = &job["status"];
    Info {
        logs: links(context, job, kind, config, now),
        log_context: head.map(|pod| pod::log_context([pod])),
        custom: status.is_object().then(|| status.clone()),
        ..Info::default()
    }
}

fn links(
    context: &TaskContext,
    job: &Value,
    kind: &Kind,
    config: &Config,
    now: Timestamp,
) -> Vec<TaskLog> {
    let name = text(&job["metadata"], "name");
    let created = text(&job["metadata"], "creationTimestamp")
        .parse()
        .unwrap_or(now);
    let replicas = |role: &str| {
        let replicas = job["spec"][kind.roles][role]["replicas"].as_u64();
        replicas.unwrap_or_default()
    };
    let of_pod = |pod: String, log_name: &str| {
        let mut variables = Variables::of_task(context);
        variables.pod(&pod, &context.namespace);
        variables.set("containerName", kind.container);
        variables.set("logName", log_name);
        variables.times(created, now);
        config
            .logs
            .links(&context.template, &variables, log_name, false)
    };
    let mut links = Vec::new();
    if kind.id == PYTORCH.id && replicas("Master") > 0 {
        links.extend(of_pod(format!("{name}-master-0"), "master"));
    }
    for at in 0..replicas(WORKER) {
        links.extend(of_pod(format!("{name}-worker-{at}"), ""));
    }
    if kind.id == PYTORCH.id || kind.id == MPI.id {
        return links;
    }
    // Pods are called as their roles, in lower case; upstream's links to these lead nowhere.
    for at in 0..replicas("PS") {
        links.extend(of_pod(format!("{name}-ps-{at}"), ""));
    }
    for role in ["Chief", "Evaluator"] {
        if replicas(role) > 0 {
            links.extend(of_pod(format!("{name}-{}-0", role.to_lowercase()), ""));
        }
    }
    links
}
