//! The spec of a FlinkSessionJob.

use serde::{Deserialize, Serialize};

use super::{FlinkConfiguration, JobSpec, Spec};
use crate::json::Object;

/// A job on the session cluster of a FlinkDeployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlinkSessionJobSpec {
    /// The job. Required, although the schema does not say so.
    pub job: Option<JobSpec>,
    /// Another value than before restarts the job.
    pub restart_nonce: Option<i64>,
    /// Configuration of the job, above that of the session cluster.
    pub flink_configuration: Option<FlinkConfiguration>,
    /// The FlinkDeployment in the same namespace that runs the job. It cannot be changed.
    pub deployment_name: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

impl Default for FlinkSessionJobSpec {
    fn default() -> Self {
        Self {
            job: None,
            restart_nonce: None,
            // Absent is empty, `null` is none: upstream writes the one as `{}`, the other as `null`.
            flink_configuration: Some(FlinkConfiguration::default()),
            deployment_name: None,
            other: Object::default(),
        }
    }
}

impl Spec for FlinkSessionJobSpec {
    const CLASS: &'static str = "FlinkSessionJobSpec";

    fn job(&self) -> Option<&JobSpec> {
        self.job.as_ref()
    }

    fn job_mut(&mut self) -> Option<&mut JobSpec> {
        self.job.as_mut()
    }

    fn configuration(&self) -> Option<&FlinkConfiguration> {
        self.flink_configuration.as_ref()
    }
}
