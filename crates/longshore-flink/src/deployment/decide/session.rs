//! A session cluster whose spec is deployed.

use std::time::Duration;

use longshore_api::flink::{REASON_RECOVER_DEPLOYMENT, REASON_SPEC_CHANGED};
use longshore_core::EventType;
use longshore_flink_core::{
    spec::UpgradeMode,
    status::{CLUSTER_INFO_REVISION, CLUSTER_INFO_VERSION, JobManagerStatus, ReconciliationState},
    upgrade::HaMetadata,
};

use super::{
    Case, Deciding,
    cluster::{self, Reach},
    launch, settled,
};
use crate::{
    draft::Reply,
    record::Trouble,
    rest::{RestAnswer, RestCall},
};

pub(super) fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if let Some(job_manager) = cluster::owned(case)?
        && !cluster::is_current(job_manager, &draft.status)
    {
        return cluster::remove(draft, job_manager, UpgradeMode::LastState);
    }
    if cluster::observe(case, draft)? == Reach::Open {
        ping(case, draft)?;
    }
    settled::clear_error(draft);
    if case.is_changed() {
        if launch::is_deployed(case) {
            let common = draft
                .common()
                .after_deployment(&case.target(&case.wanted))?;
            draft.set_common(common);
            return Ok(());
        }
        if let Some(diff) = case.diff() {
            let kind = diff.kind();
            let note = format!("{kind} change(s) detected ({diff}), starting reconciliation.");
            draft.announce(EventType::Normal, REASON_SPEC_CHANGED, note);
        }
        return launch::suspend(case, draft, &case.wanted, UpgradeMode::LastState);
    }
    settled::unchanged(case, draft)?;
    let is_missing = draft.status.job_manager_deployment_status == JobManagerStatus::Missing;
    let is_recoverable = case.settings.recovers && case.ha(&case.config)? != HaMetadata::Off;
    if is_missing && is_recoverable {
        let note = "Recovering lost deployment";
        draft.announce(EventType::Warning, REASON_RECOVER_DEPLOYMENT, note);
        return launch::suspend(case, draft, &case.wanted, UpgradeMode::LastState);
    }
    Ok(())
}

/// Asks the JobManager whether it serves.
fn ping(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let is_ready = draft.status.job_manager_deployment_status == JobManagerStatus::Ready;
    let again: Duration = if is_ready {
        case.settings.reconcile_interval
    } else {
        case.settings.progress_interval
    };
    match draft.consult(RestCall::Version, Some(again))? {
        Reply::Pending => {}
        Reply::Failed { .. } => {
            draft.status.job_manager_deployment_status = JobManagerStatus::Deploying;
        }
        Reply::Said(answer, _) => {
            if let RestAnswer::Version(version) = answer {
                let info = &mut draft.status.cluster_info;
                info.insert(CLUSTER_INFO_VERSION.to_owned(), version.version.clone());
                info.insert(CLUSTER_INFO_REVISION.to_owned(), version.revision.clone());
            }
            draft.status.job_manager_deployment_status = JobManagerStatus::Ready;
            let state = draft.common().reconciliation_status.state;
            if state == ReconciliationState::Deployed {
                let common = draft.common().clone().marked_stable();
                draft.set_common(common);
            }
        }
    }
    Ok(())
}
