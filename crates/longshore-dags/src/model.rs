//! A DAG after validation: nothing in here can be wrong any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::timetable::Timetable;

mod canonical;
mod graph;
mod plugin;
mod python;
mod rules;
mod serialized;

pub use canonical::CanonicalError;
pub(crate) use graph::{Upstream, ancestors, find_cycles};
pub use longshore_airflow::serialized::TriggerRule;
pub use plugin::{Launcher, PluginTask};
pub use python::{PythonDag, PythonTask, TaskPart, Unsupported};
pub use rules::WeightRule;
pub use serialized::NotSchedulable;

/// Runs of a DAG at the same time, where the file says nothing.
pub const DEFAULT_MAX_ACTIVE_RUNS: u32 = 16;
/// Task instances of a run at the same time, where the file says nothing.
pub const DEFAULT_MAX_ACTIVE_TASKS: u32 = 16;
/// Wait between tries, where the file says nothing.
pub const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(300);
/// Size of a workspace, where the file names none.
pub const DEFAULT_WORKSPACE_SIZE: &str = "1Gi";
/// Where a workspace is mounted, where the file does not say.
pub const DEFAULT_WORKSPACE_MOUNT_PATH: &str = "/workspace";
/// Access mode of a workspace, where the file names none.
pub const DEFAULT_WORKSPACE_ACCESS_MODE: &str = "ReadWriteOnce";
/// All files beside a DAG together: they become one ConfigMap, and an API server takes no larger one.
pub const MAX_FILES_BYTES: usize = 1024 * 1024;

/// A validated DAG.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dag {
    /// Airflow's `dag_id`.
    pub dag_id: String,
    /// For people.
    pub description: Option<String>,
    /// As written, where it is one text: a cron expression, a preset, a duration. For people.
    pub schedule: Option<String>,
    /// When it runs, as Airflow encodes it.
    #[serde(default)]
    pub timetable: Timetable,
    /// From when on the schedule holds.
    #[serde(default)]
    pub start_date: Option<Timestamp>,
    /// Until when the schedule holds.
    #[serde(default)]
    pub end_date: Option<Timestamp>,
    /// Whether missed intervals are run.
    pub catchup: bool,
    /// Whether its schedule is paused when the DAG is first seen; default no.
    #[serde(default)]
    pub is_paused_upon_creation: bool,
    /// Defaults of the run's parameters.
    pub params: BTreeMap<String, Value>,
    /// Runs at the same time; default 16.
    pub max_active_runs: u32,
    /// Task instances queued or running at the same time, per run as in Airflow 3; default 16.
    pub max_active_tasks: u32,
    /// A run that takes longer fails.
    pub dagrun_timeout: Option<Duration>,
    /// By which users filter lists, as in the file.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Files beside the DAG by file name, at most 1 MiB in all; mounted at `$LONGSHORE_FILES`.
    #[serde(with = "canonical::base64_files")]
    pub files: BTreeMap<String, Vec<u8>>,
    /// The volume that all tasks of a run share, at `$LONGSHORE_WORKSPACE`.
    pub workspace: Option<Workspace>,
    /// The tasks by id. Every name in `upstream` is a key here, and there is no cycle.
    pub tasks: BTreeMap<String, Task>,
    /// What only a DAG from Python has; `None` for a container DAG.
    #[serde(skip)]
    pub python: Option<PythonDag>,
}

impl Dag {
    /// Whether the pods of a run share objects, which have to exist before the first of them.
    pub fn has_shared_objects(&self) -> bool {
        !self.files.is_empty() || self.workspace.is_some()
    }

    /// Whether some of its tasks become TaskActions.
    pub fn has_plugin_tasks(&self) -> bool {
        self.tasks.values().any(|task| task.plugin.is_some())
    }
}

/// The volume that the tasks of one run share: a claim in a cluster, a directory on the process node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// Kubernetes quantity, default `1Gi`.
    pub size: String,
    /// Where it is mounted; default `/workspace`.
    pub mount_path: String,
    /// The claim's storage class; `None` leaves the cluster's default.
    pub storage_class_name: Option<String>,
    /// The claim's access modes; default `ReadWriteOnce`.
    pub access_modes: Vec<String>,
}

/// A validated task: one container, run to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Airflow's `task_id`.
    pub task_id: String,
    /// The container's image.
    pub image: Option<String>,
    /// The container's entrypoint, in templates' text form.
    pub command: Vec<String>,
    /// The container's arguments, in templates' text form.
    pub args: Vec<String>,
    /// The container's environment in order, as Kubernetes `EnvVar` objects.
    pub env: Vec<Value>,
    /// The tasks that it waits for.
    pub upstream: BTreeSet<String>,
    /// The tasks that wait for it: the inverse of `upstream` over all tasks.
    #[serde(skip)]
    pub downstream: BTreeSet<String>,
    /// Tries after the first; default 0.
    pub retries: u32,
    /// Wait between tries; default 300 s.
    pub retry_delay: Duration,
    /// Multiplier of the wait by try; 0 and 1 mean none.
    pub retry_exponential_backoff: f64,
    /// No wait is longer.
    pub max_retry_delay: Option<Duration>,
    /// A try whose own container runs longer fails: the pod gets its `activeDeadlineSeconds` when the container has
    /// started, and where a plugin runs it, the scheduler's own clock counts.
    pub execution_timeout: Option<Duration>,
    /// When it may start, by the states of its upstream tasks.
    pub trigger_rule: TriggerRule,
    /// Whose slots it takes; default `default_pool`.
    pub pool: String,
    /// How many of them; default 1.
    pub pool_slots: u32,
    /// Its own weight; default 1.
    pub priority_weight: i64,
    /// How the weight in the queue follows from the own weights; default downstream.
    pub weight_rule: WeightRule,
    /// Task instances of this task queued or running at the same time, over all runs.
    pub max_active_tis_per_dag: Option<u32>,
    /// Which plugin runs it, and how; `None`: it runs in a pod of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginTask>,
    /// Whether it is a setup task (counted by `all_done_setup_success`).
    pub is_setup: bool,
    /// Whether it is the teardown of the setup tasks that it directly waits for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_teardown: bool,
    /// `executor_config.pod_override` as the user wrote it, else `None`.
    pub pod_override: Option<Value>,
    /// What only a task of a DAG from Python has, which a worker runs; `None` for a task of a container DAG.
    #[serde(skip)]
    pub python: Option<Box<PythonTask>>,
}
