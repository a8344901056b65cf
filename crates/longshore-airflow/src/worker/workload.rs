//! The workload of a worker: one try of one task instance.

use std::{fmt, fmt::Write as _};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Runs one try of one task instance. It holds a token, so `Debug` does not show all of it.
///
/// The executor's settings of the task are not part of it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecuteTask {
    /// The token of the workload: see [`crate::token`].
    pub token: String,
    /// The DAG's file, from the root of its bundle. Never empty.
    pub dag_rel_path: String,
    /// The bundle that the worker reads the file from.
    pub bundle_info: BundleInfo,
    /// The log of the try, below `[logging] base_log_folder`: see [`log_path`].
    pub log_path: Option<String>,
    /// The task instance.
    pub ti: WorkloadTask,
    /// The class of an integration with Sentry; empty: none.
    #[serde(default)]
    pub sentry_integration: String,
    /// The kind of the workload.
    #[serde(rename = "type")]
    pub kind: ExecuteTaskType,
}

/// The kind of a workload. Workers know others (`ExecuteCallback`, `RunTrigger`, `TestConnection`), which are other
/// objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecuteTaskType {
    /// Runs a task.
    #[default]
    ExecuteTask,
}

/// A bundle at a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleInfo {
    /// Its name in `[dag_processor] dag_bundle_config_list`.
    pub name: String,
    /// The version that the worker checks out; null: the worker takes what it finds.
    pub version: Option<String>,
}

/// The try of a task instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadTask {
    /// Its id, new for each try.
    pub id: Uuid,
    /// The task.
    pub task_id: String,
    /// The DAG.
    pub dag_id: String,
    /// The run.
    pub run_id: String,
    /// The try, from 1.
    pub try_number: u32,
    /// The version of the DAG.
    pub dag_version_id: Uuid,
    /// The map index, -1 where the task is not mapped.
    pub map_index: i32,
    /// The host of an earlier start.
    #[serde(default)]
    pub hostname: Option<String>,
    /// The trace of the run, as W3C `traceparent`.
    #[serde(default)]
    pub context_carrier: Option<Map<String, Value>>,
    /// The queue.
    #[serde(default = "default_queue")]
    pub queue: String,
    /// How much of its pool it takes.
    #[serde(default = "one")]
    pub pool_slots: u32,
    /// Its weight in the order of the queue.
    #[serde(default = "one_weight")]
    pub priority_weight: i32,
}

fn default_queue() -> String {
    "default".to_owned()
}

fn one() -> u32 {
    1
}

fn one_weight() -> i32 {
    1
}

impl ExecuteTask {
    /// The command line of the worker.
    ///
    /// # Errors
    /// The workload is no JSON, which it always is.
    pub fn args(&self) -> Result<Vec<String>, serde_json::Error> {
        let json = serde_json::to_string(self)?;
        let args = [
            "python",
            "-m",
            "airflow.sdk.execution_time.execute_workload",
            "--json-string",
        ];
        let args = args.into_iter().map(str::to_owned);
        Ok(args.chain([json]).collect())
    }

    /// The command line of the worker where the workload is in a file, so that the token is not in the pod's spec.
    #[must_use]
    pub fn args_of_file(path: &str) -> Vec<String> {
        let args = [
            "python",
            "-m",
            "airflow.sdk.execution_time.execute_workload",
            "--json-path",
            path,
        ];
        args.map(str::to_owned).to_vec()
    }
}

impl fmt::Debug for ExecuteTask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("ExecuteTask");
        shown.field("ti", &self.ti);
        shown.field("dag_rel_path", &self.dag_rel_path);
        shown.field("bundle_info", &self.bundle_info);
        shown.finish_non_exhaustive()
    }
}

/// The log of a try, by the default of `[logging] log_filename_template`. `map_index` is -1 where the task is not mapped.
#[must_use]
pub fn log_path(
    dag_id: &str,
    run_id: &str,
    task_id: &str,
    map_index: i32,
    try_number: u32,
) -> String {
    let mut path = format!("dag_id={dag_id}/run_id={run_id}/task_id={task_id}/");
    if map_index >= 0 {
        // Writing to a text cannot fail.
        let _ = write!(path, "map_index={map_index}/");
    }
    let _ = write!(path, "attempt={try_number}.log");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: &str = include_str!("../../testdata/execution-api/execute-task-workload.json");
    const RECORDED: [&str; 2] = [
        include_str!("../../testdata/execution-api/recorded/mapped_1.json"),
        include_str!("../../testdata/execution-api/recorded/deferrable_resume.json"),
    ];

    fn workloads() -> Vec<Value> {
        let live = serde_json::from_str(LIVE).unwrap();
        let recorded = RECORDED.map(|text| {
            let recording: Value = serde_json::from_str(text).unwrap();
            recording["workload"].clone()
        });
        [live].into_iter().chain(recorded).collect()
    }

    #[test]
    fn workloads_of_upstream_read_and_are_written_as_they_were() {
        for upstream in workloads() {
            let workload: ExecuteTask = serde_json::from_value(upstream.clone()).unwrap();
            assert_eq!(serde_json::to_value(&workload).unwrap(), upstream);
        }
    }

    #[test]
    fn the_log_has_upstreams_path() {
        let workload: ExecuteTask = serde_json::from_str(LIVE).unwrap();
        let WorkloadTask {
            dag_id,
            run_id,
            task_id,
            map_index,
            try_number,
            ..
        } = &workload.ti;
        let path = log_path(dag_id, run_id, task_id, *map_index, *try_number);
        assert_eq!(Some(path), workload.log_path);
        let mapped = log_path("d", "r", "t", 0, 2);
        assert_eq!(
            mapped,
            "dag_id=d/run_id=r/task_id=t/map_index=0/attempt=2.log"
        );
    }

    #[test]
    fn the_command_line_is_that_of_a_live_pod() {
        let pod: Value =
            serde_json::from_str(include_str!("../../testdata/executor/worker-pod-live.json"))
                .unwrap();
        let expected: Vec<String> =
            serde_json::from_value(pod["spec"]["containers"][0]["args"].clone()).unwrap();
        let workload: ExecuteTask = serde_json::from_str(&expected[4]).unwrap();
        let args = workload.args().unwrap();
        assert_eq!(args[..4], expected[..4]);
        let written: Value = serde_json::from_str(&args[4]).unwrap();
        assert_eq!(
            written,
            serde_json::from_str::<Value>(&expected[4]).unwrap()
        );
        let of_file = ExecuteTask::args_of_file("/run/workload.json");
        assert_eq!(of_file[..3], expected[..3]);
        assert_eq!(of_file[3..], ["--json-path", "/run/workload.json"]);
    }

    #[test]
    fn a_token_is_not_shown() {
        let mut workload: ExecuteTask = serde_json::from_str(LIVE).unwrap();
        workload.token = "secret".to_owned();
        assert!(!format!("{workload:?}").contains("secret"));
    }
}
