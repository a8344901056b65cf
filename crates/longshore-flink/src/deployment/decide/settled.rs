//! An application cluster whose spec is deployed, or whose job is about to stop.

use std::time::Duration;

use longshore_flink_core::{
    diff::DiffType,
    spec::{DesiredState, FlinkDeploymentSpec, Spec, UpgradeMode},
    status::{
        CLUSTER_INFO_REVISION, CLUSTER_INFO_VERSION, JobManagerStatus, JobState,
        ReconciliationState,
    },
};

use super::{
    Case, Deciding,
    cluster::{self, Reach},
    launch, others, upgrade,
};
use crate::{
    draft::Reply,
    job::{self, Sight},
    record::Trouble,
    rest::{RestAnswer, RestCall, Version},
};

/// How old an observation may be upon which a job is stopped.
const FRESH: Duration = Duration::from_secs(5);

pub(super) fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let job = case.reconciled.as_ref().and_then(|it| it.spec.job());
    let is_suspended = job.is_some_and(|job| job.state == DesiredState::Suspended);
    if is_suspended {
        return suspended(case, draft);
    }
    if removes_stale(case, draft)? {
        return Ok(());
    }
    if upgrade::goes_on(case, draft)? {
        return Ok(());
    }
    let sight = observe(case, draft)?;
    // The observation may have found that the job was suspended: the next round goes on with that.
    let reconciled = draft.common().reconciled::<FlinkDeploymentSpec>()?;
    let job = reconciled.as_ref().and_then(|it| it.spec.job());
    if job.is_some_and(|job| job.state == DesiredState::Suspended) {
        draft.look_after(Duration::ZERO);
        return Ok(());
    }
    clear_error(draft);
    let is_upgrading = draft.common().reconciliation_status.state == ReconciliationState::Upgrading;
    let is_changed = case.is_changed() || is_upgrading;
    match sight {
        // What is decided now would be decided upon an old observation.
        Sight::Pending if is_changed => Ok(()),
        Sight::Pending | Sight::Seen | Sight::Missing | Sight::Dark if !is_changed => {
            unchanged(case, draft)?;
            if sight == Sight::Pending {
                return Ok(());
            }
            others::go(case, draft)
        }
        Sight::Pending | Sight::Seen | Sight::Missing | Sight::Dark => upgrade::go(case, draft),
    }
}

