//! The spec of a FlinkStateSnapshot.

use std::fmt;

use longshore_api::flink::{KIND_DEPLOYMENT, KIND_SESSION_JOB};
use serde::{Deserialize, Serialize};

use super::null_is_default;
use crate::json::Object;

/// One savepoint or checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlinkStateSnapshotSpec {
    /// Whose job. Not needed for a savepoint that exists already.
    pub job_reference: Option<JobReference>,
    /// A savepoint; either this or `checkpoint`.
    pub savepoint: Option<SavepointSpec>,
    /// A checkpoint; either this or `savepoint`.
    pub checkpoint: Option<CheckpointSpec>,
    /// How often a failed snapshot is tried again. Default -1: without limit.
    pub backoff_limit: i32,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

impl Default for FlinkStateSnapshotSpec {
    fn default() -> Self {
        Self {
            job_reference: None,
            savepoint: None,
            checkpoint: None,
            backoff_limit: -1,
            other: Object::default(),
        }
    }
}

/// The resource in the same namespace whose job a snapshot is of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobReference {
    /// Its kind.
    pub kind: Option<JobKind>,
    /// Its name.
    pub name: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// A kind of resources that run a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum JobKind {
    /// A FlinkDeployment.
    FlinkDeployment,
    /// A FlinkSessionJob.
    FlinkSessionJob,
}

impl JobKind {
    /// The kind as objects write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FlinkDeployment => KIND_DEPLOYMENT,
            Self::FlinkSessionJob => KIND_SESSION_JOB,
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A savepoint that is wanted, or one that exists already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SavepointSpec {
    /// Where it is written to. Default: the savepoint directory of the job.
    pub path: Option<String>,
    /// Its format. Default: canonical.
    #[serde(deserialize_with = "canonical_by_default")]
    pub format_type: SavepointFormat,
    /// Whether the data are deleted together with the resource. Default: they are.
    #[serde(deserialize_with = "true_by_default")]
    pub dispose_on_delete: bool,
    /// Whether the savepoint exists at `path` already. Then nothing is triggered.
    #[serde(deserialize_with = "null_is_default")]
    pub already_exists: bool,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

impl Default for SavepointSpec {
    fn default() -> Self {
        Self {
            path: None,
            format_type: SavepointFormat::Canonical,
            dispose_on_delete: true,
            already_exists: false,
            other: Object::default(),
        }
    }
}

fn true_by_default<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(true))
}

fn canonical_by_default<'de, D>(deserializer: D) -> Result<SavepointFormat, D::Error>
where
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or(SavepointFormat::Canonical))
}

/// A checkpoint that is wanted. It has no options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckpointSpec {
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// The format of a savepoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SavepointFormat {
    /// The same for every state backend.
    Canonical,
    /// That of the state backend.
    Native,
    /// Not recorded.
    #[default]
    Unknown,
}
