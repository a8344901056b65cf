//! What a scheduler counts beside what the kit does: commits of its database, and logs that are stored.

use std::time::Duration;

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

/// The measures of a process, whichever scheduler runs in it. Clones share them; by default they are not exported.
#[derive(Clone, Debug)]
pub struct DagMeasures {
    commit_seconds: Histogram,
    stored_logs: Family<ResultLabels, Counter>,
}

impl Default for DagMeasures {
    fn default() -> Self {
        Self {
            // From a commit in memory to one on a disk in trouble.
            commit_seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 10)),
            stored_logs: Family::default(),
        }
    }
}

impl DagMeasures {
    /// Shows them. Once per process.
    pub fn register(&self, registrar: &mut Registrar) {
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

    /// A commit took this long, whatever came of it.
    pub(crate) fn committed(&self, time: Duration) {
        self.commit_seconds.observe(time.as_secs_f64());
    }

    /// The archive has stored a log, or has not.
    pub(crate) fn stored_log(&self, is_stored: bool) {
        let result = if is_stored { "success" } else { "error" };
        let labels = ResultLabels { result };
        self.stored_logs.get_or_create(&labels).inc();
    }
}
