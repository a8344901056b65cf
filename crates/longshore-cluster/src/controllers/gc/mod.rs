//! Deletes objects whose owners no longer exist.
//!
//! Watches the metadata of every resource. An object whose owners are all gone is deleted; an owner
//! deleted in the foreground waits for its blocking dependents; an owner deleted with `orphan`
//! leaves its dependents behind. Before anything is deleted, object and owners are read again from
//! the API and compared by uid.

mod collect;
mod graph;

use std::{collections::BTreeSet, sync::Arc};

use collect::Collector;
use futures::{
    FutureExt, StreamExt,
    stream::{BoxStream, SelectAll},
};
use graph::{Graph, Node, Uid};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Config, Event, watcher},
    },
};

use super::{
    queue::Queue,
    resources::{Listed, discover},
};

type Item = (usize, watcher::Result<Event<PartialObjectMeta>>);

/// Runs for ever; starts over when a definition brings or takes a resource.
pub(super) async fn run(client: Client) {
    loop {
        let resources: Arc<[Listed]> = owned_resources(&client).await.into();
        tokio::select! {
            () = collect(client.clone(), Arc::clone(&resources)) => {}
            () = other_resources(&client, &resources) => {}
        }
    }
}

async fn owned_resources(client: &Client) -> Vec<Listed> {
    let mut resources = discover(client).await;
    // Events have no owner references, and there are many of them.
    resources.retain(|resource| resource.api.plural != "events");
    resources
}

/// Resolves when the API has other resources than these.
async fn other_resources(client: &Client, known: &[Listed]) {
    let names = |resources: &[Listed]| -> Vec<(String, String)> {
        let name = |it: &Listed| (it.api.api_version.clone(), it.api.plural.clone());
        resources.iter().map(name).collect()
    };
    let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client.clone());
    let mut events = watcher(definitions, Config::default())
        .default_backoff()
        .boxed();
    while let Some(event) = events.next().await {
        let may_differ = matches!(
            event,
            Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone)
        );
        if may_differ && names(&owned_resources(client).await) != names(known) {
            return;
        }
    }
}

/// Collects among these resources; runs for ever.
async fn collect(client: Client, resources: Arc<[Listed]>) {
    let mut events: SelectAll<BoxStream<'static, Item>> = SelectAll::new();
    for (index, resource) in resources.iter().enumerate() {
        let api: Api<PartialObjectMeta> = Api::all_with(client.clone(), &resource.api);
        let stream = watcher(api, Config::default()).default_backoff();
        events.push(stream.map(move |event| (index, event)).boxed());
    }
    let collector = Collector::new(client, Arc::clone(&resources));
    let mut graph = Graph::default();
    let mut queue = Queue::new();
    let mut unlisted: BTreeSet<usize> = (0..resources.len()).collect();
    loop {
        // Nothing is judged before every resource has been listed once: until then owners only seem
        // to be absent.
        let is_ready = unlisted.is_empty();
        tokio::select! {
            biased;
            Some((resource, event)) = events.next() => {
                take(&mut graph, &mut queue, &mut unlisted, resource, event);
                while let Some(Some((resource, event))) = events.next().now_or_never() {
                    take(&mut graph, &mut queue, &mut unlisted, resource, event);
                }
            }
            uid = queue.next(), if is_ready => examine(&collector, &graph, &mut queue, uid).await,
        }
    }
}

/// Takes one watch event and queues what it affects.
fn take(
    graph: &mut Graph,
    queue: &mut Queue<Uid>,
    unlisted: &mut BTreeSet<usize>,
    resource: usize,
    event: watcher::Result<Event<PartialObjectMeta>>,
) {
    let affected = match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => {
            let node = Node::of(resource, &object.metadata);
            graph.apply(object.metadata.uid.unwrap_or_default(), node)
        }
        Ok(Event::Delete(object)) => graph.remove(&object.metadata.uid.unwrap_or_default()),
        Ok(Event::Init) => {
            graph.start_listing(resource);
            Vec::new()
        }
        Ok(Event::InitDone) => {
            unlisted.remove(&resource);
            graph.finish_listing(resource)
        }
        Err(error) => {
            tracing::debug!(%error, "watch failed, starting again");
            Vec::new()
        }
    };
    affected.into_iter().for_each(|uid| queue.add(uid));
}

async fn examine(collector: &Collector, graph: &Graph, queue: &mut Queue<Uid>, uid: Uid) {
    match collector.examine(graph, &uid).await {
        Ok(further) => {
            queue.succeed(&uid);
            further.into_iter().for_each(|uid| queue.add(uid));
        }
        Err(error) => {
            tracing::debug!(%error, uid, "collection failed, trying again");
            queue.retry(uid);
        }
    }
}
