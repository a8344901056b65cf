//! Asks and tells a catalog for attempts of tasks, and moves the outputs that are cached.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use longshore_api::flyte::FILE_OUTPUTS;
use longshore_core::{Class, Classify, Seen, UnknownCause, error::chain};
use longshore_kit::Clock;
use longshore_object_store::{DataError, File, Storage};
use longshore_plugins::{CacheKey, CacheKeyError, TaskContext};
use longshore_proto::flyteidl2::core::{LiteralMap, TaskTemplate, VariableMap};
use prost::Message;

use super::{
    CachedOutput, Catalog, CatalogCacheStatus, CatalogError, Hit, Metadata, Output, Put, Replace,
    decide::{self, Claim},
    from_proto,
};
use crate::{data::inputs, model::ActionKey};

/// How long a catalog that failed is left alone before it is asked once more.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Uses a catalog for attempts of tasks.
#[derive(Clone, Debug)]
pub struct Caching {
    catalog: Arc<dyn Catalog>,
    storage: Arc<Storage>,
    clock: Arc<dyn Clock>,
    /// `plugins.catalogCache.maxCacheAge`; zero for none.
    max_age: Duration,
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
    /// The entry of an attempt of a task with this key.
    pub fn of(action: &ActionKey, context: &TaskContext, key: CacheKey) -> Self {
        let metadata = context.template.metadata.as_ref();
        Self {
            key,
            owner: action.to_string(),
            is_serializable: metadata.is_some_and(|metadata| metadata.cache_serializable),
            output_prefix: context.paths.output_prefix.clone(),
        }
    }

    /// Where its outputs are, as a URL.
    fn file(&self) -> String {
        format!("{}/{FILE_OUTPUTS}", self.output_prefix)
    }
}

/// A task whose outputs cannot be cached, whatever is tried.
#[derive(Debug, thiserror::Error)]
pub enum NoKey {
    /// Its template does not allow for it.
    #[error(transparent)]
    Template(#[from] CacheKeyError),
    /// Its inputs are part of the key.
    #[error("expected the inputs of a cached task in {url}: {why}")]
    Inputs {
        /// Where they should be.
        url: String,
        /// What is there.
        why: String,
    },
    /// Its outputs go to a place that this process cannot read.
    #[error(transparent)]
    NoStore(DataError),
}

impl NoKey {
    fn inputs(context: &TaskContext, why: impl Into<String>) -> Self {
        Self::Inputs {
            url: context.paths.input.clone(),
            why: why.into(),
        }
    }
}

impl Caching {
    /// Outputs older than `max_age` do not count, unless that is zero.
    pub fn new(
        catalog: Arc<dyn Catalog>,
        storage: Arc<Storage>,
        clock: Arc<dyn Clock>,
        max_age: Duration,
    ) -> Self {
        Self {
            catalog,
            storage,
            clock,
            max_age,
        }
    }

    /// Where the inputs are that are part of the key of a task; `None` for a task that declares none.
    pub fn inputs_of(context: &TaskContext) -> Option<&str> {
        let declared = declared_inputs(&context.template);
        declared.map(|_| context.paths.input.as_str())
    }

    /// What the outputs of a task are cached under; `version` is `spec.cacheKey`. Its inputs are read, where it has some.
    ///
    /// # Errors
    /// [`DataError`] where the store did not answer; [`NoKey`] where no later answer would help.
    pub async fn key(
        &self,
        context: &TaskContext,
        version: &str,
    ) -> Result<Result<CacheKey, NoKey>, DataError> {
        if let Err(error) = self.storage.is_supported(&context.paths.output_prefix) {
            return Ok(Err(NoKey::NoStore(error)));
        }
        let template = &context.template;
        let inputs = match declared_inputs(template) {
            None => None,
            Some(declared) => match inputs(&self.storage, &context.paths.input).await? {
                Ok(None) if declared.variables.is_empty() => None,
                Ok(Some(inputs)) => Some(inputs),
                Ok(None) => return Ok(Err(NoKey::inputs(context, "they are not there"))),
                Err(why) => return Ok(Err(NoKey::inputs(context, why))),
            },
        };
        Ok(CacheKey::of(template, inputs.as_ref(), version).map_err(NoKey::Template))
    }

    /// What is cached for a task: its outputs, as they are in a file. Entries that are too old, or lost their outputs,
    /// do not count.
    pub async fn look_up(&self, entry: &Entry) -> Seen<Bytes> {
        let unknown = |why| Seen::unknown(UnknownCause::Unreachable, why);
        let url = match self.find(entry).await {
            Ok(None) => return Seen::Absent,
            Ok(Some(Hit::Literals(outputs))) => return Seen::Present(outputs),
            Ok(Some(Hit::File(url))) => url,
            Err(error) => return unknown(chain(&error)),
        };
        match self.read(&url).await {
            Ok(Ok(outputs)) => Seen::Present(outputs),
            Ok(Err(_of_no_use)) => Seen::Absent,
            Err(error) => unknown(chain(&error)),
        }
    }

