//! The spec of a TaskAction.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    ACTION_TYPE_CONDITION,
    wire::{self, is_zero},
};

/// `spec` of a TaskAction. Written by the actions service; immutable by custom, though nothing enforces it.
///
/// A field that is absent reads as empty: which ones are required depends on the action's type, so the controller
/// checks them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskActionSpec {
    /// The run, 1 to 30 characters.
    #[serde(skip_serializing_if = "is_zero")]
    pub run_name: String,
    /// The project, 1 to 63 characters.
    #[serde(skip_serializing_if = "is_zero")]
    pub project: String,
    /// The domain, 1 to 63 characters.
    #[serde(skip_serializing_if = "is_zero")]
    pub domain: String,
    /// The action, 1 to 30 characters, unique in its run.
    #[serde(skip_serializing_if = "is_zero")]
    pub action_name: String,
    /// The action that created this one; empty for the root.
    #[serde(skip_serializing_if = "is_zero")]
    pub parent_action_name: String,
    /// [`ACTION_TYPE_TASK`](super::ACTION_TYPE_TASK), [`ACTION_TYPE_CONDITION`], or empty for the former.
    #[serde(skip_serializing_if = "is_zero")]
    pub action_type: String,
    /// Of a condition action: `flyteidl2.workflow.ConditionAction`, encoded.
    #[serde(with = "wire::base64", skip_serializing_if = "is_zero")]
    pub condition_spec: Vec<u8>,
    /// URL of `inputs.pb`, or of the directory with it.
    #[serde(skip_serializing_if = "is_zero")]
    pub input_uri: String,
    /// URL below which outputs go.
    #[serde(skip_serializing_if = "is_zero")]
    pub run_output_base: String,
    /// The version in the key of the cache, at most 256 characters.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_key: String,
    /// Selects the plugin, at most 63 characters.
    #[serde(skip_serializing_if = "is_zero")]
    pub task_type: String,
    /// For people, at most 63 characters.
    #[serde(skip_serializing_if = "is_zero")]
    pub short_name: String,
    /// `flyteidl2.core.TaskTemplate`, encoded. Kept as bytes: it may hold fields that this build does not know.
    #[serde(with = "wire::base64", skip_serializing_if = "is_zero")]
    pub task_template: Vec<u8>,
    /// Variables for all containers of the run.
    #[serde(skip_serializing_if = "is_zero")]
    pub env_vars: BTreeMap<String, String>,
    /// Whether the run may use machines that go away; absent is not the same as `false` to the run service.
    #[serde(skip_serializing_if = "is_zero")]
    pub interruptible: Option<bool>,
    /// The group within the run, at most 256 characters.
    #[serde(skip_serializing_if = "is_zero")]
    pub group: String,
}

impl TaskActionSpec {
    /// The spec of a TaskAction; an object without one has an empty one.
    ///
    /// # Errors
    /// Where a field has another type than the schema says, or bytes are not base64.
    pub fn of(action: &Value) -> Result<Self, serde_json::Error> {
        action
            .get("spec")
            .map_or_else(|| Ok(Self::default()), Self::deserialize)
    }

    /// Whether the action waits for a user instead of running a task. Any other type is a task, as upstream has it.
    pub fn is_condition(&self) -> bool {
        self.action_type == ACTION_TYPE_CONDITION
    }
}
