//! Flyte's executor beside the scheduler under test: what runs TaskActions.

use std::{collections::BTreeMap, sync::Arc};

use kube::Client;
use longshore_api::flyte::TASK_ACTION_CRD;
use longshore_kit::Clock;
use longshore_plugins::{PodPlugin, Registry, Runner};
use longshore_tasks::{Tasks, TasksConfig};
use longshore_test::{Place, install_definition};
use tokio_util::sync::CancellationToken;

/// Makes TaskActions known to the API server, and runs them to the end of the test.
pub(crate) async fn start(place: &Place, clock: Arc<dyn Clock>) {
    install(&place.client()).await;
    let config = TasksConfig::default();
    // The stories have no other, and each would watch for its definition.
    let pod = Runner::Resource(Arc::new(PodPlugin::new(Arc::new(config.plugins.clone()))));
    let plugins = Registry::of(&[pod], &BTreeMap::new()).unwrap();
    let executor = Tasks::new(config, Arc::new(plugins), clock);
    tokio::spawn(executor.run(place.client(), CancellationToken::new()));
}

pub(crate) async fn install(client: &Client) {
    install_definition(client, TASK_ACTION_CRD).await;
}
