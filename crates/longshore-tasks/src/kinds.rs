//! The kinds of resources that plugins make. Each is watched as soon as the API server serves it; until then a
//! task that needs it waits, and its status says so.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use longshore_api::flyte::{LABEL_MANAGED, TRUE};
use longshore_core::{ObjectRef, Resource, Seen, UnknownCause};
use longshore_kit::{Cache, Clock, Definition, Kind, Notes, RawObject, Wiring};
use longshore_plugins::{HeadPod, Plugin};
use serde_json::Value;

use crate::{facts::Facts, model::ActionKey, pod_events, service::owner};

/// What plugins make, by kind; pods are always among them.
#[derive(Debug)]
pub(crate) struct Kinds {
    by_resource: BTreeMap<Resource, Made>,
}

#[derive(Debug)]
struct Made {
    cache: Arc<Cache<RawObject>>,
    /// `None` where Kubernetes itself has the kind.
    definition: Option<Arc<Definition>>,
    /// What the plugin says about the definition.
    takes_pod_templates: Arc<AtomicBool>,
}

impl Kinds {
    /// The kinds that these plugins make.
    pub(crate) fn of(makers: Vec<Arc<dyn Plugin>>) -> Self {
        let mut by_resource = BTreeMap::from([(Resource::POD, Made::default())]);
        for plugin in makers {
            let resource = plugin.resource();
            by_resource.insert(resource, Made::by(plugin));
        }
        Self { by_resource }
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
            Some(kind) if kind.missing().is_some() => Seen::Absent,
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
        let missing = self.by_resource.get(&resource)?.missing()?;
        Some(missing.name())
    }

    /// What its plugin said about the definition of a kind.
    pub(crate) fn takes_pod_templates(&self, resource: Resource) -> bool {
        let kind = self.by_resource.get(&resource);
        kind.is_some_and(|kind| kind.takes_pod_templates.load(Relaxed))
    }

    /// Watches the objects of every kind but pods, while the API server serves it, and then the Events about them.
    pub(crate) fn wire(
        &self,
        mut wiring: Wiring<ActionKey>,
        facts: &Notes<ActionKey, Facts>,
        clock: &Arc<dyn Clock>,
    ) -> Wiring<ActionKey> {
        let others = self.by_resource.iter();
        for (resource, made) in others.filter(|(resource, _)| **resource != Resource::POD) {
            let mut objects = managed(*resource, &made.cache);
            let mut events = pod_events::about(*resource).after(&made.cache);
            if let Some(definition) = &made.definition {
                objects = objects.defined_by(definition);
                events = events.defined_by(definition);
            }
            let noted =
                pod_events::noted(facts.clone(), Arc::clone(&made.cache), Arc::clone(clock));
            wiring = wiring.owned(objects, owner).watched(events, noted);
        }
        wiring
    }
}

/// The objects of a kind that an executor has made.
pub(crate) fn managed(resource: Resource, cache: &Arc<Cache<RawObject>>) -> Kind<RawObject> {
    Kind::new(resource, Arc::clone(cache)).labels(format!("{LABEL_MANAGED}={TRUE}"))
}

impl Default for Made {
    fn default() -> Self {
        Self {
            cache: Cache::new(),
            definition: None,
            takes_pod_templates: Arc::default(),
        }
    }
}

impl Made {
    /// What this plugin makes.
    fn by(plugin: Arc<dyn Plugin>) -> Self {
        let mut made = Self::default();
        let resource = plugin.resource();
        // Kubernetes' own groups have no domain.
        if resource.group.contains('.') {
            let takes = Arc::clone(&made.takes_pod_templates);
            made.definition = Some(Definition::new(resource, move |definition| {
                takes.store(plugin.takes_pod_templates(definition), Relaxed);
            }));
        }
        made
    }

    /// Its definition, where the API server does not serve the kind.
    fn missing(&self) -> Option<&Arc<Definition>> {
        let definition = self.definition.as_ref();
        definition.filter(|definition| definition.is_missing())
    }
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
