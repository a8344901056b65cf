//! The job of a spec.

use serde::{Deserialize, Serialize};

use super::null_is_default;
use crate::json::Object;

/// A Flink job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// Where the jar is: `local:///…` in the image, or a URI that is fetched. Without one, the main class is on the
    /// classpath.
    #[serde(rename = "jarURI")]
    pub jar_uri: Option<String>,
    /// Parallelism; ignored where `taskManager.replicas` is set. Must be above 0 otherwise.
    #[serde(deserialize_with = "null_is_default")]
    pub parallelism: i32,
    /// Main class.
    pub entry_class: Option<String>,
    /// Arguments of the main class.
    #[serde(deserialize_with = "null_is_default")]
    pub args: Vec<String>,
    /// Whether the job is to run. Default: it is.
    #[serde(deserialize_with = "null_is_default")]
    pub state: DesiredState,
    /// Another value than before triggers a savepoint. Deprecated upstream in favour of FlinkStateSnapshots.
    pub savepoint_trigger_nonce: Option<i64>,
    /// What the first deployment, or one by `savepointRedeployNonce`, starts from.
    pub initial_savepoint_path: Option<String>,
    /// Another value than before triggers a checkpoint. Deprecated upstream as well.
    pub checkpoint_trigger_nonce: Option<i64>,
    /// How state is carried over an upgrade. Default: not at all.
    #[serde(deserialize_with = "null_is_default")]
    pub upgrade_mode: UpgradeMode,
    /// Whether state that no operator of the job claims is dropped.
    pub allow_non_restored_state: Option<bool>,
    /// Another value than before redeploys the job from `initialSavepointPath`.
    pub savepoint_redeploy_nonce: Option<i64>,
    /// Another value than before clears what the autoscaler knows.
    pub autoscaler_reset_nonce: Option<i64>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

impl Default for JobSpec {
    fn default() -> Self {
        Self {
            jar_uri: None,
            parallelism: 0,
            entry_class: None,
            args: Vec::new(),
            state: DesiredState::Running,
            savepoint_trigger_nonce: None,
            initial_savepoint_path: None,
            checkpoint_trigger_nonce: None,
            upgrade_mode: UpgradeMode::Stateless,
            allow_non_restored_state: None,
            savepoint_redeploy_nonce: None,
            autoscaler_reset_nonce: None,
            other: Object::default(),
        }
    }
}

/// Whether a job is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DesiredState {
    /// It runs.
    #[default]
    Running,
    /// It is stopped; its state is kept as [`UpgradeMode`] says.
    Suspended,
}

/// How the state of a job is carried over an upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpgradeMode {
    /// A savepoint, taken while the job stops.
    Savepoint,
    /// The latest checkpoint or savepoint, whichever there is.
    LastState,
    /// No state.
    #[default]
    Stateless,
}
