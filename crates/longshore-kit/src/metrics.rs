//! What a process counts, and how it is read: names and help in one place, OpenMetrics text out.
//!
//! Labels come from closed sets: controllers, outcomes, verbs, resources. Objects, runs and messages are never one.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

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

use crate::outcome::Outcome;

mod registrar;

pub use registrar::{DeclaredMetric, Registrar};

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a process. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
}

struct Shared {
    registrar: Mutex<Registrar>,
    controllers: Controllers,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<VerbLabels, Histogram, Seconds>,
    pods_created: Family<ResultLabels, Counter>,
}

/// The names are those of controller-runtime, so that its dashboards work.
#[derive(Clone)]
struct Controllers {
    rounds: Family<RoundLabels, Counter>,
    errors: Family<ControllerLabels, Counter>,
    seconds: Family<ControllerLabels, Histogram, Seconds>,
    active: Family<ControllerLabels, Gauge>,
    depth: Family<QueueLabels, Gauge>,
    questions: Family<QuestionLabels, Gauge>,
    questions_ended: Family<QuestionResultLabels, Counter>,
    question_seconds: Family<QuestionKindLabels, Histogram, Seconds>,
    /// When the loop of each was last seen to turn.
    beats: Arc<Mutex<BTreeMap<&'static str, Instant>>>,
}

/// From a tenth of a millisecond (a round that decides nothing) to some ten seconds (an API server in trouble).
#[derive(Clone, Copy, Debug, Default)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.000_1, 4.0, 10))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoundLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuestionLabels {
    controller: &'static str,
    kind: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuestionResultLabels {
    controller: &'static str,
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuestionKindLabels {
    controller: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    client: &'static str,
    verb: &'static str,
    resource: String,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let controllers = Controllers::new();
        let requests = Family::default();
        let request_seconds = Family::new_with_constructor(Seconds);
        let pods_created = Family::default();
        let mut registrar = Registrar::default();
        controllers.register(&mut registrar);
        registrar.register(
            "longshore_api_requests",
            "Requests of our own parts to the Kubernetes API",
            &["client", "verb", "resource", "code"],
            requests.clone(),
        );
        registrar.register(
            "longshore_api_request_duration_seconds",
            "Time to the answer of a request to the Kubernetes API; of a watch, to its first byte",
            &["verb"],
            request_seconds.clone(),
        );
        registrar.register(
            "longshore_pods_created",
            "Requests that create a pod, by what came of them",
            &["result"],
            pods_created.clone(),
        );
        Self {
            shared: Arc::new(Shared {
                registrar: Mutex::new(registrar),
                controllers,
                requests,
                request_seconds,
                pods_created,
            }),
        }
    }
}

impl Controllers {
    fn new() -> Self {
        Self {
            rounds: Family::default(),
            errors: Family::default(),
            seconds: Family::new_with_constructor(Seconds),
            active: Family::default(),
            depth: Family::default(),
            questions: Family::default(),
            questions_ended: Family::default(),
            question_seconds: Family::new_with_constructor(Seconds),
            beats: Arc::default(),
        }
    }

    fn register(&self, registrar: &mut Registrar) {
        registrar.register(
            "controller_runtime_reconcile",
            "Rounds, by what came of them",
            &["controller", "result"],
            self.rounds.clone(),
        );
        registrar.register(
            "controller_runtime_reconcile_errors",
            "Rounds that failed",
            &["controller"],
            self.errors.clone(),
        );
        registrar.register(
            "controller_runtime_reconcile_time_seconds",
            "How long rounds took",
            &["controller"],
            self.seconds.clone(),
        );
        registrar.register(
            "controller_runtime_active_workers",
            "Rounds that run",
            &["controller"],
            self.active.clone(),
        );
        registrar.register(
            "workqueue_depth",
            "Keys that wait for a round, those that are due later included",
            &["name"],
            self.depth.clone(),
        );
        self.register_questions(registrar);
    }

    fn register_questions(&self, registrar: &mut Registrar) {
        registrar.register(
            "longshore_questions",
            "Questions to foreign systems that wait for their turn, and those in flight",
            &["controller", "kind", "state"],
            self.questions.clone(),
        );
        registrar.register(
            "longshore_questions_ended",
            "Questions to foreign systems that were sent, by what came of them",
            &["controller", "kind", "result"],
            self.questions_ended.clone(),
        );
        registrar.register(
            "longshore_question_duration_seconds",
            "Time from the sending of a question to a foreign system to its end",
            &["controller", "kind"],
            self.question_seconds.clone(),
        );
    }
}

impl Controllers {
    fn beats(&self) -> MutexGuard<'_, BTreeMap<&'static str, Instant>> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Metrics {
    /// No counts yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the metrics of a subsystem. Once per process and name.
    pub fn register(&self, add: impl FnOnce(&mut Registrar)) {
        add(&mut self.registrar());
    }

    /// What was registered, in that order.
    pub fn declared(&self) -> Vec<DeclaredMetric> {
        self.registrar().declared().to_vec()
    }

    /// Everything as OpenMetrics text.
    pub fn text(&self) -> String {
        self.registrar().text()
    }

    /// How long ago the loop of each controller of this process turned. It does every few seconds, whatever there is to
    /// do: one that does not hangs.
    pub fn since_beats(&self) -> BTreeMap<&'static str, Duration> {
        let beats = self.shared.controllers.beats();
        beats
            .iter()
            .map(|(controller, at)| (*controller, at.elapsed()))
            .collect()
    }

