//! The PodTemplates that pods are built on (task action spec §11.7): watched from the first task that names one.

use std::sync::Arc;

use longshore_core::{Resource, Scope, Seen};
use longshore_kit::{Cache, Kind, Namespaces, RawObject, Update, Wiring};
use serde_json::Value;
use tokio::sync::watch;

use crate::{kinds::to_value, model::ActionKey};

/// What is watched.
const POD_TEMPLATE: Resource = Resource {
    group: "",
    version: "v1",
    kind: "PodTemplate",
    plural: "podtemplates",
    scope: Scope::Namespaced,
};

/// PodTemplates by name.
#[derive(Debug)]
pub(crate) struct PodTemplates {
    cache: Arc<Cache<RawObject>>,
    is_wanted: watch::Sender<bool>,
    /// The namespace whose templates serve all others.
    shared: Option<String>,
    /// Where templates are watched.
    namespaces: Namespaces,
}

impl PodTemplates {
    /// Nothing is watched yet.
    pub(crate) fn new(shared: Option<String>, namespaces: Namespaces) -> Self {
        Self {
            cache: Cache::new(),
            is_wanted: watch::Sender::new(false),
            shared,
            namespaces,
        }
    }

    /// The template of this name: of the namespace, or of the executor's own. The first question begins the watch.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Seen<Value> {
        self.is_wanted.send_if_modified(|is_wanted| {
            let is_first = !*is_wanted;
            *is_wanted = true;
            is_first
        });
        let shared = self.shared.as_deref();
        let shared = shared.filter(|namespace| self.namespaces.contains(namespace));
        for namespace in [Some(namespace), shared].into_iter().flatten() {
            let found = to_value(self.cache.get(namespace, name));
            if !found.is_absent() {
                return found;
            }
        }
        Seen::Absent
    }

    /// Watches them, once an action has asked for one. A change leads to no round: a pod that was built stays as it is.
    pub(crate) fn wire(&self, wiring: Wiring<ActionKey>) -> Wiring<ActionKey> {
        let templates = Kind::new(POD_TEMPLATE, Arc::clone(&self.cache));
        let templates = templates.once(self.is_wanted.subscribe());
        wiring.watched(templates, |_: Update<RawObject>| None)
    }
}
