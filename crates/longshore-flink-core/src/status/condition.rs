//! The condition `Running` of a FlinkDeployment.

use jiff::Timestamp;
use longshore_api::flink::CONDITION_RUNNING;
use serde::{Deserialize, Serialize};

use super::{FlinkDeploymentStatus, JobState, UnreadableSpec};
use crate::{
    json::Object,
    spec::{FlinkDeploymentSpec, Spec},
};

/// A condition, as Kubernetes has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Which one.
    pub r#type: String,
    /// `True` or `False`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// When `status` last changed (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// The condition that belongs to a status; none before the first deployment (upstream:
/// `FlinkDeploymentStatus.setRunningConditionIfRequired`).
///
/// # Errors
/// `lastReconciledSpec` cannot be read.
pub fn running_condition(
    status: &FlinkDeploymentStatus,
    now: Timestamp,
) -> Result<Option<Condition>, UnreadableSpec> {
    let Some(reconciled) = status.common.reconciled::<FlinkDeploymentSpec>()? else {
        return Ok(None);
    };
    let (is_running, reason, message) = if reconciled.spec.job().is_some() {
        let state = status
            .common
            .job_status
            .state
            .unwrap_or(JobState::Reconciling);
        let name = state.as_str();
        let message = format!("Job status {name}");
        (state == JobState::Running, capitalised(name), message)
    } else {
        let state = status.job_manager_deployment_status;
        let (reason, message) = (state.reason().to_owned(), state.message().to_owned());
        (state.is_rest_available(), reason, message)
    };
    let status_text = if is_running { "True" } else { "False" };
    let is_unchanged =
        |old: &&Condition| old.r#type == CONDITION_RUNNING && old.status == status_text;
    let old = status.conditions.iter().find(is_unchanged);
    let old_time = old.and_then(|old| old.last_transition_time.clone());
    Ok(Some(Condition {
        r#type: CONDITION_RUNNING.to_owned(),
        status: status_text.to_owned(),
        reason,
        message,
        last_transition_time: old_time.or_else(|| Some(format!("{now:.0}"))),
        other: Object::default(),
    }))
}

fn capitalised(name: &str) -> String {
    let lower = name.to_lowercase();
    let mut letters = lower.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
