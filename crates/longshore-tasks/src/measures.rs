//! What the executor counts beside what the kit does (task action spec §15), under the names that an OpenTelemetry
//! collector makes of upstream's.
//!
//! Nothing is listed or copied for it: each round has its action at hand, and a change of phase moves one count.

use std::{sync::Arc, time::Duration};

use longshore_api::flyte::TaskActionStatus;
use longshore_kit::{Counted, Metrics, Tally};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
};

use crate::model::ActionKey;

/// Where an action without a phase is counted.
const UNKNOWN: &str = "Unknown";

/// What the executor counts. Clones share it; by default nothing reads it.
#[derive(Clone, Debug, Default)]
pub struct ActionMeasures {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    active: Tally<ActionKey, Active>,
    requests: Family<RequestLabels, Histogram, Milliseconds>,
    sizes: Histogram,
    deletions: Family<OutcomeLabels, Counter>,
    sweeps: Family<ErrorLabels, Histogram, SweepMilliseconds>,
}

/// The phase of an action that has not ended.
#[derive(Debug, PartialEq)]
struct Active(Arc<str>);

impl Counted for Active {
    type Gauges = Family<PhaseLabels, Gauge>;

    fn gauges(&self, of: &Self::Gauges) -> Vec<Gauge> {
        let phase = self.0.to_string();
        vec![of.get_or_create(&PhaseLabels { phase }).clone()]
    }
}

/// From 1 ms to some 16 s.
#[derive(Clone, Copy, Debug)]
struct Milliseconds;

impl MetricConstructor<Histogram> for Milliseconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(1.0, 4.0, 8))
    }
}

/// Upstream's buckets.
#[derive(Clone, Copy, Debug)]
struct SweepMilliseconds;

impl MetricConstructor<Histogram> for SweepMilliseconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new([
            100.0, 500.0, 1_000.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0, 300_000.0,
        ])
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    op: &'static str,
    error: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    error: &'static str,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            active: Tally::default(),
            requests: Family::new_with_constructor(Milliseconds),
            // From 1 KiB to 4 MiB: etcd takes no more than 1.5 MiB.
            sizes: Histogram::new(exponential_buckets(1024.0, 4.0, 7)),
            deletions: Family::default(),
            sweeps: Family::new_with_constructor(SweepMilliseconds),
        }
    }
}

/// What became of an action that ended long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swept {
    /// This pass deleted it.
    Deleted,
    /// Another client had deleted it.
    AlreadyGone,
    /// It stays for the next pass.
    Failed,
}

impl ActionMeasures {
    /// Measures that are read with the others of the process. Once per process.
    pub fn new(metrics: &Metrics) -> Self {
        let measures = Self::default();
        let shared = &measures.shared;
        metrics.register(|registrar| {
            registrar.register(
                "taskaction_active",
                "TaskActions that have not ended, by the phase of their plugin",
                &["phase"],
                shared.active.gauges().clone(),
            );
            registrar.register(
                "taskaction_k8s_duration_milliseconds",
                "Time to the answer of a write of a TaskAction",
                &["op", "error"],
                shared.requests.clone(),
            );
            registrar.register(
                "taskaction_crd_size_bytes",
                "Size of TaskActions as JSON before each write of a status",
                &[],
                shared.sizes.clone(),
            );
            registrar.register(
                "taskaction_gc_deletions",
                "TaskActions that ended long ago, by what became of them",
                &["outcome"],
                shared.deletions.clone(),
            );
            registrar.register(
                "taskaction_gc_sweep_duration_milliseconds",
                "How long a pass over ended TaskActions took",
                &["error"],
                shared.sweeps.clone(),
            );
        });
        measures
    }

    /// Counts from nothing: another executor may have worked meanwhile.
    pub(crate) fn restart(&self) {
        self.shared.active.clear();
    }

    /// Counts an action under the phase of this status; under none, where it has ended or is gone.
    pub(crate) fn count(&self, key: &ActionKey, status: Option<&TaskActionStatus>) {
        let open = status.filter(|status| !status.is_terminal());
        let phase = open.map(|status| match status.plugin_phase.as_str() {
            "" => Active(UNKNOWN.into()),
            phase => Active(phase.into()),
        });
        self.shared.active.count(key, phase);
    }

