//! What the controllers of jobs do about snapshots: those that a nonce or a schedule asks for get a resource, those that
//! upgrades leave, too, and those that are too many go (spec 10.1, 10.5).

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{Action, Delete};
use longshore_flink_core::{
    conf::FlinkConfig,
    spec::{FlinkVersion, JobSpec},
    status::{SnapshotKind, Target, TriggerType},
    triggers::{self, SnapshotName},
};

pub(crate) use super::resource::Owner;
use super::resource::{self, Request};
use crate::{
    deployment::SnapshotResource,
    draft::{Draft, RunsJob},
    record::Trouble,
};

/// A job that may have snapshots that are due.
#[derive(Debug)]
pub(crate) struct Due<'a, T> {
    pub(crate) owner: Owner<'a>,
    pub(crate) uid: &'a str,
    /// When the resource of the job was created.
    pub(crate) created_at: Timestamp,
    pub(crate) snapshots: &'a [Arc<SnapshotResource>],
    /// The wanted spec.
    pub(crate) target: Target<'a, T>,
    pub(crate) wanted: &'a JobSpec,
    pub(crate) reconciled: &'a JobSpec,
    pub(crate) config: &'a FlinkConfig,
    pub(crate) version: Option<FlinkVersion>,
}

/// Creates the resource of a snapshot that is due. Whether one was.
pub(crate) fn trigger<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    due: &Due<'_, S::Spec>,
) -> Result<bool, Trouble> {
    if !due.owner.settings.has_snapshot_resources {
        draft.standing.snapshots = untriggered(draft, due);
        return Ok(false);
    }
    for kind in [SnapshotKind::Savepoint, SnapshotKind::Checkpoint] {
        if trigger_kind(draft, due, kind)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is told about snapshots that are due and cannot become resources.
fn untriggered<S: RunsJob>(draft: &Draft<'_, S>, due: &Due<'_, S::Spec>) -> Option<String> {
    let is_due = |kind| {
        let last = resource::last_periodic_at(kind, &[], draft.common(), due.created_at);
        let is_due = triggers::due(kind, &facts(draft, due, last));
        matches!(is_due, Ok(Some(_)))
    };
    let is_any_due = is_due(SnapshotKind::Savepoint) || is_due(SnapshotKind::Checkpoint);
    is_any_due.then(|| due.owner.settings.no_snapshots.to_owned())
}

fn facts<'a, S: RunsJob>(
    draft: &'a Draft<'_, S>,
    due: &'a Due<'_, S::Spec>,
    last_periodic_at: Timestamp,
) -> triggers::Facts<'a> {
    triggers::Facts {
        status: &draft.common().job_status,
        wanted: due.wanted,
        reconciled: due.reconciled,
        config: due.config,
        version: due.version,
        last_periodic_at,
        now: draft.now(),
    }
}

fn trigger_kind<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    due: &Due<'_, S::Spec>,
    kind: SnapshotKind,
) -> Result<bool, Trouble> {
    let common = draft.common();
    let last = resource::last_periodic_at(kind, due.snapshots, common, due.created_at);
    let next_at = resource::next_at(kind, due.config, last);
    let is_due = triggers::due(kind, &facts(draft, due, last));
    match is_due {
        Ok(Some(TriggerType::Manual)) => {
            let nonce = kind.nonce(due.wanted).unwrap_or_default();
            let name = SnapshotName::Manual {
                uid: due.uid,
                nonce,
            };
            create(draft, &due.owner, kind, name, TriggerType::Manual)?;
            let common = draft.common().nonce_used(kind, &due.target)?;
            draft.set_common(common);
            Ok(true)
        }
        // One after the other: a schedule that is faster than the job has nothing of more of them.
        Ok(Some(_)) if resource::is_under_way(kind, due.snapshots) => Ok(false),
        Ok(Some(trigger)) => {
            // The instant at which it was due: a repeat has the same name.
            let name = SnapshotName::Periodic(next_at.unwrap_or(draft.now()));
            create(draft, &due.owner, kind, name, trigger)?;
            Ok(true)
        }
        Ok(None) => {
            if let Some(at) = next_at.filter(|at| *at >= draft.now()) {
                // At the instant itself it is not due yet.
                draft.look_after(draft.until(at) + std::time::Duration::from_millis(1));
            }
            Ok(false)
        }
        Err(error) => {
            draft.standing.snapshots = Some(error.to_string());
            Ok(false)
        }
    }
}

fn create<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    owner: &Owner<'_>,
    kind: SnapshotKind,
    name: SnapshotName<'_>,
    trigger: TriggerType,
) -> Result<(), Trouble> {
    let request = Request {
        kind,
        name: name.of(kind, owner.name),
        trigger,
        exists_at: None,
    };
    draft.act(Action::Create(resource::create(owner, &request)))
}

/// The savepoint of an upgrade becomes a resource, so that people find it: before the stop that made it leaves the record,
/// so that a repeat meets the first one.
pub(crate) fn keep_upgrade_savepoint<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    owner: &Owner<'_>,
    path: &str,
) -> Result<(), Trouble> {
    if !owner.settings.has_snapshot_resources {
        return Ok(());
    }
    let began_ms = draft.common().job_status.savepoint_info.trigger_timestamp;
    let began = began_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let name = SnapshotName::Upgrade(began.unwrap_or(draft.now()));
    let request = Request {
        kind: SnapshotKind::Savepoint,
        name: name.of(SnapshotKind::Savepoint, owner.name),
        trigger: TriggerType::Upgrade,
        exists_at: Some(path.to_owned()),
    };
    draft.act(Action::Create(resource::create(owner, &request)))
}

/// Deletes the resources of old snapshots that nobody but this operator has made.
pub(crate) fn clean_up<S: RunsJob>(
    draft: &mut Draft<'_, S>,
    snapshots: &[Arc<SnapshotResource>],
    config: &FlinkConfig,
) -> Result<(), Trouble> {
    for target in resource::expired(snapshots, config, draft.now())? {
        draft.act(Action::Delete(Delete {
            target,
            resource_version: None,
            grace_period_seconds: None,
            waits_for_dependents: false,
        }))?;
    }
    Ok(())
}
