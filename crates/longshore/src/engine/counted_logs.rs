//! The log directory, and how often it took a log.

use std::io;

use async_trait::async_trait;
use longshore_dags::logs::{LogArchive, LogDirectory, LogPath, LogStream};
use longshore_kit::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// Counts what a log directory takes and refuses.
#[derive(Debug)]
pub(crate) struct CountedLogs {
    logs: LogDirectory,
    stored: Family<ResultLabels, Counter>,
}

impl CountedLogs {
    /// Counts from now on.
    pub(crate) fn new(logs: LogDirectory, metrics: &Metrics) -> Self {
        let stored = Family::default();
        metrics.register(|registry| {
            registry.register(
                "longshore_log_upload",
                "Logs of ended pods that were to be stored, by what came of it",
                Family::clone(&stored),
            );
        });
        Self { logs, stored }
    }
}

#[async_trait]
impl LogArchive for CountedLogs {
    async fn store(&self, path: &LogPath, log: LogStream) -> io::Result<()> {
        let stored = self.logs.store(path, log).await;
        let result = if stored.is_ok() { "success" } else { "error" };
        let labels = ResultLabels { result };
        self.stored.get_or_create(&labels).inc();
        stored
    }
}
