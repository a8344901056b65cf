//! The phase of a task, from its SparkApplication.

use jiff::Timestamp;
use longshore_proto::flyteidl2::core::{
    ContainerContext, LogContext, PodLogContext, TaskLog,
    task_log::{LinkType, MessageFormat},
};
use serde_json::{Value, json};

use super::{DRIVER, EXECUTOR};
use crate::{
    config::Config,
    context::TaskContext,
    json::text,
    links::Variables,
    phase::{DOWNSTREAM_SYSTEM_ERROR, ErrorKind, Info, Phase, PhaseInfo},
    pod,
};

const DRIVER_UI: &str = "Spark Driver UI";
const HISTORY_UI: &str = "Spark History UI";

/// The phase of an application.
pub(super) fn of(
    context: &TaskContext,
    application: &Value,
    config: &Config,
    now: Timestamp,
) -> PhaseInfo {
    let info = info(context, application, config);
    if let Some(trouble) = pod::trouble(context, DRIVER, &config.k8s.grace, now) {
        return trouble.with_info(info);
    }
    let state = &application["status"]["applicationState"];
    let failure = |what: &str| {
        let why = text(state, "errorMessage");
        PhaseInfo::retryable(
            ErrorKind::User,
            DOWNSTREAM_SYSTEM_ERROR,
            format!("Spark job {what}: {why}"),
        )
    };
    let mut phase = match text(state, "state") {
        "" => PhaseInfo::of(Phase::Queued, "job queued"),
        "SUBMITTED" | "PENDING_SUBMISSION" => PhaseInfo::of(Phase::Initializing, "job submitted"),
        "SUBMISSION_FAILED" => failure("could not be submitted"),
        "FAILED" => failure("failed"),
        "COMPLETED" => PhaseInfo::of(Phase::Success, ""),
        _ => PhaseInfo::of(Phase::Running, ""),
    };
    let is_running = phase.phase == Phase::Running;
    for link in &info.logs {
        let what = match link.link_type() {
            LinkType::Dashboard if link.name.contains(DRIVER_UI) => "Spark driver UI",
            LinkType::Ide => "Vscode server",
            LinkType::Dashboard | LinkType::External => continue,
        };
        let readiness = if is_running { "ready" } else { "not ready" };
        phase = phase.with_reason(&format!("{what} is {readiness}"));
    }
    phase.with_info(info)
}

fn info(context: &TaskContext, application: &Value, config: &Config) -> Info {
    let driver = text(&application["status"]["driverInfo"], "podName");
    let mut logs = links(context, application, config);
    let ui = ui(application, config);
    let custom = ui.as_ref().map(|(key, link)| json!({(*key): link.uri}));
    logs.extend(ui.map(|(_, link)| link));
    Info {
        logs,
        log_context: Some(log_context(context, application, driver)),
        custom,
        ..Info::default()
    }
}

fn links(context: &TaskContext, application: &Value, config: &Config) -> Vec<TaskLog> {
    let logs = &config.spark.logs;
    let driver = text(&application["status"]["driverInfo"], "podName");
    let name = text(&application["metadata"], "name");
    let mut of_driver = Variables::of_task(context);
    of_driver.pod(driver, &context.namespace);
    let mut of_application = Variables::of_task(context);
    of_application.pod(name, &context.namespace);
    let template = &context.template;
    let serves_editor = pod::serves_editor(&application["spec"]["driver"]["env"]);
    let mut links = Vec::new();
    if !driver.is_empty() {
        links.extend(logs.mixed.links(template, &of_driver, "", serves_editor));
    }
    // What the task itself wants to be shown is among the links of its driver.
    let bare = longshore_proto::flyteidl2::core::TaskTemplate::default();
    links.extend(logs.user.links(&bare, &of_driver, "", false));
    links.extend(logs.system.links(&bare, &of_application, "", false));
    let mut all = logs.all_user.links(&bare, &of_application, "", false);
    for link in &mut all {
        link.show_while_pending = true;
    }
    links.extend(all);
    links
}

/// The page of the driver while it runs, and of the history server after its end.
fn ui(application: &Value, config: &Config) -> Option<(&'static str, TaskLog)> {
    let status = &application["status"];
    let link = |name: &str, uri: String| TaskLog {
        uri,
        name: name.to_owned(),
        ready: true,
        message_format: MessageFormat::Json.into(),
        link_type: LinkType::Dashboard.into(),
        ..TaskLog::default()
    };
    match text(&status["applicationState"], "state") {
        "FAILED" | "COMPLETED" => {
            let id = text(status, "sparkApplicationId");
            let server = config.spark.history_server.as_deref()?;
            let uri = format!("{server}/history/{id}");
            (!id.is_empty()).then(|| ("sparkHistoryUI", link(HISTORY_UI, uri)))
        }
        "RUNNING" => {
            let address = text(&status["driverInfo"], "webUIIngressAddress");
            let has_scheme = ["https://", "http://"]
                .iter()
                .any(|scheme| address.starts_with(scheme));
            let scheme = if has_scheme { "" } else { "https://" };
            let uri = format!("{scheme}{address}");
            (!address.is_empty()).then(|| ("sparkDriverUI", link(DRIVER_UI, uri)))
        }
        _ => None,
    }
}

fn log_context(context: &TaskContext, application: &Value, driver: &str) -> LogContext {
    let pod = |name: &str, container: &str| PodLogContext {
        namespace: context.namespace.clone(),
        pod_name: name.to_owned(),
        primary_container_name: container.to_owned(),
        containers: vec![ContainerContext {
            container_name: container.to_owned(),
            process: None,
        }],
        init_containers: Vec::new(),
    };
    let executors = application["status"]["executorState"].as_object();
    let started = executors
        .into_iter()
        .flatten()
        .filter(|(_, state)| *state != "PENDING" && *state != "UNKNOWN")
        .map(|(name, _)| pod(name, EXECUTOR));
    LogContext {
        primary_pod_name: driver.to_owned(),
        pods: std::iter::once(pod(driver, DRIVER))
            .chain(started)
            .collect(),
        ..LogContext::default()
    }
}
