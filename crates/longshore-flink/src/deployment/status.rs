//! What follows from the status of a FlinkDeployment: its summary, its conditions, the attempt that counts.

use jiff::Timestamp;
use longshore_api::flink::{
    CONDITION_SNAPSHOTS_UNAVAILABLE, CONDITION_UNSUPPORTED, CONDITION_UPGRADE_BLOCKED,
    REASON_SNAPSHOT_ERROR, REASON_UNSUPPORTED,
};
use longshore_flink_core::{
    json::Object,
    spec::FlinkDeploymentSpec,
    status::{CommonStatus, Condition, FlinkDeploymentStatus, UnreadableSpec, running_condition},
};

use crate::draft::{RunsJob, Settle, Standing};

/// Key of `clusterInfo`: the attempt to start the cluster that counts. Deployments of other attempts are deleted.
const CLUSTER_INFO_ATTEMPT: &str = "longshore-attempt";
/// Key of `clusterInfo`: the spec that is being deployed is the one that ran before, whatever is wanted since.
const CLUSTER_INFO_RESTART: &str = "longshore-restart";
/// Reason of the condition of an upgrade that waits.
const REASON_WAITING: &str = "Waiting";

impl RunsJob for FlinkDeploymentStatus {
    type Spec = FlinkDeploymentSpec;

    fn common(&self) -> &CommonStatus {
        &self.common
    }

    fn common_mut(&mut self) -> &mut CommonStatus {
        &mut self.common
    }
}

impl Settle for FlinkDeploymentStatus {
    fn error_mut(&mut self) -> &mut Option<String> {
        &mut self.common.error
    }

    fn settle(&mut self, now: Timestamp, standing: &Standing) -> Result<(), UnreadableSpec> {
        self.common.lifecycle_state = Some(self.lifecycle_state()?);
        let wanted = [
            (CONDITION_UPGRADE_BLOCKED, REASON_WAITING, &standing.blocked),
            (
                CONDITION_SNAPSHOTS_UNAVAILABLE,
                REASON_SNAPSHOT_ERROR,
                &standing.snapshots,
            ),
            (
                CONDITION_UNSUPPORTED,
                REASON_UNSUPPORTED,
                &standing.unsupported,
            ),
        ];
        let mut conditions: Vec<Condition> = running_condition(self, now)?.into_iter().collect();
        for (kind, reason, message) in wanted {
            if let Some(message) = message {
                conditions.push(condition(&self.conditions, kind, reason, message, now));
            }
        }
        self.conditions = conditions;
        Ok(())
    }
}

/// A condition that is true, since it became so.
fn condition(
    before: &[Condition],
    kind: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Condition {
    let before = before.iter().find(|it| it.r#type == kind);
    let since = before.and_then(|it| it.last_transition_time.clone());
    Condition {
        r#type: kind.to_owned(),
        status: "True".to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since.or_else(|| Some(format!("{now:.0}"))),
        other: Object::default(),
    }
}

/// The attempt that counts.
pub(super) fn attempt(status: &FlinkDeploymentStatus) -> Option<&str> {
    status
        .cluster_info
        .get(CLUSTER_INFO_ATTEMPT)
        .map(String::as_str)
}

/// Another attempt counts from now on; with `None` none does.
pub(super) fn set_attempt(status: &mut FlinkDeploymentStatus, attempt: Option<String>) {
    match attempt {
        Some(attempt) => {
            let key = CLUSTER_INFO_ATTEMPT.to_owned();
            status.cluster_info.insert(key, attempt);
        }
        None => {
            status.cluster_info.remove(CLUSTER_INFO_ATTEMPT);
        }
    }
}

/// Whether what is being deployed is what ran before.
pub(super) fn is_restart(status: &FlinkDeploymentStatus) -> bool {
    status.cluster_info.contains_key(CLUSTER_INFO_RESTART)
}

/// What ran before is deployed again.
pub(super) fn begin_restart(status: &mut FlinkDeploymentStatus) {
    let key = CLUSTER_INFO_RESTART.to_owned();
    status.cluster_info.insert(key, "true".to_owned());
}

/// What is wanted counts again.
pub(super) fn end_restart(status: &mut FlinkDeploymentStatus) {
    status.cluster_info.remove(CLUSTER_INFO_RESTART);
}
