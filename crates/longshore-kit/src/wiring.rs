//! What a controller is started with, as a table: the kinds that it watches, and which keys each change is about.
//!
//! A [`Wiring`] has a row for each kind: [`keyed`](Wiring::keyed) where the keys are made of its objects,
//! [`owned`](Wiring::owned) where an object has an owner, [`watched`](Wiring::watched) for all others, with a
//! [`Referrers`] index where objects of one kind name those of another. It gives the caches to the [`Applier`](crate::Applier)
//! and the keys to [`Runner::run`](crate::Runner::run); several controllers that share it [route](Router) the keys.
//!
//! The rows follow the [`Namespaces`], which may come and go, and wait for a [`Definition`] that is not installed yet.

mod definition;
mod namespaces;
mod referrers;
mod router;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    future::pending,
    sync::Arc,
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream, stream::BoxStream};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicResourceScope},
};
use longshore_core::{Resource, Scope};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::{
    definition::Definition, namespaces::Namespaces, referrers::Referrers, router::Router,
};
use crate::{
    cache::{ALL, Cache, Cached, Update},
    kind::api_resource,
    list_watch::ListWatch,
    own_writes::CacheFeed,
};

/// One kind that is watched, and the cache that shows it.
pub struct Kind<K> {
    resource: Resource,
    cache: Arc<Cache<K>>,
    labels: Option<String>,
    fields: Option<String>,
    is_first: bool,
    definition: Option<Arc<Definition>>,
    starts_when: Vec<Condition>,
}

impl<K> fmt::Debug for Kind<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = &mut f.debug_struct("Kind");
        kind.field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

/// What has to come about before a namespace, or all of them, is listed.
type Condition = Arc<dyn Fn(String) -> BoxFuture<'static, ()> + Send + Sync>;

impl<K: Cached> Kind<K> {
    /// All objects of a resource.
    pub fn new(resource: Resource, cache: Arc<Cache<K>>) -> Self {
        Self {
            resource,
            cache,
            labels: None,
            fields: None,
            is_first: false,
            definition: None,
            starts_when: Vec::new(),
        }
    }

    /// Only objects that match this label selector.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects that match this field selector.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Its objects are listed before those of other kinds, so that no key of another kind is decided upon before they can
    /// be seen. Its first list triggers nothing: the lists of the other kinds do.
    #[must_use]
    pub fn first(mut self) -> Self {
        self.is_first = true;
        self
    }

    /// Not before the objects of this cache are listed.
    #[must_use]
    pub fn after<O: Cached>(mut self, cache: &Arc<Cache<O>>) -> Self {
        self.starts_when.push(listed(cache));
        self
    }

    /// Not before this is true.
    #[must_use]
    pub fn once(mut self, is_wanted: watch::Receiver<bool>) -> Self {
        self.starts_when.push(Arc::new(move |_| {
            let mut is_wanted = is_wanted.clone();
            async move {
                if is_wanted.wait_for(|is_wanted| *is_wanted).await.is_err() {
                    pending::<()>().await; // The kind will never be wanted.
                }
            }
            .boxed()
        }));
        self
    }

    /// Only while the API server serves the kind of this definition. When it no longer does, the objects leave the cache.
    #[must_use]
    pub fn defined_by(mut self, definition: &Arc<Definition>) -> Self {
        self.definition = Some(Arc::clone(definition));
        self
    }
}

/// The rows of one controller, or of several that share watches. `T` is a key, or says which controller's key it is.
pub struct Wiring<T> {
    client: Client,
    namespaces: Namespaces,
    rows: Vec<Box<dyn Row<T>>>,
    feeds: Vec<(Resource, Arc<dyn CacheFeed>)>,
    facts: Vec<BoxStream<'static, T>>,
    /// The definitions that have a row already.
    definitions: Vec<Arc<Definition>>,
}

