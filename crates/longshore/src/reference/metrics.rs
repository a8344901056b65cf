//! `docs/reference/metrics.md`: every metric as the code registers it, also those that have no value yet.

use std::collections::BTreeSet;

use longshore_kit::{Metrics, metrics::DeclaredMetric};
use longshore_podops::PodMeasures;
use longshore_tasks::ActionMeasures;
use longshore_webhook::{Measures, Readiness};

use super::{
    head, is_in_the_repository,
    markdown::{code, table},
};
use crate::{controller::Standing, service::counts::Counts};

/// Metrics that are registered together.
struct Group {
    title: &'static str,
    /// Which processes and roles have values of them.
    about: &'static str,
    register: fn(&Metrics),
}

const GROUPS: [Group; 7] = [
    Group {
        title: "Controllers and their requests",
        about: "Every process and every role. The names that begin with `controller_runtime_` and `workqueue_` are those of controller-runtime, so that its dashboards work.",
        register: |_| {},
    },
    Group {
        title: "Leases",
        about: "`longshore controller`, every role that has a lease.",
        register: |metrics| {
            Standing::new(metrics, &[]);
        },
    },
    Group {
        title: "DAGs, and the process",
        about: "`standalone`, and the role `dags` of `longshore controller`; the last two in every role.",
        register: |metrics| {
            Counts::new(metrics);
        },
    },
    Group {
        title: "Workers of DAGs from Python",
        about: "`standalone`, and the role `dags` of `longshore controller`.",
        register: |metrics| {
            longshore_airflow_api::Measures::new(metrics);
        },
    },
    Group {
        title: "TaskActions",
        about: "`standalone`, and the role `tasks` of `longshore controller`. The names are those that an OpenTelemetry collector makes of Flyte's.",
        register: |metrics| {
            ActionMeasures::new(metrics);
        },
    },
    Group {
        title: "Webhooks",
        about: "The roles `webhook` and `podops` of `longshore controller`, and `standalone`.",
        register: |metrics| {
            Measures::new(metrics);
            Readiness::new(metrics);
        },
    },
    Group {
        title: "Operations on pods",
        about: "The role `podops` of `longshore controller`, and `standalone`.",
        register: |metrics| {
            PodMeasures::new(metrics);
        },
    },
];

/// The meanings of labels.
const LABELS: [(&str, &str); 22] = [
    (
        "blocker",
        "What kind of thing holds a pod, for example `Rule`, `Budget` or `Protection`. [Operating on pods](../podops.md) explains them.",
    ),
    (
        "client",
        "The part of Longshore that made the request, for example `dags`, `tasks` or `podops`.",
    ),
    ("code", "HTTP status of the answer; 0 where there was none."),
    (
        "configuration",
        "Kind and name of the webhook configuration.",
    ),
    (
        "controller",
        "Name of the controller, for example `dags.scheduler`.",
    ),
    (
        "error",
        "`true` where it failed or was not complete, else `false`.",
    ),
    (
        "from",
        "State of the task instance before; `waiting` where it had none.",
    ),
    (
        "kind",
        "Kind of the question to a foreign system, for example `log` or `rule_webhook`.",
    ),
    (
        "method",
        "HTTP method of the request; `other` where no path of the API was asked for.",
    ),
    (
        "name",
        "Of `workqueue_depth`: name of the controller. Of leases: name of the Lease.",
    ),
    ("op", "The request: `status_update`."),
    (
        "outcome",
        "`deleted`; `already_gone`: another client deleted the TaskAction first; `failed`: it stays until the next pass.",
    ),
    (
        "phase",
        "Of `taskaction_active`: phase of the plugin, or `Unknown`. Of `longshore_podops_pods`: phase of the pod.",
    ),
    (
        "resource",
        "Resource of the Kubernetes API with its subresource, for example `pods/status`; `other` for requests about no object.",
    ),
    (
        "result",
        "Of rounds: `success`, `requeue_after` (it waits for a time), `error`, `abandoned` (it was interrupted). Of pods: `created`, `exists`, `refused`, `unknown` (no answer). Of logs: `success`, `error`. Of questions: `answered`, `refused`, `timed_out`, `unreachable`, `not_understood`, `cancelled`.",
    ),
    (
        "role",
        "The role whose webhooks those are: `podops` or `webhook`.",
    ),
    (
        "route",
        "Path of the Task Execution API, with the names of its parameters; `other` where no path of the API was asked for.",
    ),
    (
        "state",
        "Of task instances: the state of the task instance; `waiting` where it has none yet. Of questions: `waiting`, `in_flight`.",
    ),
    ("to", "State of the task instance afterwards."),
    (
        "verb",
        "Verb of the Kubernetes API, for example `get`, `watch` or `patch`.",
    ),
    ("version", "Version of Longshore."),
    ("webhook", "Path of the webhook, without its token."),
];

#[test]
fn the_reference_of_metrics_is_what_is_registered() {
    is_in_the_repository("docs/reference/metrics.md", &page());
}

#[test]
fn every_label_of_a_metric_is_explained_and_no_other() {
    let groups = GROUPS.iter().flat_map(|group| registered(group.register));
    let used: BTreeSet<&str> = groups.flat_map(|metric| metric.labels).copied().collect();
    let explained: BTreeSet<&str> = LABELS.iter().map(|(name, _)| *name).collect();
    assert_eq!(used, explained);
}

fn page() -> String {
    let mut page = head(
        "Metrics",
        "What `/metrics` of `longshore standalone` and `longshore controller` serves, as OpenMetrics text. A metric with \
         labels is not in a scrape before it has a first value. Samples of a histogram have `_bucket`, `_sum` and `_count` \
         after its name.",
    );
    for group in &GROUPS {
        let rows = registered(group.register).into_iter().map(|metric| {
            let labels: Vec<String> = metric.labels.iter().map(|label| code(label)).collect();
            [
                code(&metric.name),
                metric.kind.clone(),
                labels.join(", "),
                unit(&metric).to_owned(),
                format!("{}.", metric.help),
            ]
        });
        let rows = table(["Metric", "Type", "Labels", "Unit", "Meaning"], rows);
        page += &format!("\n## {}\n\n{}\n\n{rows}", group.title, group.about);
    }
    page += "\n## Labels\n\n";
    let rows = LABELS.map(|(name, meaning)| [code(name), meaning.to_owned()]);
    page += &table(["Label", "Meaning"], rows);
    page
}

/// What `register` adds to the metrics that every process has; those themselves where it adds none.
fn registered(register: fn(&Metrics)) -> Vec<DeclaredMetric> {
    let metrics = Metrics::new();
    let n_common = metrics.declared().len();
    register(&metrics);
    let mut declared = metrics.declared();
    if declared.len() > n_common {
        declared.drain(..n_common);
    }
    declared
}

/// By the convention of Prometheus, the name says it.
fn unit(metric: &DeclaredMetric) -> &'static str {
    let name = metric.name.trim_end_matches("_total");
    [
        ("_milliseconds", "milliseconds"),
        ("_timestamp_seconds", "seconds since 1970"),
        ("_seconds", "seconds"),
        ("_bytes", "bytes"),
    ]
    .into_iter()
    .find(|(end, _)| name.ends_with(end))
    .map_or("", |(_, unit)| unit)
}
