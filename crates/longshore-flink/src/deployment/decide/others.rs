//! What is done to an application cluster whose spec is deployed (spec 9.6, 9.7).

use jiff::{SignedDuration, Timestamp};
use longshore_api::flink::{
    REASON_RECOVER_DEPLOYMENT, REASON_RESTART_UNHEALTHY_JOB, REASON_ROLLBACK, REASON_UPGRADE_FAILED,
};
use longshore_core::EventType;
use longshore_flink_core::{
    health::{CLUSTER_INFO_KEY, ClusterHealth, Observation},
    spec::{FlinkDeploymentSpec, Spec, UpgradeMode},
    status::{ErrorType, JobManagerStatus, JobState, ReconciliationState, Target},
    upgrade::{Failure, HaMetadata, PodStart},
};

use super::{Case, Deciding, cluster, snapshots};
use crate::{
    deployment::status,
    draft::Reply,
    record::Trouble,
    rest::{RestAnswer, RestCall},
};

pub(super) fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if rolls_back(case, draft)? {
        return Ok(());
    }
    let state = draft.common().job_status.state;
    if state == Some(JobState::Failed) && case.settings.restarts_failed {
        return restart_failed(case, draft);
    }
    if snapshots::trigger(case, draft)? {
        return Ok(());
    }
    snapshots::clean_up(case, draft)?;
    if is_unhealthy(draft)? {
        return restart_unhealthy(case, draft);
    }
    if is_lost(case, draft) {
        return recover(case, draft);
    }
    shut_down(case, draft)
}

/// The upgrade mode that the user asks for.
fn user_mode(case: &Case<'_>) -> UpgradeMode {
    let job = case.wanted.job();
    job.map_or(UpgradeMode::Stateless, |job| job.upgrade_mode)
}

/// Starts what is deployed again, restored in this way.
fn start_again(
    case: &Case<'_>,
    draft: &mut Deciding<'_>,
    mode: UpgradeMode,
) -> Result<(), Trouble> {
    if draft.common().reconciliation_status.state == ReconciliationState::RolledBack {
        // What runs is the stable spec, beside the one that failed.
        return roll_back_to_stable(draft, mode);
    }
    let Some(reconciled) = &case.reconciled else {
        return Ok(());
    };
    let mut spec = reconciled.spec.clone();
    if let Some(job) = spec.job_mut() {
        job.upgrade_mode = mode;
    }
    let target = Target {
        generation: draft
            .common()
            .observed_generation
            .unwrap_or(case.generation),
        ..case.target(&spec)
    };
    let common = draft.common().before_attempt(&target)?;
    draft.set_common(common);
    status::set_attempt(&mut draft.status, None);
    status::begin_restart(&mut draft.status);
    draft.look_after(std::time::Duration::ZERO);
    Ok(())
}

/// A failed job starts from the newest state that it left (upstream: from an older one, FLINK-35857).
fn restart_failed(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let has_path = draft.common().job_status.last_savepoint().is_some();
    let mode = match user_mode(case) {
        UpgradeMode::Stateless => UpgradeMode::Stateless,
        UpgradeMode::Savepoint | UpgradeMode::LastState if has_path => UpgradeMode::Savepoint,
        UpgradeMode::Savepoint | UpgradeMode::LastState => {
            let message = Failure::LastSnapshotUnknown.message();
            draft.fail(ErrorType::UpgradeFailure, REASON_UPGRADE_FAILED, &message);
            return Ok(());
        }
    };
    start_again(case, draft, mode)
}

/// Observes the health of a job that runs.
pub(super) fn observe_health(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let job = &draft.common().job_status;
    let is_running = job.state == Some(JobState::Running);
    let (Some(limits), Some(id), true) = (&case.settings.health, job.job_id.clone(), is_running)
    else {
        return Ok(());
    };
    let again = case.settings.reconcile_interval;
    let call = RestCall::Metrics { job: id };
    let Reply::Said(RestAnswer::Metrics(metrics), at) = draft.consult(call, Some(again))? else {
        return Ok(());
    };
    let Ok(seen) = Observation::of(metrics, at.as_millisecond()) else {
        return Ok(());
    };
    let before = ClusterHealth::read(&draft.status.cluster_info)?;
    let health = match before {
        Some(before) if before.time_stamp == seen.at_ms => return Ok(()),
        Some(before) => match before.next(&seen, limits) {
            Ok(health) => health,
            Err(_) => return Ok(()),
        },
        None => ClusterHealth::first(&seen),
    };
    let info = &mut draft.status.cluster_info;
    info.insert(CLUSTER_INFO_KEY.to_owned(), health.to_text());
    Ok(())
}

fn is_unhealthy(draft: &Deciding<'_>) -> Result<bool, Trouble> {
    let health = ClusterHealth::read(&draft.status.cluster_info)?;
    let is_bad = health.is_some_and(|it| !it.health_result.healthy);
    Ok(is_bad && !draft.common().is_job_terminal())
}

fn restart_unhealthy(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let Some(mode) = mode_of_restart(case, draft)? else {
        return Ok(());
    };
    let health = ClusterHealth::read(&draft.status.cluster_info)?;
    let error = health
        .and_then(|it| it.health_result.error)
        .unwrap_or_default();
    draft.announce(EventType::Warning, REASON_RESTART_UNHEALTHY_JOB, error);
    start_again(case, draft, mode)
}

