//! Does what [`decide`](super::decide) says, with a catalog and the stores of outputs.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use longshore_api::flyte::FILE_OUTPUTS;
use longshore_core::{Class, Classify};
use longshore_kit::Clock;
use longshore_plugins::{CacheKey, CacheKeyError, Phase, PhaseInfo, TaskContext};
use longshore_proto::flyteidl2::core::LiteralMap;
use prost::Message;

use super::{
    CachedOutput, Catalog, CatalogCacheStatus, CatalogError, Metadata, Output, Put, Replace,
    decide::{self, Before, Facts, Lookup},
    from_proto,
};
use crate::{
    data::{DataError, File, Storage},
    model::ActionKey,
};

/// Uses a catalog for attempts of tasks.
#[derive(Clone, Debug)]
pub struct Caching {
    catalog: Arc<dyn Catalog>,
    storage: Arc<Storage>,
    clock: Arc<dyn Clock>,
    /// `plugins.catalogCache.maxCacheAge`; zero for none.
    max_age: Duration,
    /// How soon a reservation is extended: `executor.requeueDuration`.
    heartbeat: Duration,
}

/// A task whose outputs are cached, and one attempt of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// What its outputs are cached under.
    pub key: CacheKey,
    /// Under which name the action reserves: `<namespace>/<name>`.
    pub owner: String,
    /// `metadata.cache_serializable` of its template.
    pub is_serializable: bool,
    /// The directory of the attempt's outputs, as a URL.
    pub output_prefix: String,
}

impl Entry {
    /// The entry of an attempt, whose inputs were read; `None` where its outputs are not cached. `version` is
    /// `spec.cacheKey`.
    ///
    /// # Errors
    /// Where its outputs are to be cached, and there is no key for them.
    pub fn of(
        action: &ActionKey,
        context: &TaskContext,
        version: &str,
    ) -> Result<Option<Self>, CacheKeyError> {
        let template = &context.template;
        if !CacheKey::is_wanted(template) {
            return Ok(None);
        }
        let metadata = template.metadata.as_ref();
        Ok(Some(Self {
            key: CacheKey::of(template, context.inputs.as_ref(), version)?,
            owner: action.to_string(),
            is_serializable: metadata.is_some_and(|metadata| metadata.cache_serializable),
            output_prefix: context.paths.output_prefix.clone(),
        }))
    }
}

/// What the cache says of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The plugin goes on.
    Run {
        /// This has to be asked again so soon, or others take the reservation; `None` where nothing is reserved.
        extend_within: Option<Duration>,
    },
    /// The plugin is not asked: the attempt has succeeded, or waits.
    Settled {
        /// The attempt's phase.
        info: Box<PhaseInfo>,
        /// For `status.cacheStatus`.
        status: CatalogCacheStatus,
    },
}

