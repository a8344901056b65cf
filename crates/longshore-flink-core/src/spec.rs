//! What users wrote: the specs of the four kinds, field by field as upstream's CRDs have them (spec 1.1).
//!
//! No field is required and the schemas have no defaults, so that every default is applied here. Fields are in the order
//! in which upstream serialises them into a status, and the ones that are absent are written as `null` there: the texts
//! are compared.

mod configuration;
mod deployment;
mod job;
mod names;
mod session_job;
mod snapshot;
#[cfg(test)]
mod tests;

pub use configuration::FlinkConfiguration;
pub use deployment::{
    BlueGreenTemplate, DeploymentMode, FlinkBlueGreenDeploymentSpec, FlinkDeploymentSpec,
    IngressSpec, JobManagerSpec, QuantityText, ResourceRequirements, ResourceSpec, TaskManagerSpec,
};
pub use job::{DesiredState, JobSpec, UpgradeMode};
pub use names::{FlinkVersion, UnknownFlinkVersion};
pub use session_job::FlinkSessionJobSpec;
pub use snapshot::{
    CheckpointSpec, FlinkStateSnapshotSpec, JobKind, JobReference, SavepointFormat, SavepointSpec,
};

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use crate::json::Json;

/// What the specs of FlinkDeployments and FlinkSessionJobs have in common.
pub trait Spec: Clone + Serialize + DeserializeOwned {
    /// The name of upstream's class, as Events print it.
    const CLASS: &'static str;

    /// The job; none for a session cluster.
    fn job(&self) -> Option<&JobSpec>;

    /// The job, to change it.
    fn job_mut(&mut self) -> Option<&mut JobSpec>;

    /// What the user configured; empty where there is nothing.
    fn configuration(&self) -> Option<&FlinkConfiguration>;
}

/// A spec that is not one of its kind.
#[derive(Debug, thiserror::Error)]
#[error(
    "the spec of this {kind} cannot be read: expected one of flink.apache.org/v1beta1; correct the field that the cause names"
)]
pub struct InvalidSpec {
    kind: &'static str,
    #[source]
    source: serde_json::Error,
}

/// Reads the spec of an object of a kind; an absent one has all defaults.
///
/// # Errors
/// A field has a value that upstream's CRD does not allow.
pub fn read_spec<S: DeserializeOwned + Default>(
    kind: &'static str,
    spec: Option<&serde_json::Value>,
) -> Result<S, InvalidSpec> {
    match spec {
        None | Some(serde_json::Value::Null) => Ok(S::default()),
        Some(value) => S::deserialize(value).map_err(|source| InvalidSpec { kind, source }),
    }
}

/// An object of one of the kinds, with all its fields: those that are not known survive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest<S> {
    /// Group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// Name, namespace, labels and whatever else API servers keep there.
    #[serde(default)]
    pub metadata: Json,
    /// What the user wants. A canary has none.
    #[serde(default)]
    pub spec: S,
    /// What was last observed. It is read where the kind is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Json>,
}

/// A FlinkDeployment.
pub type FlinkDeployment = Manifest<FlinkDeploymentSpec>;
/// A FlinkSessionJob.
pub type FlinkSessionJob = Manifest<FlinkSessionJobSpec>;
/// A FlinkStateSnapshot.
pub type FlinkStateSnapshot = Manifest<FlinkStateSnapshotSpec>;
/// A FlinkBlueGreenDeployment.
pub type FlinkBlueGreenDeployment = Manifest<FlinkBlueGreenDeploymentSpec>;

/// Reads `null` as the default of the field, as upstream does for numbers and for fields that it never leaves empty.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
