//! The kinds of resources that plugins make. Each is watched as soon as the API server serves it; until then whoever
//! needs it waits, and says so.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, PoisonError, RwLock},
};

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use kube::{Client, core::WatchEvent};
use longshore_api::flyte::{LABEL_MANAGED, TRUE};
use longshore_core::{ObjectRef, Resource, Scope, Seen, UnknownCause};
use longshore_kit::{Cache, CacheFeed, Clock, ListWatch, Notes, RawObject, Update};
use longshore_plugins::{HeadPod, Plugin};
use serde_json::Value;

use crate::{
    facts::Facts,
    model::ActionKey,
    pod_events::{self, EVENT},
    service::{api, owner},
};

/// What makes a kind known to the API server.
const DEFINITION: Resource = Resource {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    scope: Scope::Cluster,
};

/// What plugins make, by kind; pods are always among them.
#[derive(Debug)]
pub(crate) struct Kinds {
    by_resource: BTreeMap<Resource, Kind>,
}

#[derive(Debug)]
struct Kind {
    cache: Arc<Cache<RawObject>>,
    /// `None` for pods that no plugin makes itself.
    plugin: Option<Arc<dyn Plugin>>,
    served: RwLock<Served>,
}

/// Whether the API server knows a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// Nobody has said yet.
    Unknown,
    No,
    Yes {
        takes_pod_templates: bool,
    },
}

impl Kinds {
    /// The kinds that these plugins make.
    pub(crate) fn of(makers: Vec<Arc<dyn Plugin>>) -> Self {
        let mut by_resource = BTreeMap::from([(Resource::POD, Kind::new(Resource::POD, None))]);
        for plugin in makers {
            let resource = plugin.resource();
            by_resource.insert(resource, Kind::new(resource, Some(plugin)));
        }
        Self { by_resource }
    }

    /// The cache of each kind.
    pub(crate) fn feeds(&self) -> impl Iterator<Item = (Resource, Arc<dyn CacheFeed>)> {
        let kinds = self.by_resource.iter();
        kinds.map(|(resource, kind)| {
            let feed: Arc<dyn CacheFeed> = kind.cache.clone();
            (*resource, feed)
        })
    }

    /// The cache of pods.
    pub(crate) fn pods(&self) -> Arc<Cache<RawObject>> {
        self.cache(Resource::POD).cloned().unwrap_or_default()
    }

    /// The cache of a kind.
    fn cache(&self, resource: Resource) -> Option<&Arc<Cache<RawObject>>> {
        self.by_resource.get(&resource).map(|kind| &kind.cache)
    }

    /// An object as it was seen last. Of a kind that is not served there are none.
    pub(crate) fn get(&self, target: &ObjectRef) -> Seen<Value> {
        match self.by_resource.get(&target.resource) {
            Some(kind) if kind.served() == Served::No => Seen::Absent,
            Some(kind) => to_value(kind.cache.get(&target.namespace, &target.name)),
            None => Seen::unknown(
                UnknownCause::NotWatched,
                format!("nothing watches {}", target.resource.plural),
            ),
        }
    }

    /// The head of a resource with many pods.
    pub(crate) fn head(&self, namespace: &str, head: &HeadPod) -> Seen<Value> {
        let Some(pods) = self.cache(Resource::POD) else {
            return Seen::unknown(UnknownCause::NotWatched, "nothing watches pods");
        };
        match head {
            HeadPod::Named(name) => to_value(pods.get(namespace, name)),
            HeadPod::Beginning(start) => match pods.beginning(namespace, start) {
                Seen::Present(pods) => {
                    let pods = pods.iter();
                    let pods: Vec<Value> = pods.filter_map(|pod| pod.to_value().ok()).collect();
                    head.select(&pods).cloned().into()
                }
                Seen::Absent => Seen::Absent,
                Seen::Unknown(why) => Seen::Unknown(why),
            },
        }
    }

