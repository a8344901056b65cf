//! Whether the API server serves a kind yet.

use std::{fmt, sync::Arc};

use futures::StreamExt;
use kube::Client;
use longshore_core::{Resource, Scope};
use serde_json::Value;
use tokio::sync::watch;

use super::Kind;
use crate::{
    cache::{ALL, Cache, Update},
    raw::RawObject,
};

const DEFINITION: Resource = Resource {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    scope: Scope::Cluster,
};

/// The `CustomResourceDefinition` of a kind, which may be installed later, or removed.
pub struct Definition {
    resource: Resource,
    served: watch::Sender<Served>,
    on_served: Box<dyn Fn(&Value) + Send + Sync>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// Definitions have not been listed yet.
    Unknown,
    No,
    Yes,
}

impl Definition {
    /// The definition of a resource; nothing is known of it yet. `on_served` reads each version of it that serves the
    /// resource, before the first object is listed.
    pub fn new(
        resource: Resource,
        on_served: impl Fn(&Value) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            resource,
            served: watch::Sender::new(Served::Unknown),
            on_served: Box::new(on_served),
        })
    }

    /// Its name, such as `rayclusters.ray.io`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.resource.plural, self.resource.group)
    }

    /// Whether the API server is known not to serve the kind.
    pub fn is_missing(&self) -> bool {
        *self.served.borrow() == Served::No
    }

    /// Watches the definition until the API server serves the kind, where no [`Wiring`](super::Wiring) watches it.
    ///
    /// *Cancellation*: dropping the future ends the watch.
    pub async fn until_served(&self, client: &Client) {
        let kind = self.kind();
        let what = kind.list_watch(client, ALL);
        let mut updates = what.into_cache(Arc::clone(&kind.cache)).boxed();
        while *self.served.borrow() != Served::Yes {
            let Some(update) = updates.next().await else {
                return;
            };
            self.take(update);
        }
    }

    /// What is watched of it. Definitions are large: none is kept.
    pub(super) fn kind(&self) -> Kind<RawObject> {
        let name = format!("metadata.name={}", self.name());
        Kind::new(DEFINITION, Cache::passing_on()).fields(name)
    }

    pub(super) fn take(&self, update: Update<RawObject>) {
        let served = match update {
            Update::Applied(definition) => self.read(&definition.to_value().unwrap_or_default()),
            Update::Deleted(_) => Served::No,
            // The list has shown that there is none, or has shown it before.
            Update::Reached(_) if *self.served.borrow() == Served::Unknown => Served::No,
            Update::Reached(_) => return,
        };
        let before = self.served.send_replace(served);
        if before != served {
            let (definition, is_served) = (self.name(), served == Served::Yes);
            tracing::info!(
                definition,
                is_served,
                "a kind is watched while it is served"
            );
        }
    }

    fn read(&self, definition: &Value) -> Served {
        let versions = definition["spec"]["versions"].as_array();
        let mut versions = versions.into_iter().flatten();
        let version = self.resource.version;
        if versions.any(|it| it["name"] == version && it["served"] == true) {
            (self.on_served)(definition);
            Served::Yes
        } else {
            Served::No
        }
    }

    /// Waits until the kind is served.
    pub(super) async fn served(&self) {
        self.wait_for(Served::Yes).await;
    }

    /// Waits until the kind is known not to be served.
    pub(super) async fn missing(&self) {
        self.wait_for(Served::No).await;
    }

    async fn wait_for(&self, wanted: Served) {
        // The sender is here, so that there is no error.
        let _ = self.served.subscribe().wait_for(|it| *it == wanted).await;
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("name", &self.name())
            .field("served", &self.served)
            .finish_non_exhaustive()
    }
}
