//! How the executor behaves: upstream's section `executor`, with upstream's defaults.

mod settings;
mod webhook;

pub use settings::{CatalogSettings, EventsSettings, Settings};
pub use webhook::WebhookSettings;

use std::{sync::Arc, time::Duration};

use longshore_kit::{Metrics, Namespaces};
use longshore_object_store::Storage;
use longshore_plugins::Config;

use crate::ActionMeasures;

/// How the executor behaves.
#[derive(Clone, Debug)]
pub struct TasksConfig {
    /// The namespaces whose actions are run.
    pub namespaces: Namespaces,
    /// The executor's own namespace (`POD_NAMESPACE`, or `actions.kubernetes.namespace`), whose PodTemplates serve all
    /// others; `None` for none. It has to be among those whose actions are run: an executor sees no other one.
    pub shared_namespace: Option<String>,
    /// What decisions go by.
    pub policy: Policy,
    /// What plugins are configured with.
    pub plugins: Config,
    /// `executor.maxConcurrentReconciles`: rounds at the same time. Default: 64, not the peer's 512: what a round has
    /// read is in memory, and what it waits for is mostly its turn to write.
    pub concurrency: usize,
    /// Removal of actions that ended long ago.
    pub collection: Collection,
    /// The section `storage`: where inputs and outputs are. Default: files of this machine.
    pub storage: Arc<Storage>,
    /// Where rounds are counted.
    pub metrics: Metrics,
    /// Where actions are counted.
    pub measures: ActionMeasures,
}

/// What decisions go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `executor.maxSystemFailures`: system failures in a row that an attempt survives. Default: 3.
    pub max_system_failures: u32,
    /// `executor.requeueDuration`: after this time at the latest an action whose code does not run yet is looked at
    /// again. Default: 10 s.
    pub requeue: Duration,
    /// `executor.cluster`: the name of this cluster in events.
    pub cluster: String,
}

/// Removal of actions that ended long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    /// `executor.gc.interval`: between two passes; zero for none. Default: 30 minutes.
    pub interval: Duration,
    /// `executor.gc.maxTTL`: how long an action stays after its end. Default: 1 hour.
    pub ttl: Duration,
}

impl Default for TasksConfig {
    fn default() -> Self {
        Self {
            namespaces: Namespaces::All,
            shared_namespace: None,
            policy: Policy::default(),
            plugins: Config::default(),
            concurrency: 64,
            collection: Collection::default(),
            storage: Arc::default(),
            metrics: Metrics::new(),
            measures: ActionMeasures::default(),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_system_failures: 3,
            requeue: Duration::from_secs(10),
            cluster: String::new(),
        }
    }
}

impl Default for Collection {
    fn default() -> Self {
        Self {
            interval: Duration::from_mins(30),
            ttl: Duration::from_hours(1),
        }
    }
}
