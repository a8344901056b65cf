//! The metrics of webhooks, under the names of controller-runtime, so that its dashboards work.

use http::StatusCode;
use longshore_kit::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
};
use tokio::time::Instant;

/// The metrics of the webhooks of a process. Clones share them; the default ones belong to no registry.
#[derive(Clone, Debug)]
pub struct Measures {
    seconds: Family<PathLabels, Histogram, Seconds>,
    answers: Family<AnswerLabels, Counter>,
    in_flight: Family<PathLabels, Gauge>,
    refused: Family<PathLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    webhook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    webhook: &'static str,
    code: u16,
}

/// From 50 µs (a decision) to some 3 s (a write to an API server in trouble).
#[derive(Clone, Copy, Debug)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.000_05, 3.0, 11))
    }
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            seconds: Family::new_with_constructor(Seconds),
            answers: Family::default(),
            in_flight: Family::default(),
            refused: Family::default(),
        }
    }
}

impl Measures {
    /// Counts here. Once per process.
    pub fn new(metrics: &Metrics) -> Self {
        let measures = Self::default();
        metrics.register(|registrar| {
            registrar.register(
                "controller_runtime_webhook_latency_seconds",
                "Time from the request of an API server to the answer",
                &["webhook"],
                measures.seconds.clone(),
            );
            registrar.register(
                "controller_runtime_webhook_requests",
                "Requests of API servers, by the HTTP status of the answer",
                &["webhook", "code"],
                measures.answers.clone(),
            );
            registrar.register(
                "controller_runtime_webhook_requests_in_flight",
                "Requests of API servers that have no answer yet",
                &["webhook"],
                measures.in_flight.clone(),
            );
            registrar.register(
                "longshore_webhook_unauthenticated_requests",
                "Requests of callers without credentials, answered with 401",
                &["webhook"],
                measures.refused.clone(),
            );
        });
        measures
    }

    /// A caller without credentials was refused.
    pub(crate) fn refused(&self, webhook: &'static str) {
        self.refused.get_or_create(&PathLabels { webhook }).inc();
    }

    /// A request came. It has no response until the guard ends.
    pub(crate) fn asked(&self, webhook: &'static str) -> Asked<'_> {
        let in_flight = self.in_flight.get_or_create(&PathLabels { webhook });
        in_flight.inc();
        Asked {
            measures: self,
            webhook,
            at: Instant::now(),
        }
    }
}

/// A request without a response yet.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    measures: &'a Measures,
    webhook: &'static str,
    at: Instant,
}

impl Asked<'_> {
    /// The request has its response.
    pub(crate) fn answered(self, status: StatusCode) {
        let labels = AnswerLabels {
            webhook: self.webhook,
            code: status.as_u16(),
        };
        self.measures.answers.get_or_create(&labels).inc();
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let webhook = self.webhook;
        let labels = PathLabels { webhook };
        let took = self.at.elapsed().as_secs_f64();
        self.measures.seconds.get_or_create(&labels).observe(took);
        self.measures.in_flight.get_or_create(&labels).dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_counted_with_its_answer() {
        let metrics = Metrics::new();
        let measures = Measures::new(&metrics);
        measures.asked("/a").answered(StatusCode::OK);
        let open = measures.asked("/a");
        let text = metrics.text();
        drop(open);
        measures.refused("/a");
        let text = text + &metrics.text();
        for line in [
            r#"controller_runtime_webhook_requests_total{webhook="/a",code="200"} 1"#,
            r#"controller_runtime_webhook_requests_in_flight{webhook="/a"} 1"#,
            r#"controller_runtime_webhook_latency_seconds_count{webhook="/a"} 1"#,
            r#"longshore_webhook_unauthenticated_requests_total{webhook="/a"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
