//! The loop that the controllers of workloads share.
//!
//! One watch for each kind says which objects may need a round ([`triggers`]); a round then reads
//! the API itself, decides on that alone and acts. No round decides on what a watch has shown, so
//! no round can mistake its own last write for missing. Rounds of one object never overlap; rounds
//! of different objects do. A round that waits for a slow admission webhook delays no other object.

mod body;
pub(crate) mod claim;
pub(crate) mod hands;
pub(crate) mod pods;
pub(crate) mod status;
pub(crate) mod template;
mod triggers;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered, SelectAll},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::{Endpoints, Pod, ReplicationController, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Resource,
    api::DynamicObject,
    core::PartialObjectMeta,
    discovery::ApiResource,
    runtime::{
        WatchStreamExt,
        watcher::{Config, watcher},
    },
};

pub(crate) use body::{Body, Malformed, controller_of, selector_of_labels};
use hands::Hands;
pub(crate) use triggers::{FINALIZER_JOB_TRACKING, Key, Kind, LABEL_SERVICE_NAME};
use triggers::{Note, Source, Triggers};

use super::{
    deployment, endpoint_slices, job,
    queue::Queue,
    replica_set::{self, Keeper},
    stateful_set,
};
use crate::chain::chain;

/// Rounds at the same time.
const MAX_ROUNDS: usize = 32;

/// When an object needs a look although nothing has happened to it.
pub(crate) type Again = Option<Duration>;

/// Why a round did not get through; it is run again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoundError {
    /// A request failed.
    #[error("the API refused a request")]
    Api(#[from] kube::Error),
    /// The object is not what its kind says.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

type Round = BoxFuture<'static, (Key, Result<Again, RoundError>)>;

/// Runs for ever.
pub(super) async fn run(client: Client) {
    let mut notes = notes(&client);
    let hands = Arc::new(Hands::new(client));
    let mut triggers = Triggers::default();
    let mut queue: Queue<Key> = Queue::new();
    let mut rounds = Rounds::default();
    loop {
        let has_room = rounds.running.len() < MAX_ROUNDS;
        tokio::select! {
            biased;
            Some(note) = notes.next() => {
                triggers.take(note).into_iter().for_each(|key| queue.add(key));
                while let Some(Some(note)) = notes.next().now_or_never() {
                    triggers.take(note).into_iter().for_each(|key| queue.add(key));
                }
            }
            Some((key, outcome)) = rounds.running.next() => rounds.settle(key, outcome, &mut queue),
            key = queue.next(), if has_room => rounds.start(&hands, key, &triggers),
        }
    }
}

/// Rounds under way.
#[derive(Default)]
struct Rounds {
    running: FuturesUnordered<Round>,
    busy: BTreeSet<Key>,
    /// Objects that something happened to while their round was under way.
    missed: BTreeSet<Key>,
}

impl Rounds {
    fn start(&mut self, hands: &Arc<Hands>, key: Key, triggers: &Triggers) {
        if !self.busy.insert(key.clone()) {
            self.missed.insert(key);
            return;
        }
        let strays = triggers.strays_of(&key);
        let hands = Arc::clone(hands);
        self.running.push(Box::pin(async move {
            let outcome = round(&hands, &key, strays).await;
            (key, outcome)
        }));
    }

    fn settle(&mut self, key: Key, outcome: Result<Again, RoundError>, queue: &mut Queue<Key>) {
        self.busy.remove(&key);
        if self.missed.remove(&key) {
            queue.add(key.clone());
        }
        match outcome {
            Ok(again) => {
                queue.succeed(&key);
                if let Some(wait) = again {
                    queue.add_after(key, wait);
                }
            }
            Err(error) => {
                let why = chain(&error);
                tracing::debug!(kind = ?key.kind, namespace = key.namespace, name = key.name, why, "round failed, trying again");
                queue.retry(key);
            }
        }
    }
}

async fn round(hands: &Hands, key: &Key, strays: Vec<String>) -> Result<Again, RoundError> {
    let now = now();
    match key.kind {
        Kind::ReplicaSet => replica_set::round(hands, key, Keeper::ReplicaSet, strays, now).await,
        Kind::ReplicationController => {
            replica_set::round(hands, key, Keeper::ReplicationController, strays, now).await
        }
        Kind::Deployment => deployment::round(hands, key, now).await,
        Kind::StatefulSet => stateful_set::round(hands, key, strays, now).await,
        Kind::Job => job::round(hands, key, strays, now).await,
        Kind::Service => endpoint_slices::round(hands, key).await,
    }
}

/// The events of all watches.
fn notes(client: &Client) -> SelectAll<BoxStream<'static, Note>> {
    let mut notes = SelectAll::new();
    notes.push(of_owners::<Deployment>(client, Kind::Deployment));
    notes.push(of_owners::<ReplicaSet>(client, Kind::ReplicaSet));
    notes.push(of_owners::<ReplicationController>(
        client,
        Kind::ReplicationController,
    ));
    notes.push(of_owners::<StatefulSet>(client, Kind::StatefulSet));
    notes.push(of_owners::<Job>(client, Kind::Job));
    notes.push(of_owners::<Service>(client, Kind::Service));
    notes.push(of_parts::<Pod>(client, Source::Pod));
    notes.push(of_parts::<EndpointSlice>(client, Source::Slice));
    notes.push(of_parts::<Endpoints>(client, Source::Endpoints));
    notes
}

/// Objects whose selector counts.
fn of_owners<K: Resource<DynamicType = ()>>(
    client: &Client,
    kind: Kind,
) -> BoxStream<'static, Note> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    let events = watcher(api, Config::default()).default_backoff();
    let note = move |event| {
        Note::of(Source::Owner(kind), event, |object: DynamicObject| {
            let selector = triggers::selector_of(kind, &object.data);
            (object.metadata, selector)
        })
    };
    events.map(note).boxed()
}

/// Objects of which only the metadata counts.
fn of_parts<K>(client: &Client, source: Source) -> BoxStream<'static, Note>
where
    K: Resource<DynamicType = ()>,
{
    let api: Api<PartialObjectMeta> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    let events = watcher(api, Config::default()).default_backoff();
    let note = move |event| {
        Note::of(source, event, |object: PartialObjectMeta| {
            (object.metadata, None)
        })
    };
    events.map(note).boxed()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a controller beside the server, which has no clock of its own"
)]
fn now() -> Timestamp {
    Timestamp::now()
}
