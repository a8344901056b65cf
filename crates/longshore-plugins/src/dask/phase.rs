//! The phase of a task, from its DaskJob.

use jiff::Timestamp;
use longshore_proto::flyteidl2::core::{ContainerContext, LogContext, PodLogContext};
use serde_json::Value;

use super::JOB_RUNNER;
use crate::{
    config::Config,
    context::TaskContext,
    json::text,
    links::Variables,
    phase::{DOWNSTREAM_SYSTEM_ERROR, ErrorKind, Info, Phase, PhaseInfo},
    pod,
};

/// The phase of a job.
pub(super) fn of(context: &TaskContext, job: &Value, config: &Config, now: Timestamp) -> PhaseInfo {
    let info = info(context, job, config);
    if let Some(trouble) = pod::trouble(context, JOB_RUNNER, &config.k8s.grace, now) {
        return trouble.with_info(info);
    }
    let phase = match text(&job["status"], "jobStatus") {
        "" => PhaseInfo::of(Phase::Initializing, "unknown"),
        "JobCreated" => PhaseInfo::of(Phase::Initializing, "job created"),
        "ClusterCreated" => PhaseInfo::of(Phase::Initializing, "cluster created"),
        "Failed" => {
            let reason = "Dask job failed";
            PhaseInfo::retryable(ErrorKind::User, DOWNSTREAM_SYSTEM_ERROR, reason)
        }
        "Successful" => PhaseInfo::of(Phase::Success, ""),
        _ => PhaseInfo::of(Phase::Running, ""),
    };
    phase.with_info(info)
}

fn info(context: &TaskContext, job: &Value, config: &Config) -> Info {
    let runner = text(&job["status"], "jobRunnerPodName");
    let mut variables = Variables::of_task(context);
    variables.pod(runner, &context.namespace);
    // The operator calls the scheduler's Deployment so, and its pods begin so.
    let scheduler = format!("{}-scheduler", text(&job["metadata"], "name"));
    variables.set("daskSchedulerName", &scheduler);
    let env = "/spec/cluster/spec/scheduler/spec/containers/0/env";
    let serves_editor = job.pointer(env).is_some_and(pod::serves_editor);
    let container = ContainerContext {
        container_name: JOB_RUNNER.to_owned(),
        process: None,
    };
    Info {
        logs: config
            .dask
            .logs
            .links(&context.template, &variables, "", serves_editor),
        log_context: Some(LogContext {
            primary_pod_name: runner.to_owned(),
            pods: vec![PodLogContext {
                namespace: context.namespace.clone(),
                pod_name: runner.to_owned(),
                primary_container_name: JOB_RUNNER.to_owned(),
                containers: vec![container],
                init_containers: Vec::new(),
            }],
            ..LogContext::default()
        }),
        ..Info::default()
    }
}
