//! The executor of TaskActions, beside the scheduler.

use std::sync::Arc;

use longshore_api::flyte::TASK_ACTION_CRD;
use longshore_core::{ObjectRef, Resource, Scope};
use longshore_kit::{Metrics, Requests, SystemClock, Tasks};
use longshore_plugins::Registry;
use longshore_tasks::TasksConfig;
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

/// Installs the resource, and runs what asks for it. Returns when TaskActions can be applied.
pub(super) async fn start(
    client: kube::Client,
    metrics: &Metrics,
    tasks: &Tasks,
) -> Result<(), CliError> {
    install(client.clone()).await?;
    let config = TasksConfig {
        metrics: metrics.clone(),
        ..TasksConfig::default()
    };
    let registry = Registry::new(&config.plugins);
    let registry = registry.map_err(|source| CliError::engine("the plugins of tasks", source))?;
    let executor = longshore_tasks::Tasks::new(config, Arc::new(registry), Arc::new(SystemClock));
    tasks.spawn("tasks", executor.run(client, tasks.shutdown()));
    Ok(())
}

/// Makes the resource known to the API server. One that is there from an earlier start stays.
async fn install(client: kube::Client) -> Result<(), CliError> {
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
