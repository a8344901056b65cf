//! The phase of a task, from the answer of its connector.

use longshore_proto::flyteidl2::{
    connector::Resource,
    core::{ConnectorLogContext, LiteralMap, LogContext, TaskTemplate, task_execution},
};

use super::{config::ConnectorConfig, state::WebApiPhase};
use crate::{
    context::TaskContext,
    links::Variables,
    phase::{ErrorKind, Info, Phase, PhaseInfo, TASK_FAILED_WITH_ERROR},
    proto_json::to_json,
    remote::Teller,
};

/// An answer, understood.
pub(super) struct Told {
    pub(super) info: PhaseInfo,
    /// Of a task that declares some, where the connector returned them.
    pub(super) outputs: Option<LiteralMap>,
}

/// The phase that the answer of a connector means.
pub(super) fn of(
    context: &TaskContext,
    resource: Option<&Resource>,
    by: &Teller,
    config: &ConnectorConfig,
) -> Told {
    let none = Resource::default();
    let resource = resource.unwrap_or(&none);
    let message = resource.message.as_str();
    let failed = || format!("the job failed: {message}");
    let code = TASK_FAILED_WITH_ERROR;
    let info = match resource.phase() {
        task_execution::Phase::Queued => PhaseInfo::of(Phase::Queued, message),
        task_execution::Phase::WaitingForResources => {
            PhaseInfo::of(Phase::WaitingForResources, message)
        }
        task_execution::Phase::Initializing => PhaseInfo::of(Phase::Initializing, message),
        task_execution::Phase::Running => PhaseInfo::of(Phase::Running, ""),
        task_execution::Phase::Succeeded => PhaseInfo::of(Phase::Success, ""),
        task_execution::Phase::Aborted => PhaseInfo::permanent(
            ErrorKind::User,
            code,
            "the job was aborted by another client",
        ),
        task_execution::Phase::Failed => PhaseInfo::permanent(ErrorKind::User, code, failed()),
        task_execution::Phase::RetryableFailed => {
            PhaseInfo::retryable(ErrorKind::User, code, failed())
        }
        task_execution::Phase::Undefined => {
            let message = format!("the connector told the unknown phase {}", resource.phase);
            PhaseInfo::unknown(&context.last, message)
        }
    };
    let outputs = outputs(context, resource).filter(|_| info.phase == Phase::Success);
    let mut logs = resource.log_links.clone();
    if by.is_app {
        let mut variables = Variables::of_task(context);
        variables.set("connectorID", &by.name);
        logs.extend(
            config
                .logs
                .links(&TaskTemplate::default(), &variables, "", false),
        );
    }
    let info = info.with_info(Info {
        logs,
        log_context: (!by.endpoint.is_empty()).then(|| LogContext {
            connector: Some(ConnectorLogContext {
                endpoint: by.endpoint.clone(),
            }),
            ..LogContext::default()
        }),
        custom: resource.custom_info.as_ref().map(to_json),
        ..Info::default()
    });
    Told { info, outputs }
}

fn outputs(context: &TaskContext, resource: &Resource) -> Option<LiteralMap> {
    let declared = context.template.interface.as_ref()?.outputs.as_ref()?;
    if declared.variables.is_empty() {
        return None;
    }
    let literals = resource.outputs.as_ref()?.literals.iter();
    Some(LiteralMap {
        literals: literals
            .filter_map(|literal| Some((literal.name.clone(), literal.value.clone()?)))
            .collect(),
    })
}

/// The stored phase for a phase of the task.
pub(super) fn state_after(phase: Phase) -> WebApiPhase {
    match phase {
        Phase::Success => WebApiPhase::Succeeded,
        Phase::RetryableFailure | Phase::PermanentFailure | Phase::Aborted => {
            WebApiPhase::UserFailure
        }
        Phase::Undefined
        | Phase::NotReady
        | Phase::WaitingForResources
        | Phase::Queued
        | Phase::Initializing
        | Phase::Running
        | Phase::WaitingForCache => WebApiPhase::ResourcesCreated,
    }
}
