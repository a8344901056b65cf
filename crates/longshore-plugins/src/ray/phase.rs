//! The phase of a task, from its RayJob.

use jiff::Timestamp;
use longshore_k8s::metadata::is_true;
use longshore_proto::flyteidl2::core::{TaskLog, task_log::LinkType};
use serde_json::Value;

use super::HEAD;
use crate::{
    config::Config,
    context::{ErrorFile, TaskContext},
    json::text,
    links::Variables,
    phase::{ErrorKind, Info, Phase, PhaseInfo, TASK_FAILED_WITH_ERROR},
    pod,
};

/// KubeRay gave up on a status that did not come in time: not the task's fault.
const GRACE_PERIOD_EXCEEDED: &str = "JobDeploymentStatusTransitionGracePeriodExceeded";

/// The phase of a job.
pub(super) fn of(context: &TaskContext, job: &Value, config: &Config, now: Timestamp) -> PhaseInfo {
    let mut info = info(context, job, config);
    let status = text(&job["status"], "jobDeploymentStatus");
    if status.is_empty() {
        return PhaseInfo::of(Phase::Queued, "Scheduling").with_info(info);
    }
    if let Some(trouble) = pod::trouble(context, HEAD, &config.k8s.grace, now) {
        return trouble.with_info(info);
    }
    let mut phase = match status {
        "Initializing" => PhaseInfo {
            occurred_at: text(&job["metadata"], "creationTimestamp").parse().ok(),
            ..PhaseInfo::of(Phase::Initializing, "cluster is creating")
        },
        "Running" => PhaseInfo::of(Phase::Running, ""),
        "Complete" => PhaseInfo::of(Phase::Success, ""),
        "Suspending" => {
            let reason = "cluster is about to be suspended";
            return PhaseInfo::of(Phase::Queued, reason).with_info(info);
        }
        "Suspended" => {
            return PhaseInfo::of(Phase::Queued, "cluster is suspended").with_info(info);
        }
        "Failed" => failed(context, job),
        _ => PhaseInfo::unknown(
            &context.last,
            format!("the RayJob has the unknown deployment status {status:?}"),
        ),
    };
    let is_ready = context
        .head_pod
        .as_ref()
        .is_some_and(|pod| is_true(pod, "Ready"));
    for link in &mut info.logs {
        let what = match link.link_type() {
            LinkType::Dashboard => "Ray dashboard",
            LinkType::Ide => "Vscode server",
            LinkType::External => continue,
        };
        link.ready = is_ready;
        let is_open = is_ready && phase.phase >= Phase::Running;
        let readiness = if is_open { "ready" } else { "not ready" };
        phase = phase.with_reason(&format!("{what} is {readiness}"));
    }
    phase.with_info(info)
}

/// What the task wrote about its failure counts; where it wrote nothing, KubeRay's reason does.
fn failed(context: &TaskContext, job: &Value) -> PhaseInfo {
    let status = &job["status"];
    let (reason, why) = (text(status, "reason"), text(status, "message"));
    let name = text(&job["metadata"], "name");
    let message = format!("Ray job {name} failed: [{reason}] {why}");
    let code = TASK_FAILED_WITH_ERROR;
    match context.error_file {
        ErrorFile::Present {
            is_recoverable: true,
        } => PhaseInfo::retryable(ErrorKind::User, code, message),
        ErrorFile::Absent if reason == GRACE_PERIOD_EXCEEDED => PhaseInfo {
            cleanup_on_failure: true,
            ..PhaseInfo::retryable(ErrorKind::System, code, message)
        },
        ErrorFile::Present { .. } | ErrorFile::Absent | ErrorFile::Unknown => {
            PhaseInfo::permanent(ErrorKind::User, code, message)
        }
    }
}

fn info(context: &TaskContext, job: &Value, config: &Config) -> Info {
    let has_started = |pod: &&Value| pod["status"]["phase"] != "Pending";
    Info {
        logs: links(context, job, config),
        log_context: context
            .head_pod
            .as_ref()
            .filter(has_started)
            .map(|pod| pod::log_context([pod])),
        ..Info::default()
    }
}

fn links(context: &TaskContext, job: &Value, config: &Config) -> Vec<TaskLog> {
    let status = &job["status"];
    let cluster = text(status, "rayClusterName");
    let mut variables = Variables::of_task(context);
    variables.pod(&format!("{cluster}-head"), &context.namespace);
    variables.set("rayClusterName", cluster);
    variables.set("rayJobID", text(status, "jobId"));
    let head = "/spec/rayClusterSpec/headGroupSpec/template/spec/containers/0/env";
    let serves_editor = job.pointer(head).is_some_and(pod::serves_editor);
    let mut links = config
        .ray
        .logs
        .links(&context.template, &variables, "", serves_editor);
    let has_dashboard =
        !text(status, "dashboardURL").is_empty() && status["jobStatus"] == "RUNNING";
    if let Some(template) = config.ray.dashboard_link.as_ref().filter(|_| has_dashboard) {
        let mut dashboard = template.links(&variables, "");
        for link in &mut dashboard {
            link.set_link_type(LinkType::Dashboard);
        }
        links.extend(dashboard);
    }
    links
}
