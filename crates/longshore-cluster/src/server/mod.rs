//! The API server: HTTP requests in, committed objects and watch streams out. Knows nothing of
//! Longshore.
//!
//! A request passes `http` (path, options, body) → `verbs` or `subresources` → `strategy`, `patch`,
//! `meta` (pure rules about one object) → `hub` (the one order of writes, lists and watches) →
//! `store` (durability).

mod admission;
mod auth;
mod authz;
mod crd;
mod error;
mod expiry;
mod http;
mod hub;
mod logs;
mod meta;
mod names;
mod openapi;
mod own_service;
mod patch;
mod protobuf;
mod random;
mod registry;
mod reviews;
mod schema;
mod selectors;
mod service_range;
mod store;
mod strategy;
mod streams;
mod subresources;
mod tables;
#[cfg(test)]
mod tests;
mod unserved;
mod verbs;
pub(crate) mod wire;

use std::{
    fmt,
    net::SocketAddr,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use admission::Admission;
use auth::{Authentication, KeyError};
use authz::Authorizer;
use expiry::Expiry;
use hub::{Change, Collection, Draft, Expected, Hub, Key, Object};
use jiff::Timestamp;
use random::Random;
use registry::{Registry, Served, Strategy};
use serde_json::json;
use store::{FileStore, Loaded, MemoryStore, Store};

pub use self::admission::{PodIdentity, PodNetwork};
pub use self::authz::Authorization;
pub use self::http::body::ApiBody;
pub use self::http::service::ApiService;
pub use self::service_range::{InvalidRange, ServiceRange};
pub use self::wire::{Limits, Listening, ServeConfig, ServeError, Serving};
pub use logs::{LogError, LogOptions, LogStream, PodLogs};
pub use store::{Durability, OpenError};
pub use streams::{
    PodConnection, PodDuplex, PodStreams, Process, StreamError, StreamSet, TerminalSize,
};

/// Where the server takes the time of day from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Namespaces that exist from the start.
const FIRST_NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// The settings of a server.
pub(crate) struct Settings {
    pub(crate) clock: Clock,
    /// Events that each resource remembers.
    pub(crate) watch_window: usize,
    /// Time between bookmarks of an idle watch.
    pub(crate) bookmark_interval: Duration,
    /// Makes uids and generated names repeatable.
    pub(crate) seed: Option<u64>,
    /// When a write is answered; of no meaning in memory.
    pub(crate) durability: Durability,
    /// Whether new pods need a service account.
    pub(crate) pod_identity: PodIdentity,
    /// Who may do what.
    pub(crate) authorization: Authorization,
    /// The addresses of Services.
    pub(crate) service_range: ServiceRange,
}

/// All state of one API server.
pub(crate) struct Server {
    hub: Arc<Hub>,
    registry: Registry,
    admission: Admission,
    auth: Authentication,
    pod_identity: PodIdentity,
    authorizer: Authorizer,
    clock: Clock,
    random: Random,
    expiry: Expiry,
    bookmark_interval: Duration,
    openapi: openapi::Documents,
    pod_logs: RwLock<Option<Arc<dyn PodLogs>>>,
    pod_streams: RwLock<Option<Arc<dyn PodStreams>>>,
    places: streams::Places,
    service_range: ServiceRange,
    /// Where clients reach this server, once they do.
    address: RwLock<Option<SocketAddr>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("revision", &self.hub.revision())
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A server in memory with nothing in it but the first namespaces.
    pub(crate) fn in_memory(settings: Settings) -> Arc<Server> {
        #[expect(clippy::expect_used, reason = "memory refuses nothing")]
        Server::open(Box::new(MemoryStore), Path::new("memory"), settings)
            .expect("open a store in memory")
    }

    /// A server whose objects live in a directory.
    pub(crate) fn in_directory(
        directory: &Path,
        settings: Settings,
    ) -> Result<Arc<Server>, OpenError> {
        let (durability, window) = (settings.durability, settings.watch_window);
        let store = FileStore::open(directory, durability, window)?;
        let server = Server::open(Box::new(store), directory, settings)?;
        let path = auth::key_path(directory);
        server
            .auth
            .keep_key(directory)
            .map_err(|error| match error {
                KeyError::File(error) => OpenError::from_io(&path, error),
                error @ KeyError::Key(_) => OpenError::damaged(&path, error),
            })?;
        Ok(server)
    }

    /// A server with what its store has kept at a place.
    fn open(
        mut store: Box<dyn Store>,
        place: &Path,
        settings: Settings,
    ) -> Result<Arc<Server>, OpenError> {
        let loaded = store.load()?;
        let hub = Hub::new(store, loaded.revision, settings.durability)
            .map_err(|error| OpenError::from_io(place, error))?;
        let registry = Registry::built_in(settings.watch_window);
        let hub = Arc::new(hub);
        let server = Arc::new(Server {
            authorizer: Authorizer::new(settings.authorization, &hub, &registry),
            hub,
            admission: Admission::new(&registry),
            auth: Authentication::new(&registry),
            pod_identity: settings.pod_identity,
            registry,
            clock: settings.clock,
            random: settings
                .seed
                .map_or_else(Random::from_entropy, Random::seeded),
            expiry: Expiry::default(),
            bookmark_interval: settings.bookmark_interval,
            openapi: openapi::Documents::default(),
            pod_logs: RwLock::new(None),
            pod_streams: RwLock::new(None),
            places: streams::Places::default(),
            service_range: settings.service_range,
            address: RwLock::new(None),
        });
        server
            .restore(&loaded)
            .map_err(|error| OpenError::damaged(place, error))?;
        drop(loaded);
        server.settle_now();
        server.create_first_namespaces();
        if server.authorizer.is_enforced() {
            authz::ensure_bootstrap_policy(&server);
        }
        server.give_addresses();
        Ok(server)
    }

    /// Puts back what the store has kept.
    fn restore(&self, loaded: &Loaded) -> Result<(), hub::NotJson> {
        for collection in self.registry.collections() {
            hub::restore(&collection, loaded)?;
            self.expiry.restore(&collection, self.now());
        }
        // Only now is it known which these are.
        for collection in self.registry.catalog().collections() {
            hub::restore(&collection, loaded)?;
        }
        Ok(())
    }

    /// Finishes what an earlier process has begun with definitions. Blocks.
    fn settle_now(&self) {
        // The caller may be a task that has used up its budget, which would never wake here.
        futures::executor::block_on(tokio::task::unconstrained(crd::settle(self)));
    }

    fn create_first_namespaces(&self) {
        let Some(Served {
            resource,
            collection,
        }) = self.registry.find("", "v1", "namespaces")
        else {
            return;
        };
        for name in FIRST_NAMESPACES {
            let mut namespace = json!({"metadata": {"name": name}});
            strategy::prepare_create(&resource, &mut namespace);
            self.stamp(&mut namespace);
            let draft = Draft::new(&resource, &namespace);
            let key = Key::new(None, name);
            // The object exists already when the store has kept it.
            let _ = self
                .hub
                .commit_now(&collection, key, Expected::Absent, Change::Put(draft));
        }
    }

    /// Stores a pod that an earlier server had, as it was. Blocks.
    pub(crate) fn put_back_pod(&self, mut pod: serde_json::Value) {
        let Some(Served {
            resource,
            collection,
        }) = self.registry.find("", "v1", "pods")
        else {
            return;
        };
        meta::normalise(&mut pod, false);
        let namespace = meta::text(&pod, "/metadata/namespace");
        let key = Key::new(Some(namespace), meta::name(&pod));
        let draft = Draft::new(&resource, &pod);
        if let Err(error) =
            self.hub
                .commit_now(&collection, key, Expected::Absent, Change::Put(draft))
        {
            tracing::warn!(%error, "cannot put a pod of an earlier cluster back");
        }
    }

    /// Sets what identifies a new object.
    fn stamp(&self, object: &mut serde_json::Value) {
        let now = meta::seconds(self.now());
        let metadata = meta::metadata(object);
        metadata.insert("uid".into(), self.random.uuid().into());
        metadata.insert("creationTimestamp".into(), now.into());
    }

    /// What follows from the end of an object, or from its marking.
    async fn after_removal(&self, collection: &Collection) {
        let resource = &collection.resource;
        let is_last_of_definition = resource
            .custom
            .as_ref()
            .is_some_and(|custom| custom.is_terminating);
        if resource.strategy == Strategy::Definition || is_last_of_definition {
            crd::settle(self).await;
        }
        if own_service::may_be_own(resource) {
            self.keep_own_service().await;
        }
    }

    /// Does what follows from a write: settles definitions, removes expired objects.
    async fn after_write(&self, collection: &Arc<Collection>, object: &Object) {
        if collection.resource.strategy == Strategy::Definition {
            crd::settle(self).await;
        }
        self.expiry
            .note(&self.hub, collection, object, self.now())
            .await;
    }

    pub(crate) fn webhook_client_authority(&self) -> Result<String, rcgen::Error> {
        self.admission.client_authority()
    }

    /// What this server takes tokens for, and who their users are.
    pub(crate) fn authentication(&self) -> &Authentication {
        &self.auth
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Forgets all events: every revision handed out so far answers 410, and open watches end with
    /// one.
    pub(crate) fn expire_watches(&self) {
        self.hub.compact(self.registry.collections());
    }

    /// Stores what waits and lets go of the directory. Blocks.
    pub(crate) fn close(&self) {
        self.hub.close();
    }

    /// Why no write is taken any more.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.hub.stopped().map(|error| error.to_string())
    }

    pub(crate) fn set_pod_network(&self, network: Arc<dyn PodNetwork>) {
        self.admission.set_pod_network(network);
    }

    pub(crate) fn set_pod_logs(&self, logs: Arc<dyn PodLogs>) {
        *self
            .pod_logs
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(logs);
    }

    fn pod_logs(&self) -> Option<Arc<dyn PodLogs>> {
        self.pod_logs
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set_pod_streams(&self, streams: Arc<dyn PodStreams>) {
        *self
            .pod_streams
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(streams);
    }

    fn pod_streams(&self) -> Option<Arc<dyn PodStreams>> {
        self.pod_streams
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