impl<T> fmt::Debug for Wiring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wiring = &mut f.debug_struct("Wiring");
        wiring.field("namespaces", &self.namespaces);
        wiring.field("feeds", &self.feeds).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Wiring<T> {
    /// No rows yet.
    pub fn new(client: &Client, namespaces: Namespaces) -> Self {
        Self {
            client: client.clone(),
            namespaces,
            rows: Vec::new(),
            feeds: Vec::new(),
            facts: Vec::new(),
            definitions: Vec::new(),
        }
    }

    /// A kind whose objects the keys are made of. An object of a namespace that has left the set is absent.
    #[must_use]
    pub fn keyed<K: Dynamic, I>(self, kind: Kind<K>, keys: impl Keys<K, I>) -> Self
    where
        I: IntoIterator<Item = T>,
    {
        kind.cache.absent_outside();
        self.watched(kind, keys)
    }

    /// A kind whose objects have an owner: each change of one leads to a round of the key of its owner.
    #[must_use]
    pub fn owned<K: Dynamic>(
        self,
        kind: Kind<K>,
        owner: impl Fn(&K) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        self.watched(kind, move |update: Update<K>| {
            owner(&*update.into_object()?)
        })
    }

    /// A kind, and the keys that each of its updates is about. An object of a namespace that has left the set is unknown.
    #[must_use]
    pub fn watched<K: Dynamic, I>(mut self, kind: Kind<K>, keys: impl Keys<K, I>) -> Self
    where
        I: IntoIterator<Item = T>,
    {
        let keys = move |update| keys(update).into_iter().collect();
        self.add(kind, Arc::new(keys));
        self
    }

    fn add<K: Dynamic>(&mut self, kind: Kind<K>, keys: KeysOf<K, T>) {
        if kind.cache.keeps() {
            self.feeds.push((kind.resource, kind.cache.clone()));
        }
        if let Some(definition) = kind.definition.as_ref().filter(|it| !self.defines(it)) {
            self.definitions.push(Arc::clone(definition));
            let of_kind = Arc::clone(definition);
            let take = move |update| {
                of_kind.take(update);
                Vec::new()
            };
            self.add(definition.kind(), Arc::new(take));
        }
        self.rows.push(Box::new(Watched { kind, keys }));
    }

    /// What brings keys besides the watches.
    #[must_use]
    pub fn facts(mut self, keys: impl Stream<Item = T> + Send + 'static) -> Self {
        self.facts.push(keys.boxed());
        self
    }

    fn defines(&self, definition: &Arc<Definition>) -> bool {
        let mut definitions = self.definitions.iter();
        definitions.any(|known| Arc::ptr_eq(known, definition))
    }

    /// The caches of its kinds, for the applier of the controllers.
    pub fn feeds(&self) -> Vec<(Resource, Arc<dyn CacheFeed>)> {
        self.feeds.clone()
    }

    /// The keys of everything that changes, for ever.
    ///
    /// *Cancellation*: dropping the stream ends all watches; the caches keep what they have.
    pub fn into_triggers(self) -> impl Stream<Item = T> + Send {
        let (scopes, changes) = match self.namespaces {
            Namespaces::All => (BTreeSet::from([ALL.to_owned()]), None),
            Namespaces::These(namespaces) => (namespaces, None),
            Namespaces::Following(mut set) => {
                let scopes = set.borrow_and_update().clone();
                (scopes, Some(set))
            }
        };
        let facts = self.facts.into_iter();
        let facts = facts.map(|facts| facts.map(|key| vec![key]).boxed());
        let mut running = Running {
            client: self.client,
            rows: self.rows,
            open: BTreeMap::new(),
            changes,
            streams: facts.collect(),
        };
        running.open_cluster();
        running.follow(scopes);
        let batches = stream::unfold(running, |mut running| async move {
            let keys = running.next().await;
            Some((stream::iter(keys), running))
        });
        batches.flatten()
    }
}

/// An object whose [`Resource`] says where it is served: [`RawObject`](crate::RawObject) or [`Parsed`](crate::Parsed).
pub trait Dynamic:
    Cached + kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>
{
}
impl<K> Dynamic for K where
    K: Cached + kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>
{
}

/// A function from an update to the keys that it is about.
pub trait Keys<K, I>: Fn(Update<K>) -> I + Send + Sync + 'static {}
impl<K, I, F: Fn(Update<K>) -> I + Send + Sync + 'static> Keys<K, I> for F {}

/// The watches that are open, and what opens and closes them.
struct Running<T> {
    client: Client,
    rows: Vec<Box<dyn Row<T>>>,
    /// The namespaces that are watched, or [`ALL`], each with what ends its watches.
    open: BTreeMap<String, CancellationToken>,
    /// `None` where they never change.
    changes: Option<watch::Receiver<BTreeSet<String>>>,
    streams: stream::SelectAll<BoxStream<'static, Vec<T>>>,
}

impl<T: Send + 'static> Running<T> {
    /// The keys of the next change.
    async fn next(&mut self) -> Vec<T> {
        tokio::select! {
            set = changed(&mut self.changes) => self.follow(set),
            Some(keys) = self.streams.next() => keys,
        }
    }

    /// Watches the kinds that have no namespaces.
    fn open_cluster(&mut self) {
        for row in self.rows.iter().filter(|row| row.is_of_cluster()) {
            self.streams.push(row.open(&self.client, ALL, &[]));
        }
    }

    /// Watches these namespaces, and no others. Returns the keys of what leaves the caches.
    fn follow(&mut self, scopes: BTreeSet<String>) -> Vec<T> {
        let rows = self.rows.iter();
        let rows: Vec<_> = rows.filter(|row| !row.is_of_cluster()).collect();
        let mut keys = Vec::new();
        self.open.retain(|scope, ended| {
            let stays = scopes.contains(scope);
            if !stays {
                ended.cancel();
                keys.extend(rows.iter().flat_map(|row| row.close(scope)));
            }
            stays
        });
        let first = self.rows.iter().filter_map(|row| row.to_be_first());
        let first: Vec<Condition> = first.collect();
        for scope in scopes {
            let Entry::Vacant(place) = self.open.entry(scope) else {
                continue;
            };
            let ended = CancellationToken::new();
            for row in &rows {
                let updates = row.open(&self.client, place.key(), &first);
                let ended = ended.clone().cancelled_owned();
                self.streams.push(updates.take_until(ended).boxed());
            }
            place.insert(ended);
        }
        keys
    }
}

