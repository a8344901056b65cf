//! The engines that the suite runs on.

use std::sync::Arc;

use async_trait::async_trait;
use longshore_store::{RunStore, Store};
use tempfile::TempDir;

/// Makes empty stores of one engine.
#[async_trait]
pub(crate) trait Factory: Send + Sync {
    /// An empty store, and what must outlive it.
    async fn make(&self) -> (Arc<dyn RunStore>, Option<TempDir>);
}

pub(crate) struct Memory;

#[async_trait]
impl Factory for Memory {
    async fn make(&self) -> (Arc<dyn RunStore>, Option<TempDir>) {
        (Arc::new(Store::in_memory().await.unwrap()), None)
    }
}

pub(crate) struct File;

#[async_trait]
impl Factory for File {
    async fn make(&self) -> (Arc<dyn RunStore>, Option<TempDir>) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("runs.db")).await.unwrap();
        (Arc::new(store), Some(directory))
    }
}

/// Makes a test of each case for each engine.
macro_rules! on_every_engine {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $case() {
                use crate::stores::Factory as _;
                let (store, _directory) = crate::stores::Memory.make().await;
                super::$case(&*store).await;
            })*
        }
        mod file {
            $(#[tokio::test]
            async fn $case() {
                use crate::stores::Factory as _;
                let (store, _directory) = crate::stores::File.make().await;
                super::$case(&*store).await;
            })*
        }
    };
}
pub(crate) use on_every_engine;
