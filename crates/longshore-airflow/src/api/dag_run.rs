//! Bodies about DAGs and their runs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    time::UtcDateTime,
    words::{DagRunState, DagRunType},
};

/// A run, as a task sees it. Every member is written, null where it has no value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DagRun {
    /// The DAG.
    pub dag_id: String,
    /// The run.
    pub run_id: String,
    /// The instant that the run is about.
    pub logical_date: Option<UtcDateTime>,
    /// Begin of its data interval.
    pub data_interval_start: Option<UtcDateTime>,
    /// End of its data interval.
    pub data_interval_end: Option<UtcDateTime>,
    /// Before this it does not start.
    pub run_after: UtcDateTime,
    /// When it started.
    pub start_date: Option<UtcDateTime>,
    /// When it ended.
    pub end_date: Option<UtcDateTime>,
    /// How often it was cleared.
    #[serde(default)]
    pub clear_number: u32,
    /// What it was made by.
    pub run_type: DagRunType,
    /// Its state.
    pub state: DagRunState,
    /// What was given at the trigger.
    #[serde(default)]
    pub conf: Option<Map<String, Value>>,
    /// Who triggered it.
    #[serde(default)]
    pub triggering_user_name: Option<String>,
    /// The asset events that made it.
    pub consumed_asset_events: Vec<AssetEventReference>,
    /// Its partition.
    pub partition_key: Option<String>,
    /// The date of its partition.
    #[serde(default)]
    pub partition_date: Option<UtcDateTime>,
    /// A user's note.
    #[serde(default)]
    pub note: Option<String>,
    /// The team, with `[core] multi_team`.
    #[serde(default)]
    pub team_name: Option<String>,
}

/// An asset event that a run consumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetEventReference {
    /// The asset.
    pub asset: AssetReference,
    /// What the task that made the event said.
    pub extra: Map<String, Value>,
    /// That task.
    pub source_task_id: Option<String>,
    /// Its DAG.
    pub source_dag_id: Option<String>,
    /// Its run.
    pub source_run_id: Option<String>,
    /// Its map index.
    pub source_map_index: Option<i32>,
    /// The aliases by which it named the asset.
    pub source_aliases: Vec<AssetAliasReference>,
    /// When.
    pub timestamp: UtcDateTime,
    /// The partition.
    #[serde(default)]
    pub partition_key: Option<String>,
}

/// The asset of such an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetReference {
    /// Its name.
    pub name: String,
    /// Its address.
    pub uri: String,
    /// What the DAG says about it.
    pub extra: Map<String, Value>,
}

/// An alias of such an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetAliasReference {
    /// Its name.
    pub name: String,
}

/// A task makes a run: body of `POST /dag-runs/…`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TriggerDagRun {
    /// The instant that the run is about.
    pub logical_date: Option<UtcDateTime>,
    /// Before this it does not start; absent: now.
    pub run_after: Option<UtcDateTime>,
    /// Parameters.
    pub conf: Map<String, Value>,
    /// Whether a run of this id is cleared instead of refused. The SDK clears it by a request of its own.
    pub reset_dag_run: bool,
    /// Its partition.
    pub partition_key: Option<String>,
    /// A note.
    pub note: Option<String>,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DagRunStateAnswer {
    /// The state.
    pub state: DagRunState,
}

/// A DAG.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DagAnswer {
    /// Its id.
    pub dag_id: String,
    /// Whether nothing of it is scheduled.
    pub is_paused: bool,
    /// The bundle of its file.
    pub bundle_name: Option<String>,
    /// The bundle's version.
    pub bundle_version: Option<String>,
    /// Its file, from the bundle's root.
    pub relative_fileloc: Option<String>,
    /// Its owners, with commas between them.
    pub owners: Option<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// The logical date of its next run.
    pub next_dagrun: Option<UtcDateTime>,
}