    /// Counts an answered request of `client`; `code` 0 is one without an answer.
    pub(crate) fn request(
        &self,
        client: &'static str,
        verb: &'static str,
        resource: String,
        code: u16,
        took: Duration,
    ) {
        if verb == "create" && resource == "pods" {
            let result = match code {
                200..=299 => "created",
                409 => "exists",
                0 => "unknown",
                _ => "refused",
            };
            let labels = ResultLabels { result };
            self.shared.pods_created.get_or_create(&labels).inc();
        }
        let seconds = &self.shared.request_seconds;
        seconds
            .get_or_create(&VerbLabels { verb })
            .observe(took.as_secs_f64());
        let labels = RequestLabels {
            client,
            verb,
            resource,
            code,
        };
        self.shared.requests.get_or_create(&labels).inc();
    }

    /// What one controller counts.
    pub(crate) fn controller(&self, controller: &'static str) -> ControllerMetrics {
        ControllerMetrics {
            controllers: self.shared.controllers.clone(),
            controller,
        }
    }

    fn registrar(&self) -> MutexGuard<'_, Registrar> {
        let registrar = self.shared.registrar.lock();
        registrar.unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one controller counts.
#[derive(Clone)]
pub(crate) struct ControllerMetrics {
    controllers: Controllers,
    controller: &'static str,
}

impl fmt::Debug for ControllerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControllerMetrics")
            .field(&self.controller)
            .finish()
    }
}

impl ControllerMetrics {
    /// A round ended.
    pub(crate) fn round(&self, outcome: Outcome, took: Duration) {
        let controller = self.controller;
        let of = ControllerLabels { controller };
        let result = match outcome {
            Outcome::Applied | Outcome::Skipped => "success",
            Outcome::Waiting => "requeue_after",
            Outcome::Failed => "error",
            Outcome::Abandoned => "abandoned",
        };
        let labels = RoundLabels { controller, result };
        self.controllers.rounds.get_or_create(&labels).inc();
        if outcome == Outcome::Failed {
            self.controllers.errors.get_or_create(&of).inc();
        }
        let seconds = self.controllers.seconds.get_or_create(&of);
        seconds.observe(took.as_secs_f64());
    }

    /// The loop turns: so many keys wait, and so many rounds run.
    pub(crate) fn load(&self, n_waiting: usize, n_running: usize) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let name = self.controller;
        let depth = self.controllers.depth.get_or_create(&QueueLabels { name });
        depth.set(count(n_waiting));
        let of = ControllerLabels { controller: name };
        self.controllers
            .active
            .get_or_create(&of)
            .set(count(n_running));
        self.controllers.beats().insert(name, Instant::now());
    }

    /// So many questions of a kind wait for their turn, and so many are in flight.
    pub(crate) fn questions(&self, kind: &'static str, n_waiting: usize, n_in_flight: usize) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        for (state, n) in [("waiting", n_waiting), ("in_flight", n_in_flight)] {
            let labels = QuestionLabels {
                controller: self.controller,
                kind,
                state,
            };
            let questions = &self.controllers.questions;
            questions.get_or_create(&labels).set(count(n));
        }
    }

    /// A question that was sent has ended.
    pub(crate) fn question(&self, kind: &'static str, result: &'static str, took: Duration) {
        let controller = self.controller;
        let labels = QuestionResultLabels {
            controller,
            kind,
            result,
        };
        self.controllers
            .questions_ended
            .get_or_create(&labels)
            .inc();
        let labels = QuestionKindLabels { controller, kind };
        let seconds = self.controllers.question_seconds.get_or_create(&labels);
        seconds.observe(took.as_secs_f64());
    }

    /// The loop begins; from the end of the guard on it is not expected to turn.
    pub(crate) fn begin(&self) -> Turning {
        Turning(self.clone())
    }
}

/// A loop that is expected to turn.
#[derive(Debug)]
pub(crate) struct Turning(ControllerMetrics);

impl Drop for Turning {
    fn drop(&mut self) {
        self.0.controllers.beats().remove(self.0.controller);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_read_with_its_name_and_help() {
        let metrics = Metrics::new();
        let controller = metrics.controller("dags.pods");
        controller.round(Outcome::Applied, Duration::from_millis(3));
        controller.round(Outcome::Failed, Duration::from_millis(3));
        controller.load(7, 2);
        controller.questions("log", 3, 1);
        controller.question("log", "timed_out", Duration::from_secs(10));
        let took = Duration::from_millis(1);
        metrics.request("dags", "create", "pods".to_owned(), 201, took);
        metrics.request("dags", "create", "pods".to_owned(), 409, took);
        let text = metrics.text();
        for line in [
            r#"controller_runtime_reconcile_total{controller="dags.pods",result="success"} 1"#,
            r#"controller_runtime_reconcile_total{controller="dags.pods",result="error"} 1"#,
            r#"controller_runtime_reconcile_errors_total{controller="dags.pods"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="dags.pods"} 2"#,
            r#"controller_runtime_active_workers{controller="dags.pods"} 2"#,
            r#"workqueue_depth{name="dags.pods"} 7"#,
            r#"longshore_questions{controller="dags.pods",kind="log",state="waiting"} 3"#,
            r#"longshore_questions{controller="dags.pods",kind="log",state="in_flight"} 1"#,
            r#"longshore_questions_ended_total{controller="dags.pods",kind="log",result="timed_out"} 1"#,
            r#"longshore_question_duration_seconds_count{controller="dags.pods",kind="log"} 1"#,
            r#"longshore_api_requests_total{client="dags",verb="create",resource="pods",code="201"} 1"#,
            r#"longshore_pods_created_total{result="created"} 1"#,
            r#"longshore_pods_created_total{result="exists"} 1"#,
            "# HELP workqueue_depth Keys that wait for a round, those that are due later included.",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
