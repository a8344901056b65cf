//! FlinkStateSnapshots of an application cluster.

use longshore_flink_core::spec::{JobKind, Spec};

use super::{Case, Deciding};
use crate::{
    record::Trouble,
    snapshot::due::{self, Due, Owner},
};

/// Creates the resource of a snapshot that is due. Whether one was.
pub(super) fn trigger(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<bool, Trouble> {
    let Some(reconciled) = case.reconciled.as_ref().map(|it| &it.spec) else {
        return Ok(false);
    };
    let (Some(wanted_job), Some(reconciled_job)) = (case.wanted.job(), reconciled.job()) else {
        return Ok(false);
    };
    let due = Due {
        owner: owner(case),
        uid: case.uid(),
        created_at: case.desired.created_at,
        snapshots: case.snapshots,
        target: case.target(&case.wanted),
        wanted: wanted_job,
        reconciled: reconciled_job,
        config: &case.config,
        version: case.wanted.flink_version,
    };
    due::trigger(draft, &due)
}

/// The savepoint of an upgrade becomes a resource, so that people find it.
pub(super) fn keep_upgrade_savepoint(
    case: &Case<'_>,
    draft: &mut Deciding<'_>,
    path: &str,
) -> Result<(), Trouble> {
    due::keep_upgrade_savepoint(draft, &owner(case), path)
}

/// Deletes the resources of old snapshots that nobody but this operator has made.
pub(super) fn clean_up(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    due::clean_up(draft, case.snapshots, &case.config)
}

fn owner<'a>(case: &'a Case<'_>) -> Owner<'a> {
    Owner {
        kind: JobKind::FlinkDeployment,
        namespace: case.namespace(),
        name: case.name(),
        settings: &case.settings,
    }
}
