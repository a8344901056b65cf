//! A session job that was submitted.

use std::time::Duration;

use longshore_api::flink::{REASON_SAVEPOINT_ERROR, REASON_UPGRADE_FAILED};
use longshore_flink_core::{
    conf::operator,
    diff::DiffType,
    spec::{DesiredState, FlinkSessionJobSpec, JobKind, Spec, UpgradeMode},
    status::{ErrorType, JobState, ReconciliationState},
    upgrade::{
        self, Decision, Facts, HaMetadata, LastSnapshot, Options, Runner, Switch, VersionChange,
        Way,
    },
};

use super::{Case, Deciding, submit};
use crate::{
    job::{self, Sight},
    record::Trouble,
    rest::RestCall,
    snapshot::due::{self, Due, Owner},
    stop::{self, Sources, Stop},
};

/// How old an observation may be upon which a job is stopped.
const FRESH: Duration = Duration::from_secs(5);

pub(super) fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let job = case.reconciled.as_ref().and_then(|it| it.spec.job());
    if job.is_some_and(|job| job.state == DesiredState::Suspended) {
        return suspended(case, draft);
    }
    if stop::is_pending(draft.common()) {
        return goes_on(case, draft);
    }
    let is_upgrading = draft.common().reconciliation_status.state == ReconciliationState::Upgrading;
    let is_changed = case.diff_kind() != DiffType::Ignore || is_upgrading;
    let state = draft.common().job_status.state;
    let is_at_rest = state.is_some_and(|it| it == JobState::Running || it.is_globally_terminal());
    let interval = if is_changed && !is_upgrading {
        FRESH.min(case.settings.progress_interval)
    } else if is_at_rest {
        case.settings.reconcile_interval
    } else {
        case.settings.progress_interval
    };
    let sight = job::observe(draft, interval)?;
    if sight == Sight::Missing && !draft.common().is_job_terminal() {
        lost(case, draft)?;
    }
    let reconciled = draft.common().reconciled::<FlinkSessionJobSpec>()?;
    let job = reconciled.as_ref().and_then(|it| it.spec.job());
    if job.is_some_and(|job| job.state == DesiredState::Suspended) {
        draft.look_after(Duration::ZERO);
        return Ok(());
    }
    if sight == Sight::Seen && draft.common().is_stable() && state != Some(JobState::Failed) {
        draft.status.common.error = None;
    }
    match sight {
        Sight::Pending => Ok(()),
        Sight::Seen | Sight::Missing | Sight::Dark if is_changed => upgrade(case, draft),
        Sight::Seen | Sight::Missing | Sight::Dark => {
            unchanged(case, draft)?;
            others(case, draft)
        }
    }
}

/// A job that the JobManager has lost: without state it is submitted again.
fn lost(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let common = draft.common();
    let common = if case.user_mode() == UpgradeMode::Stateless {
        let state = common.reconciliation_status.state;
        let suspended = common.cancelling::<FlinkSessionJobSpec>(UpgradeMode::Stateless)?;
        let mut suspended = suspended.job_suspended::<FlinkSessionJobSpec>()?;
        suspended.reconciliation_status.state = state;
        suspended
    } else {
        let mut common = common.clone();
        common.reconciliation_status.state = ReconciliationState::Deployed;
        common
    };
    draft.set_common(common);
    Ok(())
}

fn unchanged(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if draft.common().observed_generation != Some(case.generation) {
        let common = draft
            .common()
            .nothing_changed::<FlinkSessionJobSpec>(case.generation)?;
        draft.set_common(common);
    }
    Ok(())
}

/// The job is suspended: nothing runs, until that is to change.
fn suspended(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if case.wanted_state() == DesiredState::Suspended {
        if case.diff_kind() == DiffType::Ignore {
            return unchanged(case, draft);
        }
        // What the job left is restored in the recorded way, whatever else changes.
        let spec = case.wanted_by(case.restore_mode());
        let common = draft.common().after_deployment(&case.target(&spec))?;
        draft.set_common(common);
        return Ok(());
    }
    let mode = if case.diff_kind() == DiffType::SavepointRedeploy {
        submit::redeploy_from(case, draft);
        UpgradeMode::Savepoint
    } else if case.user_mode() == UpgradeMode::Stateless {
        UpgradeMode::Stateless
    } else {
        case.restore_mode()
    };
    suspend(case, draft, mode)
}

/// Puts on record that the job is stopped, and how the next one is restored.
fn suspend(case: &Case<'_>, draft: &mut Deciding<'_>, mode: UpgradeMode) -> Result<(), Trouble> {
    let spec = case.wanted_by(mode);
    let target = case.target(&spec);
    let common = if case.wanted_state() == DesiredState::Suspended {
        draft.common().after_deployment(&target)?
    } else {
        draft.common().before_attempt(&target)?
    };
    draft.set_common(common);
    draft.status.common.job_status.job_id = None;
    draft.look_after(Duration::ZERO);
    Ok(())
}

/// Goes on with a stop that is on record.
fn goes_on(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let ended = stop::step(draft, &case.settings, Sources::Kept)?;
    match &ended {
        Stop::UnderWay => Ok(()),
        Stop::Failed(message) => {
            stop::clear(&mut draft.status.common, &ended);
            draft.fail(ErrorType::UpgradeFailure, REASON_SAVEPOINT_ERROR, message);
            draft.look_after(case.settings.progress_interval);
            Ok(())
        }
        Stop::Done(path) => {
            due::keep_upgrade_savepoint(draft, &owner(case), path)?;
            stop::stopped(draft, &case.settings, path);
            stop::clear(&mut draft.status.common, &ended);
            suspend(case, draft, UpgradeMode::Savepoint)
        }
    }
}