/// The set, once it has changed.
async fn changed(changes: &mut Option<watch::Receiver<BTreeSet<String>>>) -> BTreeSet<String> {
    if let Some(set) = changes
        && set.changed().await.is_ok()
    {
        return set.borrow_and_update().clone();
    }
    pending().await
}

/// One kind and its keys, whatever the type of its objects.
trait Row<T>: Send + Sync {
    /// Whether its objects have no namespace.
    fn is_of_cluster(&self) -> bool;

    /// What the other kinds wait for, where this one is listed before them.
    fn to_be_first(&self) -> Option<Condition>;

    /// The keys of the changes in a namespace, or in all, once the conditions are met.
    fn open(&self, client: &Client, scope: &str, first: &[Condition])
    -> BoxStream<'static, Vec<T>>;

    /// The keys of what was in a namespace that is no longer watched.
    fn close(&self, scope: &str) -> Vec<T>;
}

struct Watched<K, T> {
    kind: Kind<K>,
    keys: KeysOf<K, T>,
}

type KeysOf<K, T> = Arc<dyn Fn(Update<K>) -> Vec<T> + Send + Sync>;

impl<K, T> Row<T> for Watched<K, T>
where
    K: Dynamic,
    T: Send + 'static,
{
    fn is_of_cluster(&self) -> bool {
        self.kind.resource.scope == Scope::Cluster
    }

    fn to_be_first(&self) -> Option<Condition> {
        let cache = self.kind.is_first.then_some(&self.kind.cache);
        cache.map(listed)
    }

    fn open(
        &self,
        client: &Client,
        scope: &str,
        first: &[Condition],
    ) -> BoxStream<'static, Vec<T>> {
        let (kind, keys) = (&self.kind, Arc::clone(&self.keys));
        let (cache, is_first) = (Arc::clone(&kind.cache), kind.is_first);
        cache.open(scope);
        let what = kind.list_watch(client, scope);
        let first = first.iter().filter(|_| !is_first);
        let conditions: Vec<Condition> = first.chain(&kind.starts_when).cloned().collect();
        let (definition, scope) = (kind.definition.clone(), scope.to_owned());
        let while_served = move || {
            let (cache, keys) = (Arc::clone(&cache), Arc::clone(&keys));
            let starts = start(conditions.clone(), definition.clone(), scope.clone());
            let updates = what.clone().into_scope(Arc::clone(&cache), &scope);
            let updates = async move {
                starts.await;
                updates
            };
            let scope = scope.clone();
            let ends = async move {
                let gone = cache.close(&scope);
                cache.open(&scope);
                stream::iter(gone)
            };
            let updates = updates.flatten_stream();
            let updates = updates.take_until(missing(definition.clone()));
            let mut is_quiet = is_first;
            updates.chain(ends.flatten_stream()).map(move |update| {
                let was_quiet = is_quiet;
                is_quiet &= !matches!(update, Update::Reached(_));
                let keys = keys(update);
                if was_quiet { Vec::new() } else { keys }
            })
        };
        stream::repeat_with(while_served).flatten().boxed()
    }

    fn close(&self, scope: &str) -> Vec<T> {
        let gone = self.kind.cache.close(scope).into_iter();
        gone.flat_map(|update| (self.keys)(update)).collect()
    }
}

impl<K: Dynamic> Kind<K> {
    fn list_watch(&self, client: &Client, scope: &str) -> ListWatch<K> {
        let kind = api_resource(self.resource);
        let api = match scope {
            ALL => Api::all_with(client.clone(), &kind),
            namespace => Api::namespaced_with(client.clone(), namespace, &kind),
        };
        let mut what = ListWatch::new(api);
        if let Some(labels) = &self.labels {
            what = what.labels(labels);
        }
        if let Some(fields) = &self.fields {
            what = what.fields(fields);
        }
        what
    }
}

fn listed<K: Cached>(cache: &Arc<Cache<K>>) -> Condition {
    let cache = Arc::clone(cache);
    Arc::new(move |scope| {
        let cache = Arc::clone(&cache);
        async move { cache.listed(&scope).await }.boxed()
    })
}

/// Waits for all that has to come about before a kind is listed.
async fn start(conditions: Vec<Condition>, definition: Option<Arc<Definition>>, scope: String) {
    if let Some(definition) = definition {
        definition.served().await;
    }
    for condition in conditions {
        condition(scope.clone()).await;
    }
}

/// Waits until a kind that was served is not.
async fn missing(definition: Option<Arc<Definition>>) {
    match definition {
        Some(definition) => {
            definition.served().await;
            definition.missing().await;
        }
        None => pending().await,
    }
}