/// A Deployment of another attempt than the one that counts: its creation arrived late.
fn removes_stale(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<bool, Trouble> {
    let state = draft.common().reconciliation_status.state;
    let is_settled = state != ReconciliationState::Upgrading;
    match cluster::owned(case)? {
        Some(job_manager) if is_settled && !cluster::is_current(job_manager, &draft.status) => {
            cluster::remove(draft, job_manager, UpgradeMode::LastState)?;
            Ok(true)
        }
        Some(_) | None => Ok(false),
    }
}

fn observe(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<Sight, Trouble> {
    if cluster::observe(case, draft)? == Reach::Closed {
        return Ok(Sight::Dark);
    }
    let is_upgrading = draft.common().reconciliation_status.state == ReconciliationState::Upgrading;
    let interval = if case.is_changed() && !is_upgrading {
        FRESH.min(case.settings.progress_interval)
    } else if is_at_rest(draft) {
        case.settings.reconcile_interval
    } else {
        case.settings.progress_interval
    };
    // Both are recorded at once.
    let version = match version(draft)? {
        Told::Pending => {
            draft.consult(RestCall::Jobs, Some(interval))?;
            return Ok(Sight::Pending);
        }
        Told::Known => None,
        Told::Version(version) => Some(version),
    };
    let sight = job::observe(draft, interval)?;
    if let (Some(version), Sight::Seen) = (version, sight) {
        let info = &mut draft.status.cluster_info;
        info.insert(CLUSTER_INFO_VERSION.to_owned(), version.version);
        info.insert(CLUSTER_INFO_REVISION.to_owned(), version.revision);
    }
    match sight {
        Sight::Seen | Sight::Missing => {
            draft.status.job_manager_deployment_status = JobManagerStatus::Ready;
        }
        Sight::Dark if draft.status.job_manager_deployment_status != JobManagerStatus::Ready => {
            draft.status.job_manager_deployment_status = JobManagerStatus::Deploying;
        }
        Sight::Pending | Sight::Dark => {}
    }
    if sight == Sight::Seen {
        others::observe_health(case, draft)?;
    }
    Ok(sight)
}

/// Whether nothing is expected to change soon.
fn is_at_rest(draft: &Deciding<'_>) -> bool {
    let state = draft.common().job_status.state;
    let is_ready = draft.status.job_manager_deployment_status == JobManagerStatus::Ready;
    let is_stable = |it: JobState| it == JobState::Running || it.is_globally_terminal();
    is_ready && state.is_some_and(is_stable)
}

/// What a JobManager has told of its version.
enum Told {
    /// Nothing yet.
    Pending,
    /// Nothing new: it is on record, or it is not told.
    Known,
    /// This.
    Version(Version),
}

fn version(draft: &mut Deciding<'_>) -> Result<Told, Trouble> {
    if draft.status.cluster_info.contains_key(CLUSTER_INFO_VERSION) {
        return Ok(Told::Known);
    }
    Ok(match draft.consult(RestCall::Version, None)? {
        Reply::Pending => Told::Pending,
        Reply::Said(RestAnswer::Version(version), _) => Told::Version(version.clone()),
        Reply::Said(..) | Reply::Failed { .. } => Told::Known,
    })
}

/// An error is over once the spec runs.
pub(super) fn clear_error(draft: &mut Deciding<'_>) {
    let is_failed = draft.common().job_status.state == Some(JobState::Failed)
        || draft.status.job_manager_deployment_status == JobManagerStatus::Error
        || draft.status.job_manager_deployment_status == JobManagerStatus::Missing
        || draft.common().job_status.state == Some(JobState::Reconciling);
    if !is_failed && draft.common().is_stable() {
        draft.status.common.error = None;
    }
}

/// A generation that asks for nothing new.
pub(super) fn unchanged(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if draft.common().observed_generation != Some(case.generation) {
        let common = draft
            .common()
            .nothing_changed::<FlinkDeploymentSpec>(case.generation)?;
        draft.set_common(common);
    }
    Ok(())
}

/// The job is suspended: nothing runs, until that is to change.
fn suspended(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let mode = case.restore_mode();
    if case.wanted_state() == DesiredState::Running {
        return resume(case, draft, mode);
    }
    if case.is_changed() {
        // What the job left is restored in the recorded way, whatever else changes.
        let spec = case.wanted_by(mode);
        let common = draft.common().after_deployment(&case.target(&spec))?;
        draft.set_common(common);
    } else {
        unchanged(case, draft)?;
    }
    match cluster::owned(case)? {
        None => draft.status.job_manager_deployment_status = JobManagerStatus::Missing,
        Some(job_manager) => {
            let is_current = cluster::is_current(job_manager, &draft.status);
            // The JobManager of a job that was stopped with a savepoint stays for a while, with its web page.
            if mode != UpgradeMode::Savepoint || !is_current {
                return cluster::remove(draft, job_manager, mode);
            }
            return others::shut_down(case, draft);
        }
    }
    if mode == UpgradeMode::Stateless {
        cluster::tidy(case, draft)?;
    }
    Ok(())
}

fn resume(case: &Case<'_>, draft: &mut Deciding<'_>, mode: UpgradeMode) -> Result<(), Trouble> {
    let diff = case.diff();
    let is_redeployed = diff.is_some_and(|it| it.kind() == DiffType::SavepointRedeploy);
    let wanted = case.wanted.job().map(|job| job.upgrade_mode);
    let mode = if is_redeployed {
        upgrade::redeploy_from(case, draft);
        UpgradeMode::Savepoint
    } else if wanted == Some(UpgradeMode::Stateless) {
        UpgradeMode::Stateless
    } else {
        mode
    };
    launch::suspend(case, draft, &case.wanted, mode)
}
