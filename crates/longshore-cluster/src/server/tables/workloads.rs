//! The tables of objects that make pods.

use serde_json::Value;

use super::{
    Column, Printer, age, integer, text,
    view::{NONE, View},
    wide,
};

const NAME: Column = text("Name");
const AGE: Column = text("Age");
const CONTAINERS: Column = wide("Containers");
const IMAGES: Column = wide("Images");
const SELECTOR: Column = wide("Selector");

#[expect(clippy::too_many_lines, reason = "a table: a row for each kind")]
pub(super) fn printer(qualified: &str) -> Option<Printer> {
    Some(match qualified {
        "deployments.apps" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Ready"),
                    text("Up-to-date"),
                    text("Available"),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            },
            cells: deployment,
        },
        "replicasets.apps" | "replicationcontrollers" => Printer {
            columns: const {
                &[
                    NAME,
                    integer("Desired"),
                    integer("Current"),
                    integer("Ready"),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            },
            cells: replica_set,
        },
        "statefulsets.apps" => Printer {
            columns: const { &[NAME, text("Ready"), AGE, CONTAINERS, IMAGES] },
            cells: stateful_set,
        },
        "daemonsets.apps" => Printer {
            columns: const {
                &[
                    NAME,
                    integer("Desired"),
                    integer("Current"),
                    integer("Ready"),
                    integer("Up-to-date"),
                    integer("Available"),
                    text("Node Selector"),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            },
            cells: daemon_set,
        },
        "jobs.batch" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Status"),
                    text("Completions"),
                    text("Duration"),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            },
            cells: job,
        },
        "cronjobs.batch" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Schedule"),
                    text("Timezone"),
                    Column {
                        cells: "boolean",
                        ..text("Suspend")
                    },
                    integer("Active"),
                    text("Last Schedule"),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            },
            cells: cron_job,
        },
        _ => return None,
    })
}

/// Names and images of the containers of a pod template.
fn containers(view: &View<'_>, template: &str) -> [Value; 2] {
    let list = format!("{template}/spec/containers");
    [view.each(&list, "name"), view.each(&list, "image")]
}

fn selector(view: &View<'_>) -> Value {
    let is_plain = view.object.pointer("/spec/selector/matchLabels").is_none();
    let pointer = if is_plain {
        "/spec/selector"
    } else {
        "/spec/selector/matchLabels"
    };
    view.labels(pointer)
}

/// The cells that every workload ends with in wide output.
fn with_template(view: &View<'_>, mut cells: Vec<Value>) -> Vec<Value> {
    cells.extend(containers(view, "/spec/template"));
    cells.push(selector(view));
    cells
}

fn fraction(view: &View<'_>, part: &str, whole: &str) -> Value {
    format!("{}/{}", view.number(part), view.number(whole)).into()
}

fn deployment(view: &View<'_>) -> Vec<Value> {
    let cells = vec![
        view.name(),
        fraction(view, "/status/readyReplicas", "/spec/replicas"),
        view.number("/status/updatedReplicas").into(),
        view.number("/status/availableReplicas").into(),
        view.age(),
    ];
    with_template(view, cells)
}

fn replica_set(view: &View<'_>) -> Vec<Value> {
    let cells = vec![
        view.name(),
        view.number("/spec/replicas").into(),
        view.number("/status/replicas").into(),
        view.number("/status/readyReplicas").into(),
        view.age(),
    ];
    with_template(view, cells)
}

fn stateful_set(view: &View<'_>) -> Vec<Value> {
    let mut cells = vec![
        view.name(),
        fraction(view, "/status/readyReplicas", "/spec/replicas"),
        view.age(),
    ];
    cells.extend(containers(view, "/spec/template"));
    cells
}

fn daemon_set(view: &View<'_>) -> Vec<Value> {
    let cells = vec![
        view.name(),
        view.number("/status/desiredNumberScheduled").into(),
        view.number("/status/currentNumberScheduled").into(),
        view.number("/status/numberReady").into(),
        view.number("/status/updatedNumberScheduled").into(),
        view.number("/status/numberAvailable").into(),
        view.labels("/spec/template/spec/nodeSelector"),
        view.age(),
    ];
    with_template(view, cells)
}

fn job(view: &View<'_>) -> Vec<Value> {
    let cells = vec![
        view.name(),
        job_status(view).into(),
        completions(view).into(),
        duration(view).into(),
        view.age(),
    ];
    with_template(view, cells)
}

fn job_status(view: &View<'_>) -> &'static str {
    let holds = |condition| view.is_condition_true(condition);
    match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if view.is_deleting() => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(view: &View<'_>) -> String {
    let n_succeeded = view.number("/status/succeeded");
    let parallelism = view.number("/spec/parallelism");
    match view
        .object
        .pointer("/spec/completions")
        .and_then(Value::as_i64)
    {
        Some(n_wanted) => format!("{n_succeeded}/{n_wanted}"),
        None if parallelism > 1 => format!("{n_succeeded}/1 of {parallelism}"),
        None => format!("{n_succeeded}/1"),
    }
}

fn duration(view: &View<'_>) -> String {
    let end = view.time("/status/completionTime").unwrap_or(view.now);
    view.time("/status/startTime")
        .map_or_else(String::new, |start| age::between(start, end))
}

fn cron_job(view: &View<'_>) -> Vec<Value> {
    let last = "/status/lastScheduleTime";
    let last = match view.text(last) {
        "" => NONE.to_owned(),
        _ => view.since(last),
    };
    // The column is of booleans, but upstream writes capitalised text into it.
    let suspend = if view.flag("/spec/suspend") {
        "True"
    } else {
        "False"
    };
    let mut cells = vec![
        view.name(),
        view.text("/spec/schedule").into(),
        view.text_or("/spec/timeZone", NONE),
        suspend.into(),
        view.items("/status/active").len().into(),
        last.into(),
        view.age(),
    ];
    cells.extend(containers(view, "/spec/jobTemplate/spec/template"));
    cells.push(view.labels("/spec/jobTemplate/spec/selector/matchLabels"));
    cells
}
