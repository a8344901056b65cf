//! Links to the logs of a pod (task action spec §11.9, §14).

use jiff::Timestamp;
use longshore_api::flyte::ANNOTATION_PRIMARY_CONTAINER;
use longshore_proto::flyteidl2::core::{
    ContainerContext, LogContext, PodLogContext, container_context::ProcessContext,
    task_log::LinkType,
};
use serde_json::Value;

use super::{ide, status};
use crate::{
    context::TaskContext,
    json::text,
    links::{LogConfig, Variables},
    phase::{Info, Phase, PhaseInfo},
};

/// What `kubectl logs` shows of a pod with several containers.
const ANNOTATION_DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Adds the links and the containers of a pod to `info`, and whether its editor can be opened.
pub(super) fn add(
    info: PhaseInfo,
    context: &TaskContext,
    pod: &Value,
    config: &LogConfig,
    now: Timestamp,
) -> PhaseInfo {
    let phase = text(&pod["status"], "phase");
    if phase == "Unknown" {
        return info;
    }
    let mut logs = links(context, pod, config, now);
    let editor = logs
        .iter_mut()
        .find(|link| link.link_type() == LinkType::Ide);
    let mut editor_is_ready = None;
    if let Some(link) = editor.filter(|_| info.phase >= Phase::Running) {
        link.ready = is_ready(pod);
        editor_is_ready = Some(link.ready);
    }
    let reported_at = status::reported_at(&pod["status"]).or(info.occurred_at);
    let info = info.with_info(Info {
        logs,
        log_context: Some(log_context([pod])),
        reported_at,
        ..Info::default()
    });
    match editor_is_ready {
        Some(true) => info.with_reason("Vscode server is ready"),
        Some(false) => info.with_reason("Vscode server is not ready"),
        None => info,
    }
}

/// The links of the first container, once it has a status.
fn links(
    context: &TaskContext,
    pod: &Value,
    config: &LogConfig,
    now: Timestamp,
) -> Vec<longshore_proto::flyteidl2::core::TaskLog> {
    let status = &pod["status"]["containerStatuses"][0];
    if !status.is_object() {
        return Vec::new();
    }
    let container = &pod["spec"]["containers"][0];
    let metadata = &pod["metadata"];
    let mut variables = Variables::of_task(context);
    variables.pod(text(metadata, "name"), &context.namespace);
    variables.set("podUID", text(metadata, "uid"));
    variables.set("containerName", text(container, "name"));
    variables.container_id(text(status, "containerID"));
    variables.set("hostname", text(&pod["spec"], "hostname"));
    let created = status::time(metadata, "creationTimestamp").unwrap_or(now);
    variables.times(created, now);
    let serves_editor = ide::serves_editor(&container["env"]);
    config.links(&context.template, &variables, "", serves_editor)
}

/// The pods of a task, the first of which is the one whose end counts. Pods that have not started have no logs.
pub(crate) fn log_context<'a>(pods: impl IntoIterator<Item = &'a Value>) -> LogContext {
    let pods: Vec<PodLogContext> = pods.into_iter().map(of_pod).collect();
    LogContext {
        primary_pod_name: pods
            .first()
            .map(|pod| pod.pod_name.clone())
            .unwrap_or_default(),
        pods,
        ..LogContext::default()
    }
}

fn of_pod(pod: &Value) -> PodLogContext {
    let metadata = &pod["metadata"];
    let containers = |list: &str| {
        let statuses = pod["status"][list].as_array().into_iter().flatten();
        statuses.map(of_container).collect()
    };
    PodLogContext {
        namespace: text(metadata, "namespace").to_owned(),
        pod_name: text(metadata, "name").to_owned(),
        primary_container_name: primary(pod).to_owned(),
        containers: containers("containerStatuses"),
        init_containers: containers("initContainerStatuses"),
    }
}

fn of_container(status: &Value) -> ContainerContext {
    let state = &status["state"];
    let time = |state: &Value, field: &str| {
        let at = status::time(state, field)?;
        Some(prost_types::Timestamp {
            seconds: at.as_second(),
            nanos: at.subsec_nanosecond(),
        })
    };
    let started = time(&state["running"], "startedAt");
    ContainerContext {
        container_name: text(status, "name").to_owned(),
        process: Some(ProcessContext {
            container_start_time: started.or_else(|| time(&state["terminated"], "startedAt")),
            container_end_time: time(&state["terminated"], "finishedAt"),
        }),
    }
}

/// The container of a pod whose logs are looked at first.
fn primary(pod: &Value) -> &str {
    let annotations = &pod["metadata"]["annotations"];
    let named = [ANNOTATION_DEFAULT_CONTAINER, ANNOTATION_PRIMARY_CONTAINER]
        .into_iter()
        .map(|annotation| text(annotations, annotation))
        .find(|name| !name.is_empty());
    let of_same_name = || {
        let containers = pod["spec"]["containers"].as_array()?;
        let name = text(&pod["metadata"], "name");
        let same = containers
            .iter()
            .find(|container| text(container, "name") == name);
        same.or(containers.first())
            .map(|container| text(container, "name"))
    };
    named.or_else(of_same_name).unwrap_or_default()
}

fn is_ready(pod: &Value) -> bool {
    let name = primary(pod);
    let mut containers = status::containers(&pod["status"], &["containerStatuses"]);
    containers.any(|container| container.name() == name && container.is_ready())
}
