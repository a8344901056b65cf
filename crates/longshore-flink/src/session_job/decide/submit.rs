//! Submits a job to its session cluster.

use std::sync::Arc;

use longshore_api::flink::{REASON_ERROR, REASON_SUBMIT, REASON_UPGRADE_FAILED};
use longshore_core::EventType;
use longshore_flink_core::{
    conf::{FlinkConfig, operator},
    diff::DiffType,
    spec::{DesiredState, FlinkSessionJobSpec, FlinkVersion, Spec, UpgradeMode},
    status::{ErrorType, JobState, LAST_STATE_PATH},
    upgrade::Failure,
};
use serde_json::{Map, Value, json};

use super::{Case, Deciding};
use crate::{
    draft::Reply,
    record::Trouble,
    rest::{RestCall, Submission},
    stop::trigger_id,
};

/// The first submission.
pub(super) fn first(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if case.wanted_state() == DesiredState::Suspended {
        return Ok(());
    }
    let job = case.wanted.job();
    let path = job.and_then(|job| job.initial_savepoint_path.clone());
    let mode = match path {
        Some(_) => UpgradeMode::Savepoint,
        None => UpgradeMode::Stateless,
    };
    begin(case, draft, mode, path)?;
    submit(case, draft)
}

/// Goes on with a submission that is under way.
pub(super) fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let mode = mode(case, draft);
    if case.wanted_state() == DesiredState::Suspended {
        let spec = case.wanted_by(mode);
        let common = draft.common().after_deployment(&case.target(&spec))?;
        draft.set_common(common);
        draft.status.common.job_status.job_id = None;
        return Ok(());
    }
    if !is_begun(case, draft) {
        if case.diff_kind() == DiffType::SavepointRedeploy {
            redeploy_from(case, draft);
        }
        let path = start_of(draft, mode)?;
        begin(case, draft, mode, path)?;
    }
    submit(case, draft)
}

/// What `initialSavepointPath` names is restored next.
pub(super) fn redeploy_from(case: &Case<'_>, draft: &mut Deciding<'_>) {
    let job = case.wanted.job();
    let path = job.and_then(|job| job.initial_savepoint_path.clone());
    draft.status.common.job_status.upgrade_savepoint_path = path;
}

/// Whether the id of the job is on record, and no newer spec is wanted.
fn is_begun(case: &Case<'_>, draft: &Deciding<'_>) -> bool {
    let job = &draft.common().job_status;
    let is_open = job.job_id.is_some() && job.state == Some(JobState::Reconciling);
    is_open && draft.common().observed_generation == Some(case.generation)
}

fn mode(case: &Case<'_>, draft: &Deciding<'_>) -> UpgradeMode {
    let is_newer = draft.common().observed_generation != Some(case.generation);
    let reconciled = case.reconciled.as_ref();
    let is_first = reconciled.is_some_and(|it| it.is_first_deployment());
    if case.diff_kind() == DiffType::SavepointRedeploy {
        UpgradeMode::Savepoint
    } else if case.user_mode() == UpgradeMode::Stateless && is_newer && !is_first {
        UpgradeMode::Stateless
    } else {
        case.restore_mode()
    }
}

/// What the job starts from; where that is not known, nothing is started.
fn start_of(draft: &Deciding<'_>, mode: UpgradeMode) -> Result<Option<String>, Trouble> {
    let known = draft.common().job_status.last_savepoint();
    match (mode, known) {
        (UpgradeMode::Stateless, _) => Ok(None),
        (UpgradeMode::Savepoint | UpgradeMode::LastState, Some(path))
            if path != LAST_STATE_PATH =>
        {
            Ok(Some(path.to_owned()))
        }
        (UpgradeMode::Savepoint | UpgradeMode::LastState, _) => Err(Trouble::NoState {
            message: Failure::LastSnapshotUnknown.message(),
            reason: REASON_UPGRADE_FAILED,
        }),
    }
}

/// Puts an attempt on record: the id of the job, and what it starts from.
fn begin(
    case: &Case<'_>,
    draft: &mut Deciding<'_>,
    mode: UpgradeMode,
    path: Option<String>,
) -> Result<(), Trouble> {
    let spec = case.wanted_by(mode);
    let common = draft.common().before_attempt(&case.target(&spec))?;
    draft.set_common(common);
    let now_ms = draft.now().as_millisecond();
    let job = &mut draft.status.common.job_status;
    job.upgrade_savepoint_path = path;
    job.job_id = Some(trigger_id(case.uid(), case.generation, "job", now_ms));
    job.state = Some(JobState::Reconciling);
    draft.announce(EventType::Normal, REASON_SUBMIT, "Starting deployment");
    Ok(())
}

fn submit(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let Some(submission) = submission(case, draft) else {
        return Ok(());
    };
    let call = RestCall::Submit(Arc::new(submission));
    match draft.consult(call, None)? {
        Reply::Pending => Ok(()),
        Reply::Said(..) => {
            let common = draft.common().already_upgraded::<FlinkSessionJobSpec>()?;
            draft.set_common(common);
            draft.look_after(case.settings.progress_interval);
            Ok(())
        }
        Reply::Failed { message, .. } => {
            draft.fail(ErrorType::Reconciliation, REASON_ERROR, message);
            Ok(())
        }
    }
}

/// The job as the status on record has it: whoever submits it again submits the same.
fn submission(case: &Case<'_>, draft: &Deciding<'_>) -> Option<Submission> {
    let job = case.wanted.job()?;
    let status = &draft.common().job_status;
    let id = status.job_id.clone()?;
    let mut body = json!({
        "jobId": id,
        "programArgsList": job.args,
        "allowNonRestoredState": job.allow_non_restored_state.unwrap_or(false),
    });
    if let Some(class) = &job.entry_class {
        body["entryClass"] = json!(class);
    }
    if job.parallelism > 0 {
        body["parallelism"] = json!(job.parallelism);
    }
    let cluster = case.cluster_spec.as_ref();
    let version = cluster.and_then(|it| it.flink_version);
    if let Some(path) = &status.upgrade_savepoint_path {
        body["savepointPath"] = json!(path);
        let key = if version >= Some(FlinkVersion::V1_20) {
            "claimMode"
        } else {
            "restoreMode"
        };
        body[key] = json!("NO_CLAIM");
    }
    if version >= Some(FlinkVersion::V1_17) {
        body["flinkConfiguration"] = Value::Object(configuration(&case.config));
    }
    Some(Submission {
        job: id,
        jar: job.jar_uri.clone(),
        body,
    })
}

fn configuration(config: &FlinkConfig) -> Map<String, Value> {
    let config = operator::without_operator_keys(config);
    let pairs = config
        .iter()
        .map(|(key, text)| (key.to_owned(), json!(text)));
    pairs.collect()
}
