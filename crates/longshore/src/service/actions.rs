//! The executor of TaskActions.

use std::sync::Arc;

use longshore_api::flyte::TASK_ACTION_CRD;
use longshore_core::{ObjectRef, Resource, Scope};
use longshore_kit::{Metrics, Requests, SystemClock};
use longshore_plugins::Registry;
use longshore_tasks::{Settings, TasksConfig};
use serde_json::Value;

use crate::error::CliError;

/// `customresourcedefinitions.apiextensions.k8s.io`.
const DEFINITION: Resource = Resource {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    scope: Scope::Cluster,
};

/// The executor of the actions of one namespace, or of all.
///
/// Whatever `settings` say is plugged in here: who is told (`events`), where outputs are cached (`catalog`), and where
/// inputs and outputs are (`storage`).
pub(crate) fn executor(
    settings: Settings,
    namespace: Option<String>,
    metrics: &Metrics,
) -> Result<longshore_tasks::Tasks, CliError> {
    let config = TasksConfig {
        namespace,
        metrics: metrics.clone(),
        ..settings.tasks
    };
    let registry = Registry::new(&config.plugins);
    let registry = registry.map_err(|source| CliError::engine("the plugins of tasks", source))?;
    Ok(longshore_tasks::Tasks::new(
        config,
        Arc::new(registry),
        Arc::new(SystemClock),
    ))
}

/// Makes the resource known to the API server. One that is there from an earlier start stays.
pub(crate) async fn install(client: kube::Client) -> Result<(), CliError> {
    const PART: &str = "the TaskAction resource";
    let definition: Value =
        serde_saphyr::from_str(TASK_ACTION_CRD).map_err(|source| CliError::engine(PART, source))?;
    let target = ObjectRef {
        resource: DEFINITION,
        namespace: String::new(),
        name: definition["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        uid: None,
    };
    match Requests::new(client).create(&target, &definition).await {
        Err(error) if error.is_already_exists() => Ok(()),
        other => other
            .map(drop)
            .map_err(|source| CliError::engine(PART, source)),
    }
}