/// How a job whose end nobody saw starts again; `None` where nothing tells what it left.
fn mode_of_restart(case: &Case<'_>, draft: &Deciding<'_>) -> Result<Option<UpgradeMode>, Trouble> {
    let is_stateless = user_mode(case) == UpgradeMode::Stateless;
    let is_on = case.ha(&case.config)? == HaMetadata::Present;
    Ok(if is_on && case.metadata_of_job(&draft.status).is_some() {
        Some(UpgradeMode::LastState)
    } else {
        is_stateless.then_some(UpgradeMode::Stateless)
    })
}

fn is_lost(case: &Case<'_>, draft: &Deciding<'_>) -> bool {
    let is_missing = draft.status.job_manager_deployment_status == JobManagerStatus::Missing;
    case.settings.recovers && is_missing && !draft.common().is_job_terminal()
}

fn recover(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let Some(mode) = mode_of_restart(case, draft)? else {
        let message = Failure::NoJobManager.message();
        draft.fail(ErrorType::UpgradeFailure, REASON_UPGRADE_FAILED, &message);
        return Ok(());
    };
    let note = "Recovering lost deployment";
    draft.announce(EventType::Warning, REASON_RECOVER_DEPLOYMENT, note);
    start_again(case, draft, mode)
}

/// The JobManager of a job that is over goes some time after the end.
pub(super) fn shut_down(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let status = &draft.common().job_status;
    let ended_ms = status.update_time.as_deref().and_then(|it| it.parse().ok());
    let ended = ended_ms.and_then(|ms: i64| Timestamp::from_millisecond(ms).ok());
    let (Some(ended), Some(job_manager), true) = (
        ended,
        cluster::owned(case)?,
        draft.common().is_job_terminal(),
    ) else {
        return Ok(());
    };
    let ttl = std::time::Duration::try_from(case.settings.shutdown_ttl).unwrap_or_default();
    match draft.left(ended, ttl) {
        Some(left) => {
            draft.look_after(left);
            Ok(())
        }
        None => {
            draft.status.job_manager_deployment_status = JobManagerStatus::Missing;
            cluster::remove(draft, job_manager, UpgradeMode::LastState)
        }
    }
}

/// Begins a rollback where the deployed spec has not become stable in time.
fn rolls_back(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<bool, Trouble> {
    let reconciliation = &draft.common().reconciliation_status;
    let is_deployed = reconciliation.state == ReconciliationState::Deployed;
    let since = Timestamp::from_millisecond(reconciliation.reconciliation_timestamp);
    let since = since.unwrap_or(Timestamp::UNIX_EPOCH);
    let is_unstable = is_deployed && case.settings.rolls_back && !draft.common().is_stable();
    let stable = draft.common().stable::<FlinkDeploymentSpec>()?;
    let Some(stable) = stable.filter(|_| is_unstable) else {
        return Ok(false);
    };
    let reconciled = case.reconciled.as_ref();
    let version = reconciled.and_then(|it| it.spec.flink_version);
    let is_possible = stable.spec.flink_version == version
        && stable
            .spec
            .job()
            .is_some_and(|job| job.state == longshore_flink_core::spec::DesiredState::Running);
    if !is_possible {
        return Ok(false);
    }
    let timeout: SignedDuration = case.settings.readiness_timeout;
    let timeout = std::time::Duration::try_from(timeout).unwrap_or_default();
    if let Some(left) = draft.left(since, timeout) {
        draft.look_after(left);
        return Ok(false);
    }
    let Some(mode) = mode_of_rollback(case)? else {
        return Ok(false);
    };
    begin_rollback(draft, mode)?;
    Ok(true)
}

/// How the stable spec is restored; `None` where nothing tells what the failed one left.
fn mode_of_rollback(case: &Case<'_>) -> Result<Option<UpgradeMode>, Trouble> {
    let recorded = case.restore_mode();
    let is_unstarted = case
        .job_manager
        .is_some_and(|it| it.pod_start == PodStart::Never);
    Ok(match case.ha(&case.config)? {
        HaMetadata::Present if recorded == UpgradeMode::Stateless => Some(UpgradeMode::Stateless),
        HaMetadata::Present => Some(UpgradeMode::LastState),
        // The failed spec was to restore a savepoint, and has made nothing newer.
        HaMetadata::Absent | HaMetadata::Off => {
            let is_untouched = is_unstarted && recorded == UpgradeMode::Savepoint;
            is_untouched.then_some(UpgradeMode::Savepoint)
        }
    })
}

fn begin_rollback(draft: &mut Deciding<'_>, mode: UpgradeMode) -> Result<(), Trouble> {
    let note = "Rolling back failed deployment.";
    draft.announce(EventType::Normal, REASON_ROLLBACK, note);
    roll_back_to_stable(draft, mode)
}

/// The stable spec is deployed, restored in this way. The spec that failed stays on record, with that way.
fn roll_back_to_stable(draft: &mut Deciding<'_>, mode: UpgradeMode) -> Result<(), Trouble> {
    let mut common = draft.common().cancelling::<FlinkDeploymentSpec>(mode)?;
    common.reconciliation_status.state = ReconciliationState::RollingBack;
    common.reconciliation_status.reconciliation_timestamp = draft.now().as_millisecond();
    draft.set_common(common);
    status::set_attempt(&mut draft.status, None);
    draft.look_after(std::time::Duration::ZERO);
    Ok(())
}