    /// The definition that is missing, where the API server does not know a kind.
    pub(crate) fn missing(&self, resource: Resource) -> Option<String> {
        let kind = self.by_resource.get(&resource)?;
        (kind.served() == Served::No).then(|| definition_name(resource))
    }

    /// What its plugin said about the definition of a kind.
    pub(crate) fn takes_pod_templates(&self, resource: Resource) -> bool {
        let kind = self.by_resource.get(&resource);
        let yes = Served::Yes {
            takes_pod_templates: true,
        };
        kind.is_some_and(|kind| kind.served() == yes)
    }

    /// Follows everything but pods, and yields the actions that something happened to.
    pub(crate) fn follow(
        self: &Arc<Self>,
        watches: &Watches,
    ) -> impl Stream<Item = ActionKey> + Send + use<> {
        let others = self.by_resource.keys();
        let others = others.filter(|resource| **resource != Resource::POD);
        let followed = others.map(|resource| {
            let follow = Follow::new(Arc::clone(self), *resource, watches.clone());
            stream::unfold(follow, |mut follow| async move {
                let keys = follow.next().await;
                Some((stream::iter(keys), follow))
            })
            .flatten()
            .boxed()
        });
        stream::select_all(followed.collect::<Vec<_>>())
    }

    fn set(&self, resource: Resource, served: Served) {
        if let Some(kind) = self.by_resource.get(&resource) {
            *kind.served.write().unwrap_or_else(PoisonError::into_inner) = served;
        }
    }
}

impl Kind {
    fn new(resource: Resource, plugin: Option<Arc<dyn Plugin>>) -> Self {
        let served = if is_custom(resource) {
            Served::Unknown
        } else {
            Served::Yes {
                takes_pod_templates: false,
            }
        };
        Self {
            cache: Cache::new(),
            plugin,
            served: RwLock::new(served),
        }
    }

