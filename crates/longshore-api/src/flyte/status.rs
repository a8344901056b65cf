//! The status of a TaskAction, which an executor writes. The status is also the executor's write-ahead log.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    CONDITION_FAILED, CONDITION_SUCCEEDED,
    wire::{self, is_zero},
};

/// `status` of a TaskAction. Zero values are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskActionStatus {
    /// A JSON text for observers, not read back.
    #[serde(skip_serializing_if = "is_zero")]
    pub state_json: String,
    /// What the plugin remembers, in the plugin's own encoding.
    #[serde(with = "wire::base64", skip_serializing_if = "is_zero")]
    pub plugin_state: Vec<u8>,
    /// Version of that encoding.
    #[serde(skip_serializing_if = "is_zero")]
    pub plugin_state_version: u8,
    /// The plugin's phase by its published name, as `PhaseRunning`.
    #[serde(skip_serializing_if = "is_zero")]
    pub plugin_phase: String,
    /// Orders changes within a phase.
    #[serde(skip_serializing_if = "is_zero")]
    pub plugin_phase_version: u32,
    /// The attempt, from 1; 0 before the first status, and then means 1.
    #[serde(skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// System failures: of the whole attempt, or of a job of a connector since its last progress.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_failures: u32,
    /// Number of `core.CatalogCacheStatus`; 0 is disabled.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_status: i32,
    /// One per type.
    #[serde(skip_serializing_if = "is_zero")]
    pub conditions: Vec<Condition>,
    /// Oldest first. Of a long history the first and the newest phases stay.
    #[serde(skip_serializing_if = "is_zero")]
    pub phase_history: Vec<PhaseTransition>,
    /// The last failure; stays after a success.
    #[serde(skip_serializing_if = "is_zero")]
    pub error_state: Option<ErrorState>,
    /// Of a condition action, by the actions service: `core.Literal`, encoded.
    #[serde(with = "wire::base64", skip_serializing_if = "is_zero")]
    pub signal_value: Vec<u8>,
    /// Of a condition action, by the actions service: the user who signalled.
    #[serde(skip_serializing_if = "is_zero")]
    pub signalled_by: String,
    /// Of a condition action, by the actions service: when.
    #[serde(with = "wire::optional_time", skip_serializing_if = "is_zero")]
    pub signalled_at: Option<Timestamp>,
}

impl TaskActionStatus {
    /// The status of a TaskAction; an object without one has an empty one.
    ///
    /// # Errors
    /// Where a field has another type than the schema says, or bytes are not base64.
    pub fn of(action: &Value) -> Result<Self, serde_json::Error> {
        action
            .get("status")
            .map_or_else(|| Ok(Self::default()), Self::deserialize)
    }

    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    /// Whether nothing follows: it succeeded, or it failed.
    pub fn is_terminal(&self) -> bool {
        [CONDITION_SUCCEEDED, CONDITION_FAILED]
            .into_iter()
            .any(|kind| self.condition(kind).is_some_and(Condition::is_true))
    }
}

/// A condition of Kubernetes (`metav1.Condition`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The generation of the object that it was set for; not written by Flyte.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When the status became what it is; a new reason or message does not count.
    #[serde(with = "wire::time")]
    pub last_transition_time: Timestamp,
    /// The reason, for programs, in CamelCase.
    pub reason: String,
    /// The message, for people.
    pub message: String,
}

impl Condition {
    /// Whether its status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// An entry of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseTransition {
    /// The phase that was entered, named like the reason of a condition.
    pub phase: String,
    /// When the phase was entered.
    #[serde(with = "wire::time")]
    pub occurred_at: Timestamp,
    /// The message, for people.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub message: String,
}

/// The last failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ErrorState {
    /// CamelCase, as `OOMKilled`.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: String,
    /// [`ERROR_KIND_USER`](super::ERROR_KIND_USER), [`ERROR_KIND_SYSTEM`](super::ERROR_KIND_SYSTEM), or empty.
    #[serde(skip_serializing_if = "is_zero")]
    pub kind: String,
    /// The message, for people.
    #[serde(skip_serializing_if = "is_zero")]
    pub message: String,
}
