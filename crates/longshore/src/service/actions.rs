//! The executor of TaskActions.

use std::sync::Arc;

use longshore_api::flyte::TASK_ACTION_CRD;
use longshore_connect::ConnectClient;
use longshore_core::{ObjectRef, Resource, Scope};
use longshore_kit::{Metrics, Namespaces, Requests, SystemClock};
use longshore_object_store::Storage;
use longshore_outbound::Permit;
use longshore_plugins::Registry;
use longshore_tasks::{
    Settings, TasksConfig,
    catalog::RemoteCatalog,
    events::{BatchLimits, RemoteEvents},
    remote::GrpcConnectors,
};
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

/// The executor of the actions of these namespaces, whose inputs and outputs are in `storage`.
///
/// `settings` select the other parts: the event sink, the catalog for cached outputs, and the connectors. Requests
/// are sent to them for as long as `permit` holds.
pub(crate) fn executor(
    settings: Settings,
    namespaces: Namespaces,
    metrics: &Metrics,
    storage: Arc<Storage>,
    permit: &Permit,
) -> Result<longshore_tasks::Tasks, CliError> {
    let config = TasksConfig {
        namespaces,
        metrics: metrics.clone(),
        storage,
        ..settings.tasks
    };
    let registry = Registry::new(&config.plugins);
    let registry = registry.map_err(|source| CliError::engine("the plugins of tasks", source))?;
    let connectors = GrpcConnectors::new(&config.plugins.connector, permit);
    let connectors = connectors.map_err(|source| CliError::engine("the connectors", source))?;
    let clock = Arc::new(SystemClock);
    let executor = longshore_tasks::Tasks::new(config, Arc::new(registry), clock);
    let mut executor = executor.with_connectors(Arc::new(connectors));
    if let Some(url) = &settings.events.url {
        let events = RemoteEvents::new(client_of(url, "the events service", permit)?);
        executor = executor.with_batched_events(Arc::new(events), BatchLimits::default());
    }
    if let Some(url) = &settings.catalog.url {
        let catalog = RemoteCatalog::new(client_of(url, "the cache service", permit)?);
        executor = executor.with_catalog(Arc::new(catalog));
    }
    Ok(executor)
}

fn client_of(url: &str, what: &'static str, permit: &Permit) -> Result<ConnectClient, CliError> {
    ConnectClient::new(url, permit.clone()).map_err(|source| CliError::engine(what, source))
}

/// Makes TaskActions known to the API server.
pub(crate) async fn install(client: kube::Client) -> Result<(), CliError> {
    install_definition(client, "the TaskAction resource", TASK_ACTION_CRD).await
}

/// Makes a resource known to the API server. One that is there from an earlier start stays.
pub(crate) async fn install_definition(
    client: kube::Client,
    part: &'static str,
    definition: &str,
) -> Result<(), CliError> {
    // What is written as JSON is large, and read faster as such.
    let definition: Value = if definition.starts_with('{') {
        serde_json::from_str(definition).map_err(|source| CliError::engine(part, source))?
    } else {
        serde_saphyr::from_str(definition).map_err(|source| CliError::engine(part, source))?
    };
    let target = ObjectRef {
        resource: DEFINITION,
        namespace: String::new(),
        name: definition["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        uid: None,
    };
    create_once(client, part, &target, &definition).await
}

/// Creates an object. One that is there stays.
pub(crate) async fn create_once(
    client: kube::Client,
    part: &'static str,
    target: &ObjectRef,
    object: &Value,
) -> Result<(), CliError> {
    match Requests::new(client).create(target, object).await {
        Err(error) if error.is_already_exists() => Ok(()),
        other => other
            .map(drop)
            .map_err(|source| CliError::engine(part, source)),
    }
}