    fn served(&self) -> Served {
        *self.served.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a kind has a definition: Kubernetes' own groups have no domain.
fn is_custom(resource: Resource) -> bool {
    resource.group.contains('.')
}

fn definition_name(resource: Resource) -> String {
    format!("{}.{}", resource.plural, resource.group)
}

/// The same as JSON.
pub(crate) fn to_value(seen: Seen<Arc<RawObject>>) -> Seen<Value> {
    match seen {
        Seen::Present(object) => match object.to_value() {
            Ok(object) => Seen::Present(object),
            Err(error) => Seen::unknown(UnknownCause::NotUnderstood, error.to_string()),
        },
        Seen::Absent => Seen::Absent,
        Seen::Unknown(why) => Seen::Unknown(why),
    }
}

/// What watching a kind needs.
#[derive(Clone)]
pub(crate) struct Watches {
    pub(crate) client: Client,
    /// `None`: all.
    pub(crate) namespace: Option<String>,
    pub(crate) facts: Notes<ActionKey, Facts>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The watches of one kind: of its definition, then of its objects, then of Events about them.
struct Follow {
    kinds: Arc<Kinds>,
    resource: Resource,
    watches: Watches,
    definitions: Option<BoxStream<'static, Update<RawObject>>>,
    objects: Option<BoxStream<'static, Update<RawObject>>>,
    events: Option<BoxStream<'static, ActionKey>>,
}

impl Follow {
    fn new(kinds: Arc<Kinds>, resource: Resource, watches: Watches) -> Self {
        let mut follow = Self {
            kinds,
            resource,
            watches,
            definitions: None,
            objects: None,
            events: None,
        };
        if is_custom(resource) {
            // Definitions are large: none is kept.
            let of_kind = ListWatch::new(api(&follow.watches.client, DEFINITION, None))
                .fields(format!("metadata.name={}", definition_name(resource)))
                .into_cache(Cache::passing_on());
            follow.definitions = Some(of_kind.boxed());
        } else {
            follow.watch();
        }
        follow
    }

    /// The actions that the next change is about.
    async fn next(&mut self) -> Vec<ActionKey> {
        tokio::select! {
            Some(update) = next_of(&mut self.definitions) => self.defined(update),
            Some(update) = next_of(&mut self.objects) => self.changed(update),
            Some(key) = next_of(&mut self.events) => vec![key],
            else => pending().await,
        }
    }

    fn defined(&mut self, update: Update<RawObject>) -> Vec<ActionKey> {
        let served = match update {
            Update::Applied(definition) => self.served(&definition),
            Update::Deleted(_) => Served::No,
            // The list has shown that there is none; or it tells of what is known.
            Update::Reached(_) => match self.kind().map(Kind::served) {
                Some(Served::Unknown) => Served::No,
                Some(Served::No | Served::Yes { .. }) | None => return Vec::new(),
            },
        };
        let before = self.kind().map(Kind::served);
        self.kinds.set(self.resource, served);
        let definition = definition_name(self.resource);
        match served {
            Served::No if before != Some(Served::No) => {
                tracing::info!(definition, "a kind is not served; its tasks wait for it");
                self.forget()
            }
            Served::Yes { .. } if self.objects.is_none() => {
                tracing::debug!(definition, "a kind is served, and watched");
                self.watch();
                Vec::new()
            }
            Served::Unknown | Served::No | Served::Yes { .. } => Vec::new(),
        }
    }

    fn served(&self, definition: &RawObject) -> Served {
        let definition = definition.to_value().unwrap_or_default();
        let versions = definition["spec"]["versions"].as_array();
        let is_served = versions
            .into_iter()
            .flatten()
            .any(|version| version["name"] == self.resource.version && version["served"] == true);
        if !is_served {
            return Served::No;
        }
        let plugin = self.kind().and_then(|kind| kind.plugin.as_ref());
        Served::Yes {
            takes_pod_templates: plugin
                .is_some_and(|plugin| plugin.takes_pod_templates(&definition)),
        }
    }

    fn kind(&self) -> Option<&Kind> {
        self.kinds.by_resource.get(&self.resource)
    }

    /// Begins to watch the objects.
    fn watch(&mut self) {
        let namespace = self.watches.namespace.as_deref();
        if let Some(kind) = self.kinds.by_resource.get(&self.resource) {
            let managed = ListWatch::new(api(&self.watches.client, self.resource, namespace))
                .labels(format!("{LABEL_MANAGED}={TRUE}"))
                .into_cache(Arc::clone(&kind.cache));
            self.objects = Some(managed.boxed());
        }
    }

    /// The kind is gone, and its objects with it. Answers whose they were.
    fn forget(&mut self) -> Vec<ActionKey> {
        (self.objects, self.events) = (None, None);
        let Some(kind) = self.kinds.by_resource.get(&self.resource) else {
            return Vec::new();
        };
        let objects = kind.cache.all().present().cloned().unwrap_or_default();
        let mut owners = Vec::new();
        for object in objects {
            owners.extend(owner(&object));
            kind.cache
                .apply_event(WatchEvent::Deleted((*object).clone()));
        }
        owners
    }

    fn changed(&mut self, update: Update<RawObject>) -> Vec<ActionKey> {
        // An Event counts only where what it is about is known.
        if matches!(update, Update::Reached(_)) && self.events.is_none() {
            self.events = self.follow_events();
        }
        update
            .into_object()
            .and_then(|object| owner(&object))
            .into_iter()
            .collect()
    }

    fn follow_events(&self) -> Option<BoxStream<'static, ActionKey>> {
        let namespace = self.watches.namespace.as_deref();
        let events = ListWatch::new(api(&self.watches.client, EVENT, namespace))
            .fields(pod_events::about(self.resource))
            .into_cache(Cache::passing_on());
        let (facts, clock) = (self.watches.facts.clone(), Arc::clone(&self.watches.clock));
        let objects = Arc::clone(&self.kind()?.cache);
        Some(pod_events::follow(events, facts, objects, clock).boxed())
    }
}

/// The next item of a stream; never, where there is no stream.
async fn next_of<T>(stream: &mut Option<BoxStream<'static, T>>) -> Option<T> {
    match stream {
        Some(stream) => stream.next().await,
        None => pending().await,
    }
}
