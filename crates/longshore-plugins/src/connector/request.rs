//! The requests to connectors.

use longshore_proto::flyteidl2::{
    connector::{
        CreateTaskRequest, CreateTaskResponse, DeleteTaskRequest, GetTaskRequest, TaskCategory,
        TaskExecutionMetadata,
    },
    core::{
        Connection, NodeExecutionIdentifier, TaskExecutionIdentifier, WorkflowExecutionIdentifier,
        task_template::Target,
    },
    task::{Inputs, NamedLiteral},
};

use super::state::ResourceMeta;
use crate::{
    context::TaskContext,
    custom,
    plugin::BuildError,
    pod::render::Values,
    remote::{Call, Category, Request, Teller},
};

/// Begin this task.
pub(super) fn create(context: &TaskContext) -> Result<Call, BuildError> {
    let connection = connection(context)?;
    // Refused here, as upstream does.
    if !connection.secrets.is_empty() {
        let names: Vec<&String> = connection.secrets.keys().collect();
        return Err(BuildError::bad_specification(format!(
            "the connection wants the secrets {names:?}, and nothing resolves secrets of connections"
        )));
    }
    let mut template = context.template.clone();
    if let Some(Target::Container(container)) = &mut template.target {
        let values = Values::of(context);
        for arg in &mut container.args {
            *arg = values.render(arg)?;
        }
    }
    let inputs = match &context.inputs {
        Err(why) if context.declares_inputs() => {
            let why = format!("the job needs the task's inputs: {why}");
            return Err(BuildError::bad_specification(why));
        }
        Err(_) => None,
        Ok(inputs) => inputs.as_ref(),
    };
    let inputs = inputs.map(|inputs| {
        let literals = inputs.literals.iter().map(|(name, value)| NamedLiteral {
            name: name.clone(),
            value: Some(value.clone()),
        });
        Inputs {
            literals: literals.collect(),
            ..Inputs::default()
        }
    });
    let request = CreateTaskRequest {
        inputs,
        output_prefix: context.paths.output_prefix.clone(),
        task_execution_metadata: Some(metadata(context)),
        connection: Some(connection),
        template: Some(template),
    };
    Ok(Call {
        category: Category::of(context),
        connector: None,
        request: Request::Create(Box::new(request)),
    })
}

/// The request for the state of a job.
pub(super) fn get(meta: &ResourceMeta) -> Call {
    let request = GetTaskRequest {
        resource_meta: meta.connector_meta.clone(),
        task_category: Some(task_category(&meta.category)),
        output_prefix: meta.output_prefix.clone(),
        connection: meta.connection.clone(),
    };
    Call {
        category: meta.category.clone(),
        connector: meta.connector(),
        request: Request::Get(Box::new(request)),
    }
}

/// End this job.
pub(super) fn delete(meta: &ResourceMeta) -> Call {
    let request = DeleteTaskRequest {
        resource_meta: meta.connector_meta.clone(),
        task_category: Some(task_category(&meta.category)),
        connection: meta.connection.clone(),
    };
    Call {
        category: meta.category.clone(),
        connector: meta.connector(),
        request: Request::Delete(Box::new(request)),
    }
}

/// What is remembered of a job that was begun.
pub(super) fn resource_meta(
    context: &TaskContext,
    response: &CreateTaskResponse,
    by: &Teller,
) -> ResourceMeta {
    ResourceMeta {
        connector: by.name.clone(),
        output_prefix: context.paths.output_prefix.clone(),
        connector_meta: response.resource_meta.clone(),
        category: Category::of(context),
        // The connection was valid when the job was begun.
        connection: connection(context).ok(),
    }
}

fn connection(context: &TaskContext) -> Result<Connection, BuildError> {
    match &context.template.custom {
        Some(_) => custom::read(&context.template),
        None => Ok(Connection::default()),
    }
}

fn task_category(category: &Category) -> TaskCategory {
    TaskCategory {
        name: category.task_type.clone(),
        version: category.version,
    }
}

fn metadata(context: &TaskContext) -> TaskExecutionMetadata {
    let run = WorkflowExecutionIdentifier {
        project: context.project.clone(),
        domain: context.domain.clone(),
        name: context.run_name.clone(),
        ..WorkflowExecutionIdentifier::default()
    };
    let security = context.template.security_context.as_ref();
    TaskExecutionMetadata {
        task_execution_id: Some(TaskExecutionIdentifier {
            task_id: context.template.id.clone(),
            node_execution_id: Some(NodeExecutionIdentifier {
                node_id: context.action_name.clone(),
                execution_id: Some(run),
            }),
            retry_attempt: context.attempt.saturating_sub(1),
        }),
        namespace: context.namespace.clone(),
        labels: context.labels.clone(),
        annotations: context.annotations.clone(),
        k8s_service_account: context.service_account.clone().unwrap_or_default(),
        environment_variables: context.env.clone(),
        max_attempts: i32::try_from(context.max_attempts).unwrap_or(i32::MAX),
        interruptible: context.is_interruptible,
        identity: security.and_then(|security| security.run_as.clone()),
        ..TaskExecutionMetadata::default()
    }
}
