//! The engines that the suite runs on.

use std::sync::Arc;

use async_trait::async_trait;
use longshore_store::{AskedStore, Catalog, RunStore, Store, ToldStore};
use tempfile::TempDir;

use crate::databases;

/// All views of a store: those of the scheduler, of the service, and of workers.
pub(crate) trait AnyStore: RunStore + Catalog + ToldStore + AskedStore {}

impl AnyStore for Store {}

/// An empty store, and what must outlive it.
pub(crate) type Made = (Arc<dyn AnyStore>, Option<TempDir>);

/// Makes empty stores of one engine.
#[async_trait]
pub(crate) trait Factory: Send + Sync {
    /// An empty store; `None` where this machine does not have the engine.
    async fn make(&self) -> Option<Made>;
}

pub(crate) struct Memory;

#[async_trait]
impl Factory for Memory {
    async fn make(&self) -> Option<Made> {
        Some((Arc::new(Store::in_memory().await.unwrap()), None))
    }
}

pub(crate) struct File;

#[async_trait]
impl Factory for File {
    async fn make(&self) -> Option<Made> {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("runs.db")).await.unwrap();
        Some((Arc::new(store), Some(directory)))
    }
}

pub(crate) struct Postgres;

#[async_trait]
impl Factory for Postgres {
    async fn make(&self) -> Option<Made> {
        let url = databases::empty_database().await?;
        Some((Arc::new(Store::connect(&url).await.unwrap()), None))
    }
}

/// Makes a test of each case for each engine.
macro_rules! on_every_engine {
    ($($case:ident),* $(,)?) => {
        $crate::stores::on_engine!(memory, Memory, $($case),*);
        $crate::stores::on_engine!(file, File, $($case),*);
        $crate::stores::on_engine!(postgres, Postgres, $($case),*);
    };
}
pub(crate) use on_every_engine;

/// Makes a test of each case for one engine.
macro_rules! on_engine {
    ($module:ident, $factory:ident, $($case:ident),*) => {
        mod $module {
            $(#[tokio::test]
            async fn $case() {
                use $crate::stores::Factory as _;
                if let Some((store, _directory)) = $crate::stores::$factory.make().await {
                    super::$case(&*store).await;
                }
            })*
        }
    };
}
pub(crate) use on_engine;
