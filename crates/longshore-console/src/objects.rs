//! The JSON objects of the API. Field names are an interface: they may be added, never removed or renamed.
//!
//! States are Airflow's words as text, so that a client shows a state that is newer than itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The states of a run.
pub const RUN_STATES: &[&str] = &["queued", "running", "success", "failed"];
/// The states of a task instance; `null` in objects is `waiting` in filters and tables.
pub const TASK_STATES: &[&str] = &[
    "waiting",
    "scheduled",
    "queued",
    "running",
    "restarting",
    "success",
    "failed",
    "up_for_retry",
    "up_for_reschedule",
    "deferred",
    "awaiting_input",
    "upstream_failed",
    "skipped",
    "removed",
];

/// Several objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    /// Always `v1`.
    pub api_version: String,
    /// Always `List`.
    pub kind: String,
    /// The objects.
    pub items: Vec<T>,
    /// Where the next page begins, as the query's `continue`; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> List<T> {
    /// A whole list.
    pub fn of(items: Vec<T>) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "List".to_owned(),
            items,
            next: None,
        }
    }
}

/// A DAG as the service knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", default)]
pub struct Dag {
    /// The id of the DAG.
    pub dag_id: String,
    /// The description for people.
    pub description: Option<String>,
    /// The schedule as the DAG file has it.
    pub schedule: Option<String>,
    /// Whether its schedule is held.
    pub is_paused: bool,
    /// Tags for filters.
    pub tags: Vec<String>,
    /// Runs at the same time.
    pub max_active_runs: u32,
    /// Parameters with their defaults.
    pub params: BTreeMap<String, Value>,
    /// The file that the DAG was read from.
    pub file: Option<String>,
    /// What is wrong with the file now; the DAG stays as it was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When its schedule starts the next run.
    pub next_run_at: Option<Timestamp>,
    /// The newest run of the DAG.
    pub last_run: Option<Run>,
    /// How many tasks the DAG has.
    pub task_count: usize,
    /// The tasks of the DAG, each after the tasks that it waits for; `None` in a list of DAGs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<DagTask>>,
}

/// A task of a DAG.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DagTask {
    /// The id of the task within the DAG.
    pub task_id: String,
    /// The tasks that it waits for.
    pub upstream: Vec<String>,
    /// Tries after the first.
    pub retries: u32,
    /// When it may start, by the states of its upstream tasks.
    pub trigger_rule: String,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", default)]
pub struct Run {
    /// The id of the run's DAG.
    pub dag_id: String,
    /// The id of the run within the DAG.
    pub run_id: String,
    /// `scheduled`, `manual`, `backfill`.
    pub run_type: String,
    /// One of [`RUN_STATES`].
    pub state: String,
    /// The reason, where the state does not imply it.
    pub reason: Option<String>,
    /// What a queued run waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// When a queued run begins, at the earliest, where its logical date is to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The instant that it is about.
    pub logical_date: Option<Timestamp>,
    /// When it was created.
    pub queued_at: Option<Timestamp>,
    /// When its first task could start.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Parameters given at the trigger.
    pub params: Value,
}

impl Run {
    /// Whether the run has ended.
    pub fn is_finished(&self) -> bool {
        ["success", "failed"].contains(&self.state.as_str())
    }
}

/// A task instance: the current try of a task of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", default)]
pub struct Task {
    /// The id of the DAG.
    pub dag_id: String,
    /// The id of the run within the DAG.
    pub run_id: String,
    /// The id of the task within the DAG.
    pub task_id: String,
    /// -1 for an unmapped task.
    pub map_index: i32,
    /// One of [`TASK_STATES`]; `null` before its dependencies hold.
    pub state: Option<String>,
    /// 0 before the first try.
    pub try_number: u32,
    /// Tries that it may have.
    pub max_tries: u32,
    /// Whose slots it takes.
    pub pool: String,
    /// Why it never gets one as things are, or what its run or its pod waits for; only where a single task is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// When it got a slot.
    pub queued_at: Option<Timestamp>,
    /// When its process started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The name of the pod of the current try.
    pub pod: Option<String>,
    /// Why the last try ended badly.
    pub failure: Option<Failure>,
    /// When a task in `up_for_retry` is tried again, at the earliest; only where a single task is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_at: Option<Timestamp>,
    /// The small result of the task.
    pub result: Option<Value>,
    /// Why what the task left is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_note: Option<String>,
    /// The tries before the current one, oldest first; only where a single task is read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier_tries: Vec<Try>,
}

