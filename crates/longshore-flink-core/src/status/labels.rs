//! The labels of a FlinkStateSnapshot, by which clients select them (spec 1.2).

use std::collections::BTreeMap;

use longshore_api::flink::{
    LABEL_JOB_REFERENCE_KIND, LABEL_JOB_REFERENCE_NAME, LABEL_SNAPSHOT_STATE,
    LABEL_SNAPSHOT_TRIGGER_TYPE, LABEL_SNAPSHOT_TYPE,
};

use super::{SnapshotState, TriggerType};
use crate::spec::{FlinkStateSnapshotSpec, JobKind};

/// Kubernetes has no longer values of labels.
const MAX_VALUE: usize = 63;

/// The labels that a snapshot has to have (upstream: `FlinkStateSnapshotUtils.getSnapshotLabels`). `trigger` is the label
/// that it has already, which stays; `state` is that of its status, `target` the resource of its job, as far as they are
/// known. The name of a target is left out where it is too long for a label.
pub fn snapshot_labels(
    spec: &FlinkStateSnapshotSpec,
    trigger: Option<&str>,
    state: Option<SnapshotState>,
    target: Option<(JobKind, &str)>,
) -> BTreeMap<&'static str, String> {
    let kind = if spec.savepoint.is_some() {
        "SAVEPOINT"
    } else {
        "CHECKPOINT"
    };
    let trigger = trigger.unwrap_or(TriggerType::Manual.as_str());
    let mut labels = BTreeMap::from([
        (LABEL_SNAPSHOT_TYPE, kind.to_owned()),
        (LABEL_SNAPSHOT_TRIGGER_TYPE, trigger.to_owned()),
    ]);
    if let Some(state) = state {
        labels.insert(LABEL_SNAPSHOT_STATE, state.as_str().to_owned());
    }
    if let Some((kind, name)) = target {
        labels.insert(LABEL_JOB_REFERENCE_KIND, kind.as_str().to_owned());
        if name.len() <= MAX_VALUE {
            labels.insert(LABEL_JOB_REFERENCE_NAME, name.to_owned());
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SavepointSpec;

    fn labels(
        spec: &FlinkStateSnapshotSpec,
        trigger: Option<&str>,
        state: Option<SnapshotState>,
        target: Option<(JobKind, &str)>,
    ) -> String {
        let labels = snapshot_labels(spec, trigger, state, target).into_iter();
        let labels = labels.map(|(key, value)| format!("{key}={value}"));
        labels.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn labels_say_what_a_snapshot_is_and_of_what() {
        let checkpoint = FlinkStateSnapshotSpec::default();
        let savepoint = FlinkStateSnapshotSpec {
            savepoint: Some(SavepointSpec::default()),
            ..FlinkStateSnapshotSpec::default()
        };
        let found = labels(&checkpoint, None, None, None);
        assert_eq!(
            found,
            "snapshot.trigger-type=MANUAL,snapshot.type=CHECKPOINT"
        );
        let target = Some((JobKind::FlinkSessionJob, "a"));
        let state = Some(SnapshotState::InProgress);
        let expected = "job-reference.kind=FlinkSessionJob,job-reference.name=a,snapshot.state=IN_PROGRESS,\
                        snapshot.trigger-type=UPGRADE,snapshot.type=SAVEPOINT";
        assert_eq!(labels(&savepoint, Some("UPGRADE"), state, target), expected);
        let long = "a".repeat(64);
        let target = Some((JobKind::FlinkDeployment, long.as_str()));
        let found = labels(&savepoint, None, None, target);
        assert!(found.starts_with("job-reference.kind=FlinkDeployment,snapshot.trigger-type"));
    }

    #[test]
    fn names_are_those_of_the_status() {
        for trigger in [
            TriggerType::Manual,
            TriggerType::Periodic,
            TriggerType::Upgrade,
            TriggerType::Unknown,
        ] {
            assert_eq!(serde_json::to_value(trigger).unwrap(), trigger.as_str());
        }
        for state in [
            SnapshotState::Completed,
            SnapshotState::Failed,
            SnapshotState::InProgress,
            SnapshotState::TriggerPending,
            SnapshotState::Abandoned,
        ] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
