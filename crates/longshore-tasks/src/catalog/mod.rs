//! The catalog of cached outputs (task action spec §7): a task with the same key gets the outputs that another run left
//! there, and of those that ask at the same time one fills the cache while the others wait.
//!
//! [`RemoteCatalog`] is the peer's cache service, [`EmbeddedCatalog`] a file; [`serve`](server::router) offers the
//! second as the first. [`decide`] says what a task's cache means for its attempts, [`Caching`] does it when the kit asks
//! it, and `observer` reads the answers.

mod caching;
pub mod decide;
mod embedded;
mod metadata;
mod observer;
mod remote;
mod reservation;
pub mod server;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use longshore_connect::ConnectError;
use longshore_core::{Class, Classify};
use longshore_plugins::CacheKey;
pub use longshore_proto::flyteidl2::{
    cacheservice::{CachedOutput, Metadata, cached_output::Output},
    core::CatalogCacheStatus,
};

pub use caching::{Caching, Entry, NoKey};
pub use embedded::{EmbeddedCatalog, OpenError};
pub use metadata::metadata;
pub(crate) use observer::assemble;
pub use observer::{Cache, Cached, Hit, Unkeyed};
pub use remote::RemoteCatalog;
pub use reservation::{Limits, Reservation};

/// Cached outputs, and the reservations of actions that are about to fill the cache.
#[async_trait]
pub trait Catalog: std::fmt::Debug + Send + Sync + 'static {
    /// What is cached under a key; `None` where nothing is.
    ///
    /// # Errors
    /// Where the catalog cannot be asked, which says nothing about the key.
    async fn get(&self, key: &CacheKey) -> Result<Option<CachedOutput>, CatalogError>;

    /// Caches outputs, unless there are some: those stay, however often this is asked for.
    ///
    /// # Errors
    /// Where it is not known to be done. It may be done.
    async fn put(
        &self,
        key: &CacheKey,
        output: CachedOutput,
        replace: Replace,
    ) -> Result<Put, CatalogError>;

    /// Takes the reservation of a key, or extends it; returns its owner, which may be another action.
    ///
    /// `heartbeat` is how soon the owner means to extend it. The catalog decides when it ends.
    ///
    /// # Errors
    /// Where its owner is not known.
    async fn get_or_extend_reservation(
        &self,
        key: &CacheKey,
        owner: &str,
        heartbeat: Duration,
    ) -> Result<Reservation, CatalogError>;

    /// Gives a reservation up. A reservation of another owner stays; one that is not there is no error.
    ///
    /// # Errors
    /// Where it is not known to be done. It ends by itself.
    async fn release_reservation(&self, key: &CacheKey, owner: &str) -> Result<(), CatalogError>;
}

/// Which outputs may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// None.
    Nothing,
    /// Those that were cached longer ago than this.
    OlderThan(Duration),
    /// All.
    Anything,
}

/// What became of outputs that were to be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// They are cached.
    Stored,
    /// Others are, and stay.
    AlreadyThere,
}

/// A catalog that did not do what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The cache service did not.
    #[error("the cache service cannot {what}")]
    Service {
        /// What it was asked for.
        what: &'static str,
        /// Why.
        source: ConnectError,
    },
    /// The cache service answered less than was asked for.
    #[error("the cache service answered without {0}")]
    Incomplete(&'static str),
    /// The file cannot be read.
    #[error("the catalog of this machine cannot be read: {0}")]
    NotRead(String),
    /// The file cannot be written.
    #[error("the catalog of this machine cannot be written; the log of the process says why")]
    NotWritten,
    /// An entry of the file cannot be read.
    #[error("the entry of {key:?} in the catalog of this machine cannot be read: {why}")]
    BadEntry {
        /// Whose.
        key: String,
        /// Why.
        why: String,
    },
}

impl Classify for CatalogError {
    fn class(&self) -> Class {
        match self {
            Self::Service { source, .. } => source.class(),
            Self::Incomplete(_) | Self::NotRead(_) | Self::NotWritten | Self::BadEntry { .. } => {
                Class::Retry
            }
        }
    }
}

/// As protobuf has it.
fn to_proto(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.as_second(),
        nanos: at.subsec_nanosecond(),
    }
}

/// From protobuf; `None` where no clock can show it.
fn from_proto(at: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(at.seconds, at.nanos).ok()
}

#[cfg(test)]
mod tests;