    /// A status was written, or not, after this time, to an object that was so long before, in bytes.
    pub(crate) fn status_written(&self, took: Duration, is_written: bool, size: Option<usize>) {
        let labels = RequestLabels {
            op: "status_update",
            error: true_or_false(!is_written),
        };
        let requests = &self.shared.requests;
        requests.get_or_create(&labels).observe(milliseconds(took));
        if let Some(size) = size {
            let size = u32::try_from(size).unwrap_or(u32::MAX);
            self.shared.sizes.observe(f64::from(size));
        }
    }

    pub(crate) fn swept(&self, swept: Swept) {
        let outcome = match swept {
            Swept::Deleted => "deleted",
            Swept::AlreadyGone => "already_gone",
            Swept::Failed => "failed",
        };
        let labels = OutcomeLabels { outcome };
        self.shared.deletions.get_or_create(&labels).inc();
    }

    pub(crate) fn sweep_ended(&self, took: Duration, is_complete: bool) {
        let labels = ErrorLabels {
            error: true_or_false(!is_complete),
        };
        let sweeps = &self.shared.sweeps;
        sweeps.get_or_create(&labels).observe(milliseconds(took));
    }
}

fn true_or_false(is_it: bool) -> &'static str {
    if is_it { "true" } else { "false" }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use longshore_api::flyte::{CONDITION_SUCCEEDED, Condition};

    use super::*;

    fn key(name: &str) -> ActionKey {
        ActionKey {
            namespace: "flyte".to_owned(),
            name: name.to_owned(),
        }
    }

    fn in_phase(phase: &str) -> TaskActionStatus {
        TaskActionStatus {
            plugin_phase: phase.to_owned(),
            ..TaskActionStatus::default()
        }
    }

    #[test]
    fn each_action_that_has_not_ended_is_counted_once() {
        let metrics = Metrics::new();
        let measures = ActionMeasures::new(&metrics);
        let count = |phase: &str| {
            let line = format!("taskaction_active{{phase=\"{phase}\"}} ");
            let text = metrics.text();
            let found = text
                .lines()
                .find_map(|it| it.strip_prefix(&line).map(str::to_owned));
            found.unwrap_or_else(|| "0".to_owned())
        };
        for name in ["a", "b", "a"] {
            measures.count(&key(name), Some(&in_phase("")));
        }
        assert_eq!(count("Unknown"), "2");
        measures.count(&key("a"), Some(&in_phase("PhaseRunning")));
        assert_eq!(
            (count("Unknown"), count("PhaseRunning")),
            ("1".to_owned(), "1".to_owned())
        );
        let mut ended = in_phase("PhaseSuccess");
        ended.conditions.push(Condition {
            kind: CONDITION_SUCCEEDED.to_owned(),
            status: "True".to_owned(),
            observed_generation: 0,
            last_transition_time: jiff::Timestamp::UNIX_EPOCH,
            reason: String::new(),
            message: String::new(),
        });
        for _ in 0..2 {
            measures.count(&key("a"), Some(&ended));
            measures.count(&key("b"), None);
        }
        assert_eq!(
            (count("Unknown"), count("PhaseRunning")),
            ("0".to_owned(), "0".to_owned())
        );
        assert_eq!(count("PhaseSuccess"), "0");
    }

    #[test]
    fn each_write_of_a_status_has_its_time_in_milliseconds_and_says_whether_it_was_refused() {
        let metrics = Metrics::new();
        let measures = ActionMeasures::new(&metrics);
        for (milliseconds, is_written) in [(3, true), (5, true), (250, false)] {
            let took = Duration::from_millis(milliseconds);
            measures.status_written(took, is_written, is_written.then_some(2_000));
        }
        let text = metrics.text();
        let name = "taskaction_k8s_duration_milliseconds";
        for expected in [
            format!(r#"{name}_sum{{op="status_update",error="false"}} 8.0"#),
            format!(r#"{name}_count{{op="status_update",error="false"}} 2"#),
            format!(r#"{name}_sum{{op="status_update",error="true"}} 250.0"#),
            format!(r#"{name}_count{{op="status_update",error="true"}} 1"#),
            "taskaction_crd_size_bytes_count 2".to_owned(),
        ] {
            assert!(text.lines().any(|it| it == expected), "{expected}: {text}");
        }
    }
}
