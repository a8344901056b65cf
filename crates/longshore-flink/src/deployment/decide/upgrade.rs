//! Stops a job for another spec: steps 1 and 2 of [the module above](super::super).

use longshore_api::flink::{REASON_SAVEPOINT_ERROR, REASON_UPGRADE_FAILED};
use longshore_flink_core::{
    conf::{FlinkConfig, operator},
    diff::DiffType,
    spec::{FlinkDeploymentSpec, Spec, UpgradeMode},
    status::{ErrorType, JobManagerStatus, JobState},
    upgrade::{
        self, Decision, Facts, LastSnapshot, Options, PodStart, Runner, Suspend, Switch,
        VersionChange, Way,
    },
};

use super::{Case, Deciding, launch, others, snapshots};
use crate::{
    deployment::status,
    job,
    record::Trouble,
    rest::RestCall,
    stop::{self, Sources, Stop},
};

/// Goes on with a stop that is on record. Whether nothing else is to be decided in this round.
pub(super) fn goes_on(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<bool, Trouble> {
    if !stop::is_pending(draft.common()) {
        return Ok(false);
    }
    if case.job_manager.is_none() {
        // The operation is lost with the JobManager.
        let lost = Stop::Failed("the JobManager is gone".to_owned());
        stop_ended(case, draft, lost)?;
        return Ok(false);
    }
    match stop::step(draft, &case.settings, Sources::Kept)? {
        Stop::UnderWay => {}
        ended @ (Stop::Done(_) | Stop::Failed(_)) => stop_ended(case, draft, ended)?,
    }
    Ok(true)
}

fn stop_ended(case: &Case<'_>, draft: &mut Deciding<'_>, ended: Stop) -> Result<(), Trouble> {
    match &ended {
        Stop::UnderWay => Ok(()),
        Stop::Failed(message) => {
            stop::clear(&mut draft.status.common, &ended);
            draft.fail(ErrorType::UpgradeFailure, REASON_SAVEPOINT_ERROR, message);
            draft.look_after(case.settings.progress_interval);
            Ok(())
        }
        Stop::Done(path) => {
            snapshots::keep_upgrade_savepoint(case, draft, path)?;
            stop::stopped(draft, &case.settings, path);
            stop::clear(&mut draft.status.common, &ended);
            launch::suspend(case, draft, &case.wanted, UpgradeMode::Savepoint)
        }
    }
}

/// Another spec is wanted than the one that runs.
pub(super) fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let diff = case.diff();
    let kind = diff.as_ref().map_or(DiffType::Ignore, |it| it.kind());
    if kind != DiffType::Ignore && launch::is_deployed(case) {
        // A user who takes back a change.
        let common = draft
            .common()
            .after_deployment(&case.target(&case.wanted))?;
        draft.set_common(common);
        return Ok(());
    }
    let changes =
        diff.map(|diff| format!("{kind} change(s) detected ({diff}), starting reconciliation."));
    if kind == DiffType::SavepointRedeploy {
        job::announce_upgrade(draft, changes, Suspend::Stateless);
        redeploy_from(case, draft);
        return launch::suspend(case, draft, &case.wanted, UpgradeMode::Savepoint);
    }
    let Some(facts) = facts(case, draft)? else {
        return Ok(());
    };
    match upgrade::decide(&facts) {
        Decision::Fail(failure) => {
            let message = failure.message();
            draft.fail(ErrorType::UpgradeFailure, REASON_UPGRADE_FAILED, &message);
            draft.standing.blocked = Some(message);
            draft.look_after(case.settings.reconcile_interval);
            Ok(())
        }
        Decision::Wait(waiting) => {
            draft.standing.blocked = Some(waiting.message().to_owned());
            draft.look_after(case.settings.progress_interval);
            if waiting.allows_other_changes() {
                others::go(case, draft)
            } else {
                Ok(())
            }
        }
        Decision::Upgrade(way) => take(case, draft, way, changes, &facts),
    }
}