fn upgrade(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let kind = case.diff_kind();
    let changes = case
        .diff()
        .map(|diff| format!("{kind} change(s) detected ({diff}), starting reconciliation."));
    let Some(facts) = facts(case, draft)? else {
        return Ok(());
    };
    let decision = if kind == DiffType::SavepointRedeploy {
        let is_over = draft.common().is_job_terminal();
        Decision::Upgrade(if is_over {
            Way::StatelessEnded
        } else {
            Way::Stateless
        })
    } else {
        upgrade::decide(&facts)
    };
    match decision {
        Decision::Fail(failure) => {
            draft.fail(
                ErrorType::UpgradeFailure,
                REASON_UPGRADE_FAILED,
                &failure.message(),
            );
            draft.look_after(case.settings.reconcile_interval);
            Ok(())
        }
        Decision::Wait(waiting) => {
            draft.look_after(case.settings.progress_interval);
            if waiting.allows_other_changes() {
                others(case, draft)
            } else {
                Ok(())
            }
        }
        Decision::Upgrade(way) => take(case, draft, way, changes, &facts),
    }
}

fn take(
    case: &Case<'_>,
    draft: &mut Deciding<'_>,
    way: Way,
    changes: Option<String>,
    facts: &Facts,
) -> Result<(), Trouble> {
    match way {
        Way::Savepoint => {
            if let Some(wait) = stop::begin(draft, &case.settings, case.generation) {
                draft.look_after(wait);
                return Ok(());
            }
            job::announce_upgrade(draft, changes, way.suspend());
            goes_on(case, draft)
        }
        Way::Cancel | Way::Stateless => {
            job::announce_upgrade(draft, changes, way.suspend());
            cancel(draft, way.restore())
        }
        Way::StatelessEnded | Way::Ended => {
            job::announce_upgrade(draft, changes, way.suspend());
            let is_empty = facts.last_snapshot == LastSnapshot::ProvenEmpty;
            let mode = if case.diff_kind() == DiffType::SavepointRedeploy {
                submit::redeploy_from(case, draft);
                UpgradeMode::Savepoint
            } else if is_empty {
                UpgradeMode::Stateless
            } else {
                way.restore()
            };
            suspend(case, draft, mode)
        }
        // They are of application clusters.
        Way::HaMetadata | Way::Unstarted => Ok(()),
    }
}

/// Cancels the job; what it leaves is found when it is over.
pub(super) fn cancel(draft: &mut Deciding<'_>, restore: UpgradeMode) -> Result<(), Trouble> {
    let common = draft.common().cancelling::<FlinkSessionJobSpec>(restore)?;
    draft.set_common(common);
    draft.status.common.job_status.state = Some(JobState::Cancelling);
    let job = draft.common().job_status.job_id.clone().unwrap_or_default();
    draft.consult(RestCall::Cancel { job }, None)?;
    Ok(())
}

/// What the decision depends on; `None` where an answer is missing.
fn facts(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<Option<Facts>, Trouble> {
    let Some(checkpoint_age) = job::checkpoint_age(draft, &case.settings)? else {
        return Ok(None);
    };
    let Some(last_snapshot) = job::last_snapshot(draft, true)? else {
        return Ok(None);
    };
    let is_fallback_on = case.config.get(&operator::LAST_STATE_FALLBACK)?;
    Ok(Some(Facts {
        requested: case.user_mode(),
        runner: Runner::SessionCluster,
        job: draft.common().job_status.state,
        version: VersionChange::Same,
        ha_observed: HaMetadata::Off,
        ha_wanted: HaMetadata::Off,
        last_snapshot,
        checkpoint_age,
        options: Options {
            fallback: Switch::from(is_fallback_on),
            job_cancel: Switch::from(case.settings.last_state_cancel),
            savepoint_directory: Switch::from(case.settings.savepoint_directory.is_some()),
        },
    }))
}

/// What is done to a job whose spec runs.
fn others(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if draft.common().job_status.state == Some(JobState::Failed) && case.settings.restarts_failed {
        let has_path = draft.common().job_status.last_savepoint().is_some();
        let mode = match case.user_mode() {
            UpgradeMode::Stateless => UpgradeMode::Stateless,
            UpgradeMode::Savepoint | UpgradeMode::LastState if has_path => UpgradeMode::Savepoint,
            UpgradeMode::Savepoint | UpgradeMode::LastState => {
                let message = upgrade::Failure::LastSnapshotUnknown.message();
                draft.fail(ErrorType::UpgradeFailure, REASON_UPGRADE_FAILED, &message);
                return Ok(());
            }
        };
        return suspend(case, draft, mode);
    }
    let (Some(wanted), Some(reconciled)) = (
        case.wanted.job(),
        case.reconciled.as_ref().and_then(|it| it.spec.job()),
    ) else {
        return Ok(());
    };
    let due = Due {
        owner: owner(case),
        uid: case.uid(),
        created_at: case.desired.created_at,
        snapshots: case.snapshots,
        target: case.target(&case.wanted),
        wanted,
        reconciled,
        config: &case.config,
        version: case.cluster_spec.as_ref().and_then(|it| it.flink_version),
    };
    if due::trigger(draft, &due)? {
        return Ok(());
    }
    due::clean_up(draft, case.snapshots, &case.config)
}

fn owner<'a>(case: &'a Case<'_>) -> Owner<'a> {
    Owner {
        kind: JobKind::FlinkSessionJob,
        namespace: &case.desired.target.namespace,
        name: &case.desired.target.name,
        settings: &case.settings,
    }
}
