//! Decides about a FlinkSessionJob.

mod case;
mod delete;
mod settled;
mod submit;
#[cfg(test)]
mod tests;

use longshore_api::flink::{FINALIZER_SESSION_JOB, REASON_VALIDATION_ERROR};
use longshore_core::{Action, Seen};
use longshore_flink_core::{
    spec::{DesiredState, Spec},
    status::{ErrorType, FlinkSessionJobStatus, ReconciliationState},
};

use self::case::Case;
use super::model::{Desired, Observed};
use crate::{
    draft::{Draft, Subject, told},
    record::{FlinkPlan, LOOK_AGAIN, OTHERS_AGAIN, Trouble, announced},
    settings::Wording,
};

type Deciding<'a> = Draft<'a, FlinkSessionJobStatus>;

/// Decides. Pure: equal observations lead to equal plans.
pub fn decide(observed: &Observed) -> FlinkPlan {
    let desired = match &observed.desired {
        Seen::Present(desired) => desired,
        Seen::Absent => return FlinkPlan::await_change(),
        Seen::Unknown(_) => return FlinkPlan::after(LOOK_AGAIN),
    };
    if observed.cluster.is_unknown() || observed.snapshots.is_unknown() {
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
    status: FlinkSessionJobStatus,
) -> Result<FlinkPlan, Trouble> {
    let case = match Case::of(observed, desired, &status)? {
        Ok(case) => case,
        Err(invalid) => {
            let mut draft = Draft::new(of, status, None);
            if desired.is_deleting {
                // Nothing was ever submitted.
                draft.push(remove_finalizer(desired));
            } else {
                draft.fail(ErrorType::Validation, REASON_VALIDATION_ERROR, &invalid);
                draft.look_after(OTHERS_AGAIN);
            }
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
            finalizer: FINALIZER_SESSION_JOB,
        });
    }
    go(&case, &mut draft)?;
    if let Some(invalid) = &case.invalid {
        draft.fail(ErrorType::Validation, REASON_VALIDATION_ERROR, invalid);
    }
    draft.finish()
}

fn remove_finalizer<S, E, Q>(desired: &Desired) -> Action<S, E, Q> {
    Action::RemoveFinalizer {
        target: desired.target.clone(),
        finalizer: FINALIZER_SESSION_JOB,
    }
}

fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if case.cluster.is_none() {
        // The session cluster tells when it serves; jobs that run are looked at then.
        draft.look_after(case.settings.reconcile_interval);
        return Ok(());
    }
    let Some(reconciled) = &case.reconciled else {
        return submit::first(case, draft);
    };
    let job = reconciled.spec.job();
    let is_running = job.is_some_and(|job| job.state == DesiredState::Running);
    match draft.status.common.reconciliation_status.state {
        ReconciliationState::Upgrading if !is_running => submit::go(case, draft),
        ReconciliationState::Upgrading
        | ReconciliationState::RollingBack
        | ReconciliationState::Deployed
        | ReconciliationState::RolledBack => settled::go(case, draft),
    }
}
