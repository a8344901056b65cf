//! Decides about a FlinkDeployment. Read [the module above](super) for the steps.

mod case;
mod cluster;
mod delete;
mod launch;
mod others;
mod session;
mod settled;
mod snapshots;
#[cfg(test)]
mod tests;
mod upgrade;

use longshore_api::flink::{
    CONDITION_UNSUPPORTED, FINALIZER_DEPLOYMENT, REASON_UNSUPPORTED, REASON_UNSUPPORTED_VERSION,
    REASON_VALIDATION_ERROR,
};
use longshore_core::{Action, EventType, Seen};
use longshore_flink_core::{
    spec::{DeploymentMode, DesiredState},
    status::{ErrorType, FlinkDeploymentStatus, ReconciliationState},
};

use self::case::Case;
use super::model::{Desired, Observed};
use crate::{
    draft::{Draft, Subject, told},
    record::{FlinkPlan, LOOK_AGAIN, Trouble, announced},
    settings::Wording,
};

type Deciding<'a> = Draft<'a, FlinkDeploymentStatus>;

/// Decides. Pure: equal observations lead to equal plans.
pub fn decide(observed: &Observed) -> FlinkPlan {
    let desired = match &observed.desired {
        Seen::Present(desired) => desired,
        Seen::Absent => return FlinkPlan::await_change(),
        Seen::Unknown(_) => return FlinkPlan::after(LOOK_AGAIN),
    };
    let is_blind = observed.job_manager.is_unknown()
        || observed.pods.is_unknown()
        || observed.config_maps.is_unknown()
        || observed.session_jobs.is_unknown()
        || observed.snapshots.is_unknown();
    if is_blind {
        return FlinkPlan::after(LOOK_AGAIN);
    }
    let wording = Wording::of(&observed.operator);
    let of = Subject::of(desired, &observed.heard, &wording, observed.now);
    let status = match &desired.status {
        Ok(status) => status.clone(),
        Err(message) => return announced(&desired.target, message),
    };
    let decided = decide_present(observed, desired, of, status.clone());
    decided.unwrap_or_else(|trouble| told(of, status, &trouble))
}

fn decide_present(
    observed: &Observed,
    desired: &Desired,
    of: Subject<'_>,
    status: FlinkDeploymentStatus,
) -> Result<FlinkPlan, Trouble> {
    let case = match Case::of(observed, desired, &status)? {
        Ok(case) => case,
        Err(invalid) => {
            let mut draft = Draft::new(of, status, None);
            if desired.is_deleting {
                // Nothing was ever deployed.
                draft.push(remove_finalizer(desired));
                return draft.finish();
            }
            refuse(&mut draft, desired, &invalid);
            return draft.finish();
        }
    };
    let mut draft = Draft::new(of, status, case.address());
    if desired.is_deleting {
        delete::go(&case, &mut draft)?;
        return draft.finish();
    }
    if !desired.has_finalizer {
        draft.push(Action::EnsureFinalizer {
            target: desired.target.clone(),
            finalizer: FINALIZER_DEPLOYMENT,
        });
    }
    if is_supported(&case, &mut draft) {
        go(&case, &mut draft)?;
    }
    if let Some(invalid) = &case.invalid {
        refuse(&mut draft, desired, invalid);
    }
    draft.finish()
}

fn remove_finalizer<S, E, Q>(desired: &Desired) -> Action<S, E, Q> {
    Action::RemoveFinalizer {
        target: desired.target.clone(),
        finalizer: FINALIZER_DEPLOYMENT,
    }
}

/// A spec that is not valid: the last good one keeps running.
fn refuse(draft: &mut Deciding<'_>, desired: &Desired, invalid: &str) {
    let version = desired.spec.as_ref().ok().and_then(|it| it.flink_version);
    let is_unsupported = version.is_some_and(|version| !version.is_supported());
    let reason = if is_unsupported {
        REASON_UNSUPPORTED_VERSION
    } else {
        REASON_VALIDATION_ERROR
    };
    draft.fail(ErrorType::Validation, reason, invalid);
}

/// Whether the spec asks only for what this operator does. What it does not do is told.
fn is_supported(case: &Case<'_>, draft: &mut Deciding<'_>) -> bool {
    let is_native = case.wanted.deployment_mode() == DeploymentMode::Native;
    let what = if !is_native {
        "mode: standalone is not supported yet: expected mode: native; nothing is deployed"
    } else if case.settings.is_autoscaled {
        "job.autoscaler.enabled is true, and the autoscaler is not supported yet: the parallelism stays as it is"
    } else {
        return true;
    };
    let mut conditions = draft.status.conditions.iter();
    if !conditions.any(|it| it.r#type == CONDITION_UNSUPPORTED) {
        draft.announce(EventType::Warning, REASON_UNSUPPORTED, what);
    }
    draft.standing.unsupported = Some(what.to_owned());
    is_native
}

fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let Some(reconciled) = &case.reconciled else {
        return launch::first(case, draft);
    };
    let job = reconciled.spec.job.as_ref();
    let is_running = job.is_some_and(|job| job.state == DesiredState::Running);
    match draft.status.common.reconciliation_status.state {
        ReconciliationState::RollingBack => launch::go(case, draft),
        // A job that is being cancelled runs still.
        ReconciliationState::Upgrading if !is_running => launch::go(case, draft),
        ReconciliationState::Upgrading
        | ReconciliationState::Deployed
        | ReconciliationState::RolledBack => match job {
            Some(_) => settled::go(case, draft),
            None => session::go(case, draft),
        },
    }
}
