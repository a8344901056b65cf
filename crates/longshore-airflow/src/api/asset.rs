//! Bodies about assets.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::time::UtcDateTime;

/// An asset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asset {
    /// Its name.
    pub name: String,
    /// Its address.
    pub uri: String,
    /// Its group.
    pub group: String,
    /// What the DAG says about it.
    #[serde(default)]
    pub extra: Option<Map<String, Value>>,
}

/// What a task says about an asset of its inlets or outlets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetProfile {
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its address.
    #[serde(default)]
    pub uri: Option<String>,
    /// `Asset`, `AssetAlias`, `AssetNameRef` or `AssetUriRef`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The inlets and outlets of a task that are not active. The worker fails the task if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InactiveAssets {
    /// These assets.
    pub inactive_assets: Vec<AssetProfile>,
}

/// Asset events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetEvents {
    /// The events, in the order that was asked for.
    pub asset_events: Vec<AssetEvent>,
}

/// An asset event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetEvent {
    /// Its id.
    pub id: i64,
    /// When.
    pub timestamp: UtcDateTime,
    /// What the task that made the event said.
    #[serde(default)]
    pub extra: Option<Map<String, Value>>,
    /// The asset.
    pub asset: Asset,
    /// The runs that the event made.
    pub created_dagruns: Vec<DagRunOfEvent>,
    /// The task that made the event.
    #[serde(default)]
    pub source_task_id: Option<String>,
    /// Its DAG.
    #[serde(default)]
    pub source_dag_id: Option<String>,
    /// Its run.
    #[serde(default)]
    pub source_run_id: Option<String>,
    /// Its map index.
    #[serde(default)]
    pub source_map_index: Option<i32>,
    /// The partition.
    #[serde(default)]
    pub partition_key: Option<String>,
}

/// A run that an asset event made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DagRunOfEvent {
    /// The run.
    pub run_id: String,
    /// Its DAG.
    pub dag_id: String,
    /// The instant that the run is about.
    pub logical_date: Option<UtcDateTime>,
    /// When it started.
    pub start_date: UtcDateTime,
    /// When it ended.
    pub end_date: Option<UtcDateTime>,
    /// Its state.
    pub state: String,
    /// Begin of its data interval.
    pub data_interval_start: Option<UtcDateTime>,
    /// End of its data interval.
    pub data_interval_end: Option<UtcDateTime>,
    /// Its partition.
    pub partition_key: Option<String>,
}