/// A pool of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", default)]
pub struct Pool {
    /// The name of the pool.
    pub name: String,
    /// How many slots; -1 is unlimited.
    pub slots: i64,
    /// The file of the DAG folder that the slots come from; without it, they come from a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// How large a pool is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolSize {
    /// How many slots; -1 is unlimited. It must be there.
    pub slots: Option<i64>,
}

/// A try that is over and was followed by another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Try {
    /// The number of the try, from 1.
    pub try_number: u32,
    /// The state in which the try ended.
    pub state: Option<String>,
    /// When its process started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The name of the pod of the try.
    pub pod: Option<String>,
    /// Why it ended badly.
    pub failure: Option<Failure>,
}

/// Why a try ended badly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failure {
    /// One sentence.
    pub message: String,
    /// The container's or pod's reason.
    pub reason: Option<String>,
    /// The exit code.
    pub exit_code: Option<i32>,
    /// The container.
    pub container: Option<String>,
}

/// A state change that was committed, or what keeps a pod from its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all_fields = "camelCase")]
pub enum Change {
    /// A state change of a run.
    RunChange {
        /// When the change was committed.
        at: Timestamp,
        /// The id of the DAG.
        dag_id: String,
        /// The id of the run within the DAG.
        run_id: String,
        /// The state before; `null` for a new run.
        from: Option<String>,
        /// The state now.
        to: String,
        /// The reason, where the states do not imply it.
        reason: Option<String>,
    },
    /// A state change of a task instance.
    TaskChange {
        /// When the change was committed.
        at: Timestamp,
        /// The id of the DAG.
        dag_id: String,
        /// The id of the run within the DAG.
        run_id: String,
        /// The id of the task within the DAG.
        task_id: String,
        /// -1 for an unmapped task.
        map_index: i32,
        /// The try that ended, or that starts.
        try_number: u32,
        /// The state before.
        from: Option<String>,
        /// The state now.
        to: Option<String>,
        /// The name of the pod, once the try has one.
        pod: Option<String>,
        /// Why the try ended badly.
        failure: Option<Failure>,
    },
    /// What keeps the pod of a queued task instance from its start, where that has changed.
    TaskPending {
        /// When it was seen.
        at: Timestamp,
        /// The id of the DAG.
        dag_id: String,
        /// The id of the run within the DAG.
        run_id: String,
        /// The id of the task within the DAG.
        task_id: String,
        /// -1 for an unmapped task.
        map_index: i32,
        /// `null` where nothing does any more.
        message: Option<String>,
    },
}

impl Change {
    /// DAG and run that it belongs to.
    pub fn run(&self) -> (&str, &str) {
        match self {
            Self::RunChange { dag_id, run_id, .. }
            | Self::TaskChange { dag_id, run_id, .. }
            | Self::TaskPending { dag_id, run_id, .. } => (dag_id, run_id),
        }
    }
}

/// A file of the DAG folder that could not be read as a DAG.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub struct ImportError {
    /// Relative to the folder.
    pub file: String,
    /// The DAG that it was before, which stays as it was; `null` for a file that never was one.
    pub dag_id: Option<String>,
    /// What is wrong, one problem a line.
    pub message: String,
    /// When it was read.
    pub parsed_at: Timestamp,
}

/// The body of a request that triggers a DAG.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Trigger {
    /// The new run's id; made from the time where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Parameters over the DAG's defaults.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub params: serde_json::Map<String, Value>,
    /// The instant that the run is about; now where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical_date: Option<Timestamp>,
}

/// The requested changes of a DAG.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DagPatch {
    /// Whether its schedule is held.
    pub is_paused: Option<bool>,
}

/// What is to be cleared with a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Clear {
    /// The tasks that wait for it too.
    pub downstream: bool,
}

/// One thing that the service needs in order to serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The name of the check, as `database`.
    pub name: String,
    /// Why the check fails; `null` where it succeeds.
    pub problem: Option<String>,
}
