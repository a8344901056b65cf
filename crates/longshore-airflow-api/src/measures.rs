//! The metrics of the Execution API.

use http::StatusCode;
use longshore_airflow::api::Route;
use longshore_kit::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        histogram::{Histogram, exponential_buckets},
    },
};
use tokio::time::Instant;

/// The metrics of one service. Clones share them; the default ones belong to no registry.
#[derive(Clone, Debug)]
pub struct Measures {
    seconds: Family<RouteLabels, Histogram, Seconds>,
    answers: Family<AnswerLabels, Counter>,
}

/// Routes are a closed list; a path of none is `other`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    method: &'static str,
    route: &'static str,
    code: u16,
}

/// From 100 µs (a heartbeat) to some 6 s (a state whose commit waits for a database in trouble).
#[derive(Clone, Copy, Debug)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.000_1, 3.0, 11))
    }
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            seconds: Family::new_with_constructor(Seconds),
            answers: Family::default(),
        }
    }
}

impl Measures {
    /// Counts here. Once per process.
    pub fn new(metrics: &Metrics) -> Self {
        let measures = Self::default();
        metrics.register(|registrar| {
            registrar.register(
                "longshore_execution_api_request_duration_seconds",
                "Time from the head of a worker's request to the head of its answer",
                &["method", "route"],
                measures.seconds.clone(),
            );
            registrar.register(
                "longshore_execution_api_requests",
                "Requests of workers, by the HTTP status of the answer",
                &["method", "route", "code"],
                measures.answers.clone(),
            );
        });
        measures
    }

    pub(crate) fn answered(&self, route: Option<&Route>, status: StatusCode, asked_at: Instant) {
        let (method, route) = route.map_or(("other", "other"), |it| (it.method.as_str(), it.path));
        let labels = RouteLabels { method, route };
        self.seconds
            .get_or_create(&labels)
            .observe(asked_at.elapsed().as_secs_f64());
        let labels = AnswerLabels {
            method,
            route,
            code: status.as_u16(),
        };
        self.answers.get_or_create(&labels).inc();
    }
}
