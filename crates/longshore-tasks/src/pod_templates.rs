//! The PodTemplates that pods are built on (task action spec §11.7): watched from the first task that names one.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use kube::Client;
use longshore_core::{Resource, Scope, Seen};
use longshore_kit::{Cache, ListWatch, RawObject};
use serde_json::Value;
use tokio::sync::watch;

use crate::{kinds::to_value, service::api};

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
}

impl PodTemplates {
    /// Nothing is watched yet.
    pub(crate) fn new(shared: Option<String>) -> Self {
        Self {
            cache: Cache::new(),
            is_wanted: watch::Sender::new(false),
            shared,
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
        for namespace in [Some(namespace), shared].into_iter().flatten() {
            let found = to_value(self.cache.get(namespace, name));
            if !found.is_absent() {
                return found;
            }
        }
        Seen::Absent
    }

    /// Keeps them up to date, once somebody has asked for one. Each item is a change that leads to no round: a pod
    /// that was built stays as it is.
    pub(crate) fn follow(
        &self,
        client: &Client,
        namespace: Option<&str>,
    ) -> impl Stream<Item = ()> + Send + use<> {
        let mut is_wanted = self.is_wanted.subscribe();
        let templates = ListWatch::new(api(client, POD_TEMPLATE, namespace));
        let cache = Arc::clone(&self.cache);
        stream::once(async move {
            let _ = is_wanted.wait_for(|is_wanted| *is_wanted).await;
        })
        .flat_map(move |()| templates.clone().into_cache(Arc::clone(&cache)))
        .map(drop)
    }
}