/// The cache could not be used, and the task must not go on without it.
#[derive(Debug, thiserror::Error)]
pub enum CachingError {
    /// It is not known who has the reservation.
    #[error("the task waits for its cache reservation")]
    NotReserved(#[source] CatalogError),
    /// Cached outputs are not where they belong.
    #[error("the task waits for its cached outputs")]
    NotCopied(#[source] DataError),
}

impl Classify for CachingError {
    fn class(&self) -> Class {
        match self {
            Self::NotReserved(source) => source.class(),
            Self::NotCopied(source) => source.class(),
        }
    }
}

impl Caching {
    /// Outputs older than `max_age` do not count, unless that is zero; reservations are extended each `heartbeat`.
    pub fn new(
        catalog: Arc<dyn Catalog>,
        storage: Arc<Storage>,
        clock: Arc<dyn Clock>,
        max_age: Duration,
        heartbeat: Duration,
    ) -> Self {
        Self {
            catalog,
            storage,
            clock,
            max_age,
            heartbeat,
        }
    }

    /// What the cache says of an attempt in this phase, which has this version.
    ///
    /// *Guarantees*: asking again is harmless, whatever became of the first time. A hit is told only once the outputs
    /// are where they belong.
    ///
    /// # Errors
    /// Where nothing may be done before the cache was asked again.
    pub async fn before(
        &self,
        entry: &Entry,
        phase: Phase,
        version: u32,
    ) -> Result<Found, CachingError> {
        let mut facts = Facts {
            is_running: phase == Phase::Running,
            is_serializable: entry.is_serializable,
            owner: entry.owner.clone(),
            lookup: None,
            holder: None,
        };
        let mut cached = None;
        loop {
            match decide::before(&facts) {
                Before::LookUp => {
                    let (lookup, outputs) = self.look_up(entry).await;
                    facts.lookup = Some(lookup);
                    cached = outputs;
                }
                Before::Copy => {
                    self.copy(entry, cached.unwrap_or_default()).await?;
                    return Ok(Found::Settled {
                        info: Box::new(decide::hit(self.clock.now())),
                        status: CatalogCacheStatus::CacheHit,
                    });
                }
                Before::Reserve => facts.holder = Some(self.reserve(entry, &facts).await?),
                Before::Run => {
                    let is_reserved = facts.holder.is_some();
                    return Ok(Found::Run {
                        extend_within: is_reserved.then_some(self.heartbeat),
                    });
                }
                Before::Wait { holder } => {
                    return Ok(Found::Settled {
                        info: Box::new(decide::waiting(&holder, version, self.clock.now())),
                        status: CatalogCacheStatus::CacheMiss,
                    });
                }
            }
        }
    }

    /// Keeps the outputs of an attempt that ended in this phase, and gives its reservation up; answers
    /// `status.cacheStatus`, where the cache has a say in it.
    ///
    /// Nothing of it keeps the attempt from ending: what fails is logged, and a reservation ends by itself.
    pub async fn after(
        &self,
        entry: &Entry,
        phase: Phase,
        metadata: Metadata,
    ) -> Option<CatalogCacheStatus> {
        let after = decide::after(phase, entry.is_serializable);
        let status = if after.puts {
            Some(self.put(entry, metadata).await)
        } else {
            None
        };
        if after.releases {
            self.release(entry).await;
        }
        status
    }

    /// Gives a reservation up, if it is this action's; failing that, it ends by itself.
    pub async fn release(&self, entry: &Entry) {
        let (catalog, key, owner) = (&self.catalog, &entry.key, &entry.owner);
        if let Err(error) = catalog.release_reservation(key, owner).await {
            tracing::warn!(
                error = chain(&error),
                owner,
                "a cache reservation is not released"
            );
        }
    }

    async fn look_up(&self, entry: &Entry) -> (Lookup, Option<Bytes>) {
        let cached = match self.catalog.get(&entry.key).await {
            Ok(Some(cached)) => cached,
            Ok(None) => return (Lookup::Miss, None),
            Err(error) => {
                let (error, owner) = (chain(&error), &entry.owner);
                tracing::warn!(error, owner, "the cache cannot be asked; the task runs");
                return (Lookup::Failed, None);
            }
        };
        let updated_at = cached.metadata.as_ref().and_then(|it| it.last_updated_at);
        let updated_at = updated_at.and_then(from_proto);
        if !decide::is_young(updated_at, self.max_age, self.clock.now()) {
            return (Lookup::Miss, None);
        }
        match self.outputs(&cached).await {
            Ok(outputs) => (Lookup::Hit, Some(outputs)),
            Err(why) => {
                tracing::warn!(
                    why,
                    owner = entry.owner,
                    "cached outputs are of no use; the task runs"
                );
                (Lookup::Failed, None)
            }
        }
    }

    /// Cached outputs as they are in a file; or why there are none.
    async fn outputs(&self, cached: &CachedOutput) -> Result<Bytes, String> {
        let url = match &cached.output {
            Some(Output::OutputLiterals(literals)) => return Ok(literals.encode_to_vec().into()),
            Some(Output::OutputUri(url)) => url,
            None => return Err("the entry is empty".to_owned()),
        };
        match self.storage.read(url).await {
            Ok(File::Read(bytes)) => match LiteralMap::decode(bytes.clone()) {
                Ok(_) => Ok(bytes),
                Err(error) => Err(format!("{url} holds no outputs: {error}")),
            },
            Ok(File::Missing) => Err(format!("{url} is not there any more")),
            Ok(File::TooLarge(size)) => Err(format!("{url} has {size} bytes")),
            Err(error) => Err(chain(&error)),
        }
    }

    async fn copy(&self, entry: &Entry, outputs: Bytes) -> Result<(), CachingError> {
        let written = self.storage.write(&file(entry), outputs).await;
        written.map_err(CachingError::NotCopied)
    }

    /// Who has the reservation.
    async fn reserve(&self, entry: &Entry, facts: &Facts) -> Result<String, CachingError> {
        let (key, owner) = (&entry.key, &entry.owner);
        let asked = self
            .catalog
            .get_or_extend_reservation(key, owner, self.heartbeat);
        match asked.await {
            Ok(reservation) => Ok(reservation.owner),
            Err(error) if facts.is_running => {
                tracing::warn!(
                    error = chain(&error),
                    owner,
                    "a cache reservation is not extended"
                );
                Ok(owner.clone())
            }
            Err(error) => Err(CachingError::NotReserved(error)),
        }
    }

    async fn put(&self, entry: &Entry, metadata: Metadata) -> CatalogCacheStatus {
        let url = file(entry);
        match self.storage.exists(&url).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(url, "there are no outputs to be cached");
                return CatalogCacheStatus::CachePutFailure;
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "outputs are not cached");
                return CatalogCacheStatus::CachePutFailure;
            }
        }
        let output = CachedOutput {
            metadata: Some(metadata),
            output: Some(Output::OutputUri(url)),
        };
        // Or outputs that are too old to be used would stay for ever.
        let replace = if self.max_age.is_zero() {
            Replace::Nothing
        } else {
            Replace::OlderThan(self.max_age)
        };
        let put: Result<Put, CatalogError> = self.catalog.put(&entry.key, output, replace).await;
        if let Err(error) = &put {
            let owner = &entry.owner;
            tracing::warn!(error = chain(error), owner, "outputs are not cached");
        }
        decide::cache_status(&put)
    }
}

fn file(entry: &Entry) -> String {
    format!("{}/{FILE_OUTPUTS}", entry.output_prefix)
}

/// An error with everything that caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
