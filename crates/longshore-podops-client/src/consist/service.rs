//! The controller, running: its watches and its loop.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, Resource as _};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL};
use longshore_core::{Resource, Seen};
use longshore_kit::{
    Applier, Cache, CacheFeed, Clock, ListWatch, Metrics, RawObject, Runner, Update, api_resource,
};
use tokio_util::sync::CancellationToken;

use super::{
    controller::{Consist, has_left_something},
    model::{Employer, EmployerKey},
    table::Table,
};

/// The configuration of the controller.
#[derive(Clone, Debug)]
pub struct ConsistConfig {
    /// Only this namespace; all where it is `None`. Default: all.
    pub namespace: Option<String>,
    /// Rounds at the same time. Default: 5, upstream's.
    pub concurrency: usize,
    /// The metrics of the rounds. Default: metrics that no registry reads.
    pub metrics: Metrics,
}

impl Default for ConsistConfig {
    fn default() -> Self {
        Self {
            namespace: None,
            concurrency: 5,
            metrics: Metrics::default(),
        }
    }
}

/// Keeps the tables of employers in step with their pods, until `shutdown`.
///
/// *Flow*: the employer gets its finalizer; its pods expect theirs; the table is changed; pods in it get the finalizer, pods
/// that left it lose it. Of an employer that goes, or takes part no more, all of that is taken back.
///
/// *Guarantees*: no pod loses the finalizer while the table, as it says itself, has it with traffic.
///
/// *Assumptions*: one process runs it at a time. It may do to pods `list`, `watch`, `patch`; to employers the same and
/// `get`; to Events of `events.k8s.io` `create` and `patch`; and whatever the table needs.
///
/// *Cancellation*: after `shutdown` no round starts, and running ones have 30 s to finish. Dropping the future is like a
/// crash: nothing is lost.
pub async fn run<T: Table>(
    table: T,
    config: ConsistConfig,
    client: Client,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
) {
    let (resource, name) = (table.employers(), table.name());
    let consist = Arc::new(Consist {
        table: Arc::new(table),
        employers: Cache::new(),
        pods: Cache::new(),
        failures: Mutex::new(BTreeMap::new()),
    });
    let woken = watch(&client, &config, &consist);
    let feeds: [(Resource, Arc<dyn CacheFeed>); 2] = [
        (Resource::POD, consist.pods.clone()),
        (resource, consist.employers.clone()),
    ];
    let applier = Applier::new(client, name, feeds).with_metrics(config.metrics);
    let runner = Runner::new(consist, applier, clock).concurrency(config.concurrency);
    Box::pin(runner.run(woken, shutdown)).await;
}

/// The employers that changes of themselves or of pods are about.
fn watch<T: Table>(
    client: &Client,
    config: &ConsistConfig,
    consist: &Arc<Consist<T>>,
) -> impl Stream<Item = EmployerKey> + Send + use<T> {
    let api = |resource: Resource| -> Api<RawObject> {
        let kind = api_resource(resource);
        match config.namespace.as_deref() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        }
    };
    // Not by their label: one that has lost it has something to take back.
    let employers = ListWatch::new(api(consist.table.employers()));
    let employers = employers.into_cache(consist.employers.clone());
    let employers = employers.map(|update| update.into_object().map(|it| key_of(&it)));
    let employers = employers.filter_map(std::future::ready);
    let pods = ListWatch::new(api(Resource::POD)).labels(format!("{LABEL_CONTROL}={CONTROLLED}"));
    let pods = pods.into_cache(consist.pods.clone());
    let consist = Arc::clone(consist);
    let pods = pods.map(move |update| stream::iter(concerned(&consist, update)));
    stream::select(employers, pods.flatten())
}

/// Whose a pod is, or was.
fn concerned<T: Table>(consist: &Consist<T>, update: Update<RawObject>) -> Vec<EmployerKey> {
    let object = update.into_object();
    let pod = object.and_then(|object| object.read::<Pod>().ok());
    let Some(pod) = pod else {
        return Vec::new();
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let Seen::Present(employers) = consist.employers.beginning(namespace, "") else {
        return Vec::new(); // Each is told of once it is seen.
    };
    let concerned = employers.iter().filter_map(|object| {
        let value = object.to_value().ok()?;
        let employer = Employer::of(consist.table.employers(), &value);
        let is_ours = employer.is_wanted || employer.is_held();
        let is_its = consist.table.employs(&value, &pod) || has_left_something(&employer, &pod);
        (is_ours && is_its).then(|| key_of(object))
    });
    concerned.collect()
}

fn key_of(object: &RawObject) -> EmployerKey {
    let metadata = object.meta();
    EmployerKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