    /// Where the outputs are that are cached for a task; `None` where there are none, or only too old ones.
    ///
    /// # Errors
    /// Where the catalog cannot be asked.
    pub async fn find(&self, entry: &Entry) -> Result<Option<Hit>, CatalogError> {
        let owner = &entry.owner;
        let cached = match twice(|| self.catalog.get(&entry.key)).await {
            Ok(Some(cached)) => cached,
            Ok(None) => return Ok(None),
            Err(error @ CatalogError::BadEntry { .. }) => {
                tracing::warn!(%error, owner, "a cache entry is of no use");
                return Ok(None);
            }
            Err(error) => {
                let why = chain(&error);
                tracing::warn!(error = why, owner, "the cache cannot be asked");
                return Err(error);
            }
        };
        let updated_at = cached.metadata.as_ref().and_then(|it| it.last_updated_at);
        let updated_at = updated_at.and_then(from_proto);
        if !decide::is_young(updated_at, self.max_age, self.clock.now()) {
            return Ok(None);
        }
        Ok(match cached.output {
            Some(Output::OutputLiterals(literals)) => {
                Some(Hit::Literals(literals.encode_to_vec().into()))
            }
            Some(Output::OutputUri(url)) => Some(Hit::File(url)),
            None => {
                let why = "the entry is empty";
                tracing::warn!(why, owner, "cached outputs are of no use");
                None
            }
        })
    }

    /// Cached outputs at this URL, as they are in a file; or why they cannot be used, where the store has answered: there
    /// is nothing to wait for.
    ///
    /// # Errors
    /// Where the store did not answer.
    pub async fn read(&self, url: &str) -> Result<Result<Bytes, String>, DataError> {
        let outputs = match self.outputs(url).await {
            Err(error) if error.is_refusal() => Ok(Err(error.why())),
            outputs => outputs,
        };
        match &outputs {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => tracing::warn!(why, "cached outputs are of no use"),
            Err(error) => {
                tracing::warn!(error = chain(error), url, "cached outputs cannot be read");
            }
        }
        outputs
    }

    /// Writes cached outputs to where those of the attempt belong.
    ///
    /// # Errors
    /// Where the store did not take them.
    pub async fn copy(&self, entry: &Entry, outputs: Bytes) -> Result<(), DataError> {
        self.storage.write(&entry.file(), outputs).await
    }

    /// Takes the reservation of a task, or extends it. Asking again is harmless, whatever became of the first time.
    pub async fn reserve(&self, entry: &Entry, heartbeat: Duration) -> Claim {
        let (key, owner) = (&entry.key, &entry.owner);
        let catalog = &self.catalog;
        match twice(|| catalog.get_or_extend_reservation(key, owner, heartbeat)).await {
            Ok(reservation) => Claim::HeldBy {
                owner: reservation.owner,
                heartbeat: reservation.heartbeat,
            },
            Err(error) => {
                let why = chain(&error);
                tracing::warn!(error = why, owner, "a cache reservation is not to be had");
                Claim::Failed(why)
            }
        }
    }

    /// Gives a reservation up, if it is this action's; failing that, it ends by itself.
    pub async fn release(&self, entry: &Entry) {
        let (key, owner) = (&entry.key, &entry.owner);
        if let Err(error) = twice(|| self.catalog.release_reservation(key, owner)).await {
            let error = chain(&error);
            tracing::warn!(error, owner, "a cache reservation is not released");
        }
    }

    /// Cached outputs as they are in a file; or why there never will be any.
    async fn outputs(&self, url: &str) -> Result<Result<Bytes, String>, DataError> {
        Ok(match self.storage.read(url).await? {
            File::Read(bytes) => match LiteralMap::decode(bytes.clone()) {
                Ok(_) => Ok(bytes),
                Err(error) => Err(format!("{url} holds no outputs: {error}")),
            },
            File::Missing => Err(format!("{url} is not there any more")),
            File::TooLarge(size) => Err(format!("{url} has {size} bytes")),
        })
    }

    /// Caches the outputs of an attempt, if there are any; answers what the status says of it. Nothing of it keeps the
    /// attempt from ending: what fails is logged.
    pub async fn keep(&self, entry: &Entry, metadata: Metadata) -> CatalogCacheStatus {
        match self.has_outputs(entry).await {
            Ok(true) => self.put(entry, metadata).await,
            Ok(false) | Err(_) => CatalogCacheStatus::CachePutFailure,
        }
    }

    /// Whether an attempt has left outputs that can be cached.
    ///
    /// # Errors
    /// Where the store did not answer.
    pub async fn has_outputs(&self, entry: &Entry) -> Result<bool, DataError> {
        let url = entry.file();
        let exists = self.storage.exists(&url).await;
        match &exists {
            Ok(true) => {}
            Ok(false) => tracing::warn!(url, "there are no outputs to be cached"),
            Err(error) => tracing::warn!(error = chain(error), "outputs are not cached"),
        }
        exists
    }

    /// Caches the outputs of an attempt, which are there; answers what the status says of it. What fails is logged.
    pub async fn put(&self, entry: &Entry, metadata: Metadata) -> CatalogCacheStatus {
        let url = entry.file();
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
        let put = || self.catalog.put(&entry.key, output.clone(), replace);
        let put: Result<Put, CatalogError> = twice(put).await;
        if let Err(error) = &put {
            let owner = &entry.owner;
            tracing::warn!(error = chain(error), owner, "outputs are not cached");
        }
        decide::cache_status(&put)
    }
}

/// The inputs that the interface of a task declares.
fn declared_inputs(template: &TaskTemplate) -> Option<&VariableMap> {
    template.interface.as_ref()?.inputs.as_ref()
}

/// Asks a catalog once more where it fails for the moment: a cache that is of no use for once can cost hours.
async fn twice<T, F>(ask: impl Fn() -> F) -> Result<T, CatalogError>
where
    F: Future<Output = Result<T, CatalogError>>,
{
    match ask().await {
        Err(error) if error.class() == Class::Retry => {
            tokio::time::sleep(ASK_AGAIN).await;
            ask().await
        }
        answer => answer,
    }
}