/// What `initialSavepointPath` names is restored next.
pub(super) fn redeploy_from(case: &Case<'_>, draft: &mut Deciding<'_>) {
    let job = case.wanted.job();
    let path = job.and_then(|job| job.initial_savepoint_path.clone());
    draft.status.common.job_status.upgrade_savepoint_path = path;
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
                draft.standing.blocked =
                    Some("waiting to try the savepoint again, which has failed".to_owned());
                draft.look_after(wait);
                return Ok(());
            }
            job::announce_upgrade(draft, changes, way.suspend());
            goes_on(case, draft).map(|_| ())
        }
        Way::Cancel => {
            job::announce_upgrade(draft, changes, way.suspend());
            let common = draft
                .common()
                .cancelling::<FlinkDeploymentSpec>(way.restore())?;
            draft.set_common(common);
            draft.status.common.job_status.state = Some(JobState::Cancelling);
            // Whatever comes after is another attempt.
            status::set_attempt(&mut draft.status, None);
            let job = draft.common().job_status.job_id.clone().unwrap_or_default();
            draft.consult(RestCall::Cancel { job }, None)?;
            Ok(())
        }
        Way::Stateless | Way::StatelessEnded | Way::Ended | Way::HaMetadata | Way::Unstarted => {
            job::announce_upgrade(draft, changes, way.suspend());
            if way == Way::Unstarted {
                draft.status.common.job_status.state = Some(JobState::Failed);
            }
            launch::suspend(case, draft, &case.wanted, mode_of(case, way, facts))
        }
    }
}

/// How the next deployment restores. To restore nothing where there is nothing is to start without state.
fn mode_of(case: &Case<'_>, way: Way, facts: &Facts) -> UpgradeMode {
    let started_empty = case.restore_mode() == UpgradeMode::Stateless;
    let is_empty = match facts.last_snapshot {
        LastSnapshot::ProvenEmpty => true,
        // A job that never started left nothing.
        LastSnapshot::Unknown => way == Way::Unstarted && started_empty,
        LastSnapshot::Path | LastSnapshot::LastState => false,
    };
    if is_empty && way.restore() == UpgradeMode::Savepoint {
        UpgradeMode::Stateless
    } else {
        way.restore()
    }
}

/// What the decision depends on; `None` where an answer is missing.
fn facts(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<Option<Facts>, Trouble> {
    let Some(job) = case.wanted.job() else {
        return Ok(None);
    };
    let deploy = case.effective(&case.wanted)?.config;
    let Some(checkpoint_age) = job::checkpoint_age(draft, &case.settings)? else {
        return Ok(None);
    };
    let is_ready = draft.status.job_manager_deployment_status == JobManagerStatus::Ready;
    let Some(last_snapshot) = job::last_snapshot(draft, is_ready)? else {
        return Ok(None);
    };
    let deployed = case.deployed.as_ref().and_then(|it| it.spec.flink_version);
    let pod = case
        .job_manager
        .map_or(PodStart::Started, |it| it.pod_start);
    Ok(Some(Facts {
        requested: job.upgrade_mode,
        runner: Runner::Application {
            job_manager: draft.status.job_manager_deployment_status,
            pod,
            reconciled: case.restore_mode(),
        },
        job: draft.common().job_status.state,
        version: if deployed == case.wanted.flink_version {
            VersionChange::Same
        } else {
            VersionChange::Changed
        },
        ha_observed: case.ha(&case.config)?,
        ha_wanted: case.ha(&deploy)?,
        last_snapshot,
        checkpoint_age,
        options: options(case, &deploy)?,
    }))
}

fn options(case: &Case<'_>, deploy: &FlinkConfig) -> Result<Options, Trouble> {
    let is_fallback_on = deploy.get(&operator::LAST_STATE_FALLBACK)?;
    Ok(Options {
        fallback: Switch::from(is_fallback_on),
        job_cancel: Switch::from(case.settings.last_state_cancel),
        savepoint_directory: Switch::from(case.settings.savepoint_directory.is_some()),
    })
}
