//! Rules about a FlinkStateSnapshot.

use super::Invalid;
use crate::{spec::FlinkStateSnapshotSpec, status::SnapshotState};

/// Whether the resource that a snapshot names exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotTarget {
    /// It does.
    Found,
    /// It does not.
    Missing,
}

/// Validates a FlinkStateSnapshot of a namespace. `state` is the one of its status; none where it has no status.
///
/// # Errors
/// The first rule that does not hold.
pub fn validate_snapshot(
    namespace: &str,
    spec: &FlinkStateSnapshotSpec,
    target: SnapshotTarget,
    state: Option<SnapshotState>,
) -> Result<(), Invalid> {
    if spec.savepoint.is_some() == spec.checkpoint.is_some() {
        return Err(Invalid::new(
            "Exactly one of checkpoint or savepoint configurations has to be set.",
        ));
    }
    if spec.savepoint.as_ref().is_some_and(|it| it.already_exists) {
        return Ok(());
    }
    let Some(reference) = &spec.job_reference else {
        return Err(Invalid::new(
            "Job reference must be supplied for this snapshot",
        ));
    };
    // A snapshot that was triggered may outlive its job.
    let is_pending = match state {
        None | Some(SnapshotState::TriggerPending) => true,
        Some(
            SnapshotState::Completed
            | SnapshotState::Failed
            | SnapshotState::InProgress
            | SnapshotState::Abandoned,
        ) => false,
    };
    if is_pending && target == SnapshotTarget::Missing {
        let name = reference.name.as_deref().unwrap_or("null");
        return Err(Invalid(format!(
            "Target for snapshot {namespace}/{name} was not found"
        )));
    }
    Ok(())
}
