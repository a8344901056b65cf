//! A cache service and a store that live through the executor's crashes, with the faults of a process before them.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use longshore_api::flyte::FILE_INPUTS;
use longshore_kit::Clock;
use longshore_object_store::Storage;
use longshore_plugins::CacheKey;
use longshore_proto::flyteidl2::core::LiteralMap;
use longshore_tasks::catalog::{
    CachedOutput, Caching, Catalog, CatalogError, Output, Put, Replace, Reservation,
};
use longshore_test::{EPOCH, faults::Process};
use prost::Message;

use crate::{troubled_store::TroubledStore, world::INPUT_URI};

/// How long a reservation lasts without its owner.
const LIFETIME: SignedDuration = SignedDuration::from_secs(30);

/// What is cached, and where outputs are.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) storage: Arc<Storage>,
    /// The store of all URLs.
    pub(crate) store: Arc<TroubledStore>,
    clock: Arc<dyn Clock>,
    known: Mutex<CatalogState>,
    loses: Loses,
}

/// A question to the cache service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// As points of faults have it.
    pub(crate) what: &'static str,
    /// For whom a reservation is asked; empty of other questions.
    pub(crate) owner: String,
    /// When, since the beginning of simulated time.
    pub(crate) at: SignedDuration,
}

type IsLost = Box<dyn FnMut(&Call) -> bool + Send>;

/// Which questions are lost on their way.
struct Loses(Mutex<IsLost>);

impl std::fmt::Debug for Loses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Loses")
    }
}

#[derive(Debug, Default)]
struct CatalogState {
    outputs: BTreeMap<String, CachedOutput>,
    reservations: BTreeMap<String, Reservation>,
    /// Until then nobody is answered.
    down_until: Option<Timestamp>,
}

impl Cache {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let store = Arc::<TroubledStore>::default();
        Arc::new(Self {
            storage: Arc::new(Storage::of_store(store.clone(), 1 << 20)),
            store,
            clock,
            known: Mutex::default(),
            loses: Loses(Mutex::new(Box::new(|_| false))),
        })
    }

    /// Loses questions from now on: they have no effect, and are never answered.
    pub(crate) fn lose(&self, is_lost: impl FnMut(&Call) -> bool + Send + 'static) {
        *self.loses.0.lock().unwrap() = Box::new(is_lost);
    }

    fn is_lost(&self, what: &'static str, owner: &str) -> bool {
        let call = Call {
            what,
            owner: owner.to_owned(),
            at: self.clock.now().duration_since(EPOCH),
        };
        (self.loses.0.lock().unwrap())(&call)
    }

    /// Leaves the inputs of all actions.
    pub(crate) async fn leave_inputs(&self, inputs: &LiteralMap) {
        let file = format!("{INPUT_URI}/{FILE_INPUTS}");
        let written = self.storage.write(&file, inputs.encode_to_vec().into());
        written.await.unwrap();
    }

    /// Answers nobody for this long.
    pub(crate) fn go_down_for(&self, time: Duration) {
        self.known.lock().unwrap().down_until = Some(self.clock.now() + time);
    }

    /// Who has a reservation.
    pub(crate) fn owners(&self) -> Vec<String> {
        let (known, now) = (self.known.lock().unwrap(), self.clock.now());
        let held = known.reservations.values().filter(|it| it.expires_at > now);
        held.map(|it| it.owner.clone()).collect()
    }

    /// Where the outputs are that are cached.
    pub(crate) fn urls(&self) -> Vec<String> {
        let known = self.known.lock().unwrap();
        let outputs = known.outputs.values();
        let url = |it: &CachedOutput| match &it.output {
            Some(Output::OutputUri(url)) => Some(url.clone()),
            Some(Output::OutputLiterals(_)) | None => None,
        };
        outputs.filter_map(url).collect()
    }

    /// How many keys are cached.
    pub(crate) fn n_outputs(&self) -> usize {
        self.known.lock().unwrap().outputs.len()
    }

    /// What an executor caches with.
    pub(crate) fn caching(self: &Arc<Self>, process: &Process) -> Caching {
        let catalog = FaultyCatalog {
            cache: Arc::clone(self),
            process: process.clone(),
        };
        let (storage, clock) = (Arc::clone(&self.storage), Arc::clone(&self.clock));
        Caching::new(Arc::new(catalog), storage, clock, Duration::ZERO)
    }
}

impl CatalogState {
    fn claim(
        &mut self,
        key: &str,
        owner: &str,
        heartbeat: Duration,
        now: Timestamp,
    ) -> Reservation {
        let current = self.reservations.get(key);
        if let Some(current) = current.filter(|it| it.owner != owner && it.expires_at > now) {
            return current.clone();
        }
        let claimed = Reservation {
            owner: owner.to_owned(),
            heartbeat,
            expires_at: now + LIFETIME,
        };
        self.reservations.insert(key.to_owned(), claimed.clone());
        claimed
    }
}

/// The cache as an executor reaches it.
#[derive(Debug)]
struct FaultyCatalog {
    cache: Arc<Cache>,
    process: Process,
}

impl FaultyCatalog {
    async fn ask<T>(
        &self,
        what: &'static str,
        owner: &str,
        answer: impl FnOnce(&mut CatalogState, Timestamp) -> T,
    ) -> Result<T, CatalogError> {
        if self.cache.is_lost(what, owner) {
            return pending().await;
        }
        let now = self.cache.clock.now();
        let answered = self.process.effect(what, async {
            let mut known = self.cache.known.lock().unwrap();
            let is_down = known.down_until.is_some_and(|until| now < until);
            (!is_down).then(|| answer(&mut known, now))
        });
        let answered = answered.await;
        let answered = answered.map_err(|injected| CatalogError::NotRead(injected.to_string()))?;
        answered.ok_or_else(|| CatalogError::NotRead("nobody answers".to_owned()))
    }
}

#[async_trait]
impl Catalog for FaultyCatalog {
    async fn get(&self, key: &CacheKey) -> Result<Option<CachedOutput>, CatalogError> {
        self.ask("get cache", "", |known, _| {
            known.outputs.get(&key.key).cloned()
        })
        .await
    }

    async fn put(
        &self,
        key: &CacheKey,
        output: CachedOutput,
        _: Replace,
    ) -> Result<Put, CatalogError> {
        self.ask("put cache", "", |known, _| {
            if known.outputs.contains_key(&key.key) {
                return Put::AlreadyThere;
            }
            known.outputs.insert(key.key.clone(), output);
            Put::Stored
        })
        .await
    }

    async fn get_or_extend_reservation(
        &self,
        key: &CacheKey,
        owner: &str,
        heartbeat: Duration,
    ) -> Result<Reservation, CatalogError> {
        self.ask("reserve cache", owner, |known, now| {
            known.claim(&key.key, owner, heartbeat, now)
        })
        .await
    }

    async fn release_reservation(&self, key: &CacheKey, owner: &str) -> Result<(), CatalogError> {
        self.ask("release cache", owner, |known, _| {
            let reservations = &mut known.reservations;
            if reservations
                .get(&key.key)
                .is_some_and(|it| it.owner == owner)
            {
                reservations.remove(&key.key);
            }
        })
        .await
    }
}
