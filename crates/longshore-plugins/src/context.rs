//! Everything that a plugin may know about the attempt that it works for (task action spec §10).

use std::collections::BTreeMap;

use longshore_proto::flyteidl2::core::TaskTemplate;

/// One attempt of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskContext {
    /// Of the TaskAction, and of everything made for it.
    pub namespace: String,
    /// `<taskaction name>-<attempt - 1>`; plugins shorten it to what their resource allows.
    pub generated_name: String,
    /// From 1.
    pub attempt: u32,
    /// Retries plus one.
    pub max_attempts: u32,
    /// Spec fields, raw.
    pub run_name: String,
    /// Spec fields, raw.
    pub action_name: String,
    /// Spec fields, raw.
    pub project: String,
    /// Spec fields, raw.
    pub domain: String,
    /// The decoded template.
    pub template: TaskTemplate,
    /// Whether it may run on machines that go away.
    pub is_interruptible: bool,
    /// The variables that every container gets: `ACTION_NAME`, `RUN_NAME`, …, `spec.envVars`; reserved names win.
    pub env: BTreeMap<String, String>,
    /// For the resource and its pods.
    pub labels: BTreeMap<String, String>,
    /// For the resource and its pods.
    pub annotations: BTreeMap<String, String>,
    /// `None` leaves the pod's own.
    pub service_account: Option<String>,
    /// Where inputs and outputs are.
    pub paths: Paths,
}

/// Where inputs and outputs of an attempt are, as URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// `…/inputs.pb`.
    pub input: String,
    /// The directory of it.
    pub input_prefix: String,
    /// Where `outputs.pb` and `error.pb` of this attempt go.
    pub output_prefix: String,
    /// Where large outputs go.
    pub raw_output_prefix: String,
    /// `<raw output prefix>/_flytecheckpoints`.
    pub checkpoint: String,
    /// The checkpoint of the attempt before; empty for the first.
    pub previous_checkpoint: String,
}
