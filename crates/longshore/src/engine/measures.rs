//! What a scheduler's database and its log directory are measured by.

use std::io;

use async_trait::async_trait;
use longshore_dags::logs::{LogArchive, LogDirectory, LogPath, LogStream, StorePermit};
use longshore_kit::metrics::Registrar;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// The measures of a process, whichever scheduler runs in it. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Measures {
    pub(super) commit_seconds: Histogram,
    stored_logs: Family<ResultLabels, Counter>,
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            // From a commit in memory to one on a disk in trouble.
            commit_seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 10)),
            stored_logs: Family::default(),
        }
    }
}

impl Measures {
    /// Shows them. Once per process.
    pub(crate) fn register(&self, registrar: &mut Registrar) {
        registrar.register(
            "longshore_store_commit_seconds",
            "How long commits of the database took",
            &[],
            self.commit_seconds.clone(),
        );
        registrar.register(
            "longshore_log_upload",
            "Logs of ended pods that were to be stored, by what came of that",
            &["result"],
            self.stored_logs.clone(),
        );
    }
}

/// A log directory that counts what it takes and refuses.
#[derive(Debug)]
pub(super) struct CountedLogs {
    pub(super) logs: LogDirectory,
    pub(super) measures: Measures,
}

#[async_trait]
impl LogArchive for CountedLogs {
    async fn store(&self, path: &LogPath, log: LogStream, permit: StorePermit) -> io::Result<()> {
        let stored = self.logs.store(path, log, permit).await;
        let result = if stored.is_ok() { "success" } else { "error" };
        let labels = ResultLabels { result };
        self.measures.stored_logs.get_or_create(&labels).inc();
        stored
    }
}
