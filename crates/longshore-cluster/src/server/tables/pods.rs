//! The table of pods. The column STATUS combines many fields of a pod.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Column, Printer, age, text,
    view::{NONE, View},
    wide,
};

const COLUMNS: &[Column] = &[
    text("Name"),
    text("Ready"),
    text("Status"),
    text("Restarts"),
    text("Age"),
    wide("IP"),
    wide("Node"),
    wide("Nominated Node"),
    wide("Readiness Gates"),
];

pub(super) fn printer(qualified: &str) -> Option<Printer> {
    (qualified == "pods").then_some(Printer {
        columns: COLUMNS,
        cells,
    })
}

fn cells(view: &View<'_>) -> Vec<Value> {
    let summary = Summary::of(view);
    let restarts = match summary.last_restart {
        Some(last) if summary.n_restarts > 0 => {
            format!(
                "{} ({} ago)",
                summary.n_restarts,
                age::between(last, view.now)
            )
        }
        Some(_) | None => summary.n_restarts.to_string(),
    };
    vec![
        view.name(),
        format!("{}/{}", summary.n_ready, summary.n_containers).into(),
        summary.reason.into(),
        restarts.into(),
        view.age(),
        view.text_or("/status/podIPs/0/ip", NONE),
        view.text_or("/spec/nodeName", NONE),
        view.text_or("/status/nominatedNodeName", NONE),
        readiness_gates(view),
    ]
}

/// A pod in brief.
#[derive(Debug, Default)]
struct Summary {
    reason: String,
    n_containers: usize,
    n_ready: usize,
    n_restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn of(view: &View<'_>) -> Summary {
        let is_sidecar = |container: &&Value| container["restartPolicy"] == "Always";
        let sidecars: Vec<&Value> = view
            .items("/spec/initContainers")
            .iter()
            .filter(is_sidecar)
            .collect();
        let mut summary = Summary {
            reason: phase(view),
            n_containers: view.items("/spec/containers").len() + sidecars.len(),
            ..Summary::default()
        };
        let is_initializing = summary.add_init(view, &sidecars);
        if !is_initializing || view.is_condition_true("Initialized") {
            summary.add_main(view, &sidecars);
        }
        let is_over = matches!(view.text("/status/phase"), "Succeeded" | "Failed");
        if view.is_deleting() && view.text("/status/reason") == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if view.is_deleting() && !is_over {
            summary.reason = "Terminating".to_owned();
        }
        summary
    }

    /// Takes init containers in; says whether one of them still holds the pod up.
    fn add_init(&mut self, view: &View<'_>, sidecars: &[&Value]) -> bool {
        let statuses = view.items("/status/initContainerStatuses");
        for (index, status) in statuses.iter().enumerate() {
            self.count_restarts(status);
            let terminated = &status["state"]["terminated"];
            if terminated["exitCode"] == 0 {
                continue;
            }
            let is_sidecar = sidecars
                .iter()
                .any(|sidecar| sidecar["name"] == status["name"]);
            if is_sidecar && status["started"] == true {
                self.n_ready += usize::from(status["ready"] == true);
                continue;
            }
            let waiting = status["state"]["waiting"]["reason"].as_str().unwrap_or("");
            self.reason = if terminated.is_object() {
                format!("Init:{}", end_of(terminated))
            } else if !matches!(waiting, "" | "PodInitializing") {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", view.items("/spec/initContainers").len())
            };
            return true;
        }
        false
    }

    /// Takes main containers in. From here on only restarts of sidecars and these count.
    fn add_main(&mut self, view: &View<'_>, sidecars: &[&Value]) {
        (self.n_restarts, self.last_restart) = (0, None);
        for status in view.items("/status/initContainerStatuses") {
            if sidecars
                .iter()
                .any(|sidecar| sidecar["name"] == status["name"])
            {
                self.count_restarts(status);
            }
        }
        let mut is_running = false;
        for status in view.items("/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let state = &status["state"];
            let waiting = state["waiting"]["reason"].as_str().unwrap_or("");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if state["terminated"].is_object() {
                self.reason = end_of(&state["terminated"]);
            } else if status["ready"] == true && state["running"].is_object() {
                is_running = true;
                self.n_ready += 1;
            }
        }
        if self.reason == "Completed" && is_running {
            let is_ready = view.is_condition_true("Ready");
            self.reason = if is_ready { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.n_restarts += status["restartCount"].as_i64().unwrap_or(0);
        let last = status["lastState"]["terminated"]["finishedAt"]
            .as_str()
            .and_then(|time| time.parse().ok());
        self.last_restart = self.last_restart.max(last);
    }
}

/// Where a pod without container statuses stands.
fn phase(view: &View<'_>) -> String {
    let is_gated = view.items("/status/conditions").iter().any(|condition| {
        condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
    });
    if is_gated {
        return "SchedulingGated".to_owned();
    }
    match view.text("/status/reason") {
        "" => view.text("/status/phase").to_owned(),
        reason => reason.to_owned(),
    }
}

/// How a container ended.
fn end_of(terminated: &Value) -> String {
    let reason = terminated["reason"].as_str().unwrap_or("");
    let number = |key: &str| terminated[key].as_i64().unwrap_or(0);
    match (reason, number("signal")) {
        ("", 0) => format!("ExitCode:{}", number("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(view: &View<'_>) -> Value {
    let gates = view.items("/spec/readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let n_open = gates
        .iter()
        .filter(|gate| view.is_condition_true(gate["conditionType"].as_str().unwrap_or("")))
        .count();
    format!("{n_open}/{}", gates.len()).into()
}
