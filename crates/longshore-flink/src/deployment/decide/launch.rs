//! Starts a cluster: steps 3 to 5 of [the module above](super::super).

use std::time::Duration;

use longshore_api::flink::{
    ANNOTATION_ATTEMPT, API_VERSION, KIND_DEPLOYMENT, REASON_CONFIGURATION, REASON_ERROR,
    REASON_RESTORE_FAILED, REASON_SUBMIT, REASON_UPGRADE_FAILED,
};
use longshore_core::{
    Action, ChildIdentity, Create, EventType, Patch, PatchKind, Resource, names::hashed_uuid,
};
use longshore_flink_core::{
    conf::{
        effective::{self, DeploymentOwner},
        options,
    },
    diff::{self, DiffType},
    health,
    resources::{self, Cluster, Resources},
    spec::{DesiredState, FlinkDeploymentSpec, Spec, UpgradeMode},
    status::{JobManagerStatus, JobState, LAST_STATE_PATH, ReconciliationState},
    upgrade::Failure,
};
use serde_json::{Map, Value, json};

use super::{Case, Deciding, cluster};
use crate::{
    deployment::{
        model::{HaConfigMap, JobManager},
        status,
    },
    job,
    kinds::{DEPLOYMENT, SERVICE},
    record::Trouble,
};

/// What is to be started.
struct Launch {
    spec: FlinkDeploymentSpec,
    mode: UpgradeMode,
    /// What the job starts from.
    path: Option<String>,
}

/// The first deployment.
pub(super) fn first(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    if case.wanted_state() == DesiredState::Suspended {
        return Ok(());
    }
    if let Some(job_manager) = cluster::owned(case)? {
        // What it runs may have state, and nothing tells which.
        return Err(Trouble::NoState {
            message: format!(
                "the status says that nothing was deployed, and the Deployment {} of this FlinkDeployment exists: \
                 restore the status, or delete the Deployment",
                job_manager.target.name
            ),
            reason: REASON_ERROR,
        });
    }
    let job = case.wanted.job();
    let path = job.and_then(|job| job.initial_savepoint_path.clone());
    let mode = match (&path, job) {
        (_, None) => UpgradeMode::LastState,
        (Some(_), Some(_)) => UpgradeMode::Savepoint,
        (None, Some(_)) => UpgradeMode::Stateless,
    };
    let spec = case.wanted_by(mode);
    start(case, draft, Launch { spec, mode, path })
}

/// Goes on with a deployment that is under way.
pub(super) fn go(case: &Case<'_>, draft: &mut Deciding<'_>) -> Result<(), Trouble> {
    let job_manager = cluster::owned(case)?;
    if let Some(job_manager) = job_manager
        && !job_manager.is_deleting
        && cluster::is_current(job_manager, &draft.status)
    {
        return adopt(case, draft, job_manager);
    }
    abandon_rollback(case, draft);
    let launch = launch(case, draft)?;
    if let Some(job_manager) = job_manager {
        return cluster::remove(draft, job_manager, launch.mode);
    }
    if is_to_suspend(case, draft) {
        draft.status.job_manager_deployment_status = JobManagerStatus::Missing;
        status::set_attempt(&mut draft.status, None);
        let common = draft
            .common()
            .after_deployment(&case.target(&launch.spec))?;
        draft.set_common(common);
        return Ok(());
    }
    start(case, draft, launch)
}

/// A user who changes the spec while an older one is restored means the change.
fn abandon_rollback(case: &Case<'_>, draft: &mut Deciding<'_>) {
    let state = draft.status.common.reconciliation_status.state;
    let is_newer = draft.common().observed_generation != Some(case.generation);
    if state == ReconciliationState::RollingBack && is_newer && case.is_changed() {
        draft.status.common.reconciliation_status.state = ReconciliationState::Upgrading;
        status::set_attempt(&mut draft.status, None);
    }
}

fn is_rollback(draft: &Deciding<'_>) -> bool {
    draft.status.common.reconciliation_status.state == ReconciliationState::RollingBack
}

fn is_to_suspend(case: &Case<'_>, draft: &Deciding<'_>) -> bool {
    !is_rollback(draft)
        && !status::is_restart(&draft.status)
        && case.wanted_state() == DesiredState::Suspended
}

fn launch(case: &Case<'_>, draft: &Deciding<'_>) -> Result<Launch, Trouble> {
    let recorded = case.restore_mode();
    let wanted = case.wanted.job().map(|job| job.upgrade_mode);
    let is_newer = draft.common().observed_generation != Some(case.generation);
    // A newer spec may say that the state is given up after all.
    let mode = match wanted {
        Some(UpgradeMode::Stateless) if is_newer => UpgradeMode::Stateless,
        Some(_) | None => recorded,
    };
    let (spec, mode) = if is_rollback(draft) {
        (stable(draft, recorded)?, recorded)
    } else if status::is_restart(&draft.status) {
        (recorded_spec(case), recorded)
    } else {
        (case.wanted_by(mode), mode)
    };
    let path = match spec.job() {
        Some(_) => start_of(case, draft, mode)?,
        None => None,
    };
    Ok(Launch { spec, mode, path })
}

/// The spec on record, whose job is to run.
fn recorded_spec(case: &Case<'_>) -> FlinkDeploymentSpec {
    let reconciled = case.reconciled.as_ref().map(|it| it.spec.clone());
    let mut spec = reconciled.unwrap_or_else(|| case.wanted.clone());
    if let Some(job) = spec.job_mut() {
        job.state = DesiredState::Running;
    }
    spec
}

/// What a rollback returns to.
fn stable(draft: &Deciding<'_>, mode: UpgradeMode) -> Result<FlinkDeploymentSpec, Trouble> {
    let stable = draft.common().stable::<FlinkDeploymentSpec>()?;
    let mut spec = stable.map(|it| it.spec).ok_or_else(|| Trouble::NoState {
        message: "the status names no stable spec to roll back to: change the spec".to_owned(),
        reason: REASON_ERROR,
    })?;
    if let Some(job) = spec.job_mut() {
        job.upgrade_mode = mode;
    }
    Ok(spec)
}

/// What a job starts from. Known before anything of the old cluster is deleted; where it is not known, nothing is started.
fn start_of(
    case: &Case<'_>,
    draft: &Deciding<'_>,
    mode: UpgradeMode,
) -> Result<Option<String>, Trouble> {
    let unknown = || Trouble::NoState {
        message: Failure::LastSnapshotUnknown.message(),
        reason: REASON_UPGRADE_FAILED,
    };
    let known = draft.common().job_status.last_savepoint();
    let has_path = known.is_some_and(|path| path != LAST_STATE_PATH);
    let metadata = case.metadata_of_job(&draft.status);
    match mode {
        UpgradeMode::Stateless => Ok(None),
        UpgradeMode::Savepoint if has_path => Ok(known.map(str::to_owned)),
        UpgradeMode::Savepoint => Err(unknown()),
        UpgradeMode::LastState => match metadata {
            // Those of another job say nothing about this one.
            None => Err(Trouble::NoState {
                message: Failure::NoJobManager.message(),
                reason: REASON_RESTORE_FAILED,
            }),
            Some(metadata) if metadata.has_checkpoint => Ok(Some(LAST_STATE_PATH.to_owned())),
            Some(_) if known == Some(LAST_STATE_PATH) => Err(unknown()),
            // The job has completed no checkpoint since it started from this path, or from nothing.
            Some(_) => Ok(known.map(str::to_owned)),
        },
    }
}

/// Starts a cluster where there is none.
fn start(case: &Case<'_>, draft: &mut Deciding<'_>, launch: Launch) -> Result<(), Trouble> {
    // What lies there before the first deployment is not of this resource, and may be wanted.
    let is_first = case
        .reconciled
        .as_ref()
        .is_none_or(|it| it.is_first_deployment());
    let is_kept = is_first || launch.mode == UpgradeMode::LastState;
    if !is_kept && !cluster::tidy(case, draft)? {
        draft.status.job_manager_deployment_status = JobManagerStatus::Missing;
        return Ok(());
    }
    let is_older = is_rollback(draft) || status::is_restart(&draft.status);
    let is_begun = status::attempt(&draft.status).is_some()
        && (is_older || draft.common().observed_generation == Some(case.generation))
        && draft.status.job_manager_deployment_status == JobManagerStatus::Missing;
    if !is_begun {
        begin(case, draft, &launch)?;
    }
    create(case, draft, &launch)
}

/// Puts an attempt on record.
fn begin(case: &Case<'_>, draft: &mut Deciding<'_>, launch: &Launch) -> Result<(), Trouble> {
    let mut target = case.target(&launch.spec);
    if status::is_restart(&draft.status) {
        target.generation = draft
            .common()
            .observed_generation
            .unwrap_or(case.generation);
    }
    let common = draft.common().before_attempt(&target)?;
    draft.set_common(common);
    let effective = case.effective(&launch.spec)?;
    let now_ms = draft.now().as_millisecond();
    let attempt = hashed_uuid(&format!("{}/{}/{now_ms}", case.uid(), case.generation));
    let attempt = attempt.replace('-', "");
    let of_user = effective
        .config
        .text(options::JOB_ID.name)
        .map(str::to_owned);
    let task_managers = case.task_managers(&launch.spec, &effective.config)?;
    let status = &mut draft.status;
    status.task_manager = task_managers;
    status.job_manager_deployment_status = JobManagerStatus::Missing;
    status.cluster_info.remove(health::CLUSTER_INFO_KEY);
    status
        .cluster_info
        .remove(longshore_flink_core::status::CLUSTER_INFO_VERSION);
    let job = &mut status.common.job_status;
    if launch.spec.job().is_some() {
        job.upgrade_savepoint_path.clone_from(&launch.path);
        job.state = Some(JobState::Reconciling);
        let kept = job.job_id.take();
        // The metadata of high availability are of a job.
        let kept = kept.filter(|_| launch.mode == UpgradeMode::LastState);
        job.job_id = of_user.or(kept).or_else(|| Some(attempt.clone()));
    }
    status::set_attempt(&mut draft.status, Some(attempt));
    draft.announce(EventType::Normal, REASON_SUBMIT, "Starting deployment");
    Ok(())
}

/// Creates the Deployment of the attempt that is on record.
fn create(case: &Case<'_>, draft: &mut Deciding<'_>, launch: &Launch) -> Result<(), Trouble> {
    // Without its graph, Flink starts the job anew under its id, and from its newest checkpoint.
    for config_map in case
        .config_maps
        .iter()
        .filter(|it| it.is_ha() && !it.is_deleting)
    {
        if let Some(patch) = without_graphs(config_map) {
            draft.act(Action::Patch(patch))?;
        }
    }
    let resources = build(case, draft, &launch.spec)?;
    for note in &resources.notes {
        draft.announce(EventType::Warning, REASON_CONFIGURATION, note.to_string());
    }
    let attempt = status::attempt(&draft.status)
        .unwrap_or_default()
        .to_owned();
    let mut object = resources.deployment;
    object["metadata"]["annotations"][ANNOTATION_ATTEMPT] = json!(attempt);
    draft.act(Action::Create(Create {
        resource: DEPLOYMENT,
        object,
        identity: ChildIdentity::annotation(ANNOTATION_ATTEMPT, attempt),
    }))?;
    draft.look_after(Duration::ZERO);
    Ok(())
}

fn without_graphs(config_map: &HaConfigMap) -> Option<Patch> {
    let graphs = config_map.job_graphs.iter();
    let graphs: Map<String, Value> = graphs.map(|key| (key.clone(), Value::Null)).collect();
    (!graphs.is_empty()).then(|| Patch {
        target: config_map.target.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        patch: json!({"data": graphs}),
    })
}

/// The Deployment of the attempt on record is there: what accompanies it is created, and the spec is deployed.
fn adopt(
    case: &Case<'_>,
    draft: &mut Deciding<'_>,
    job_manager: &JobManager,
) -> Result<(), Trouble> {
    let mode = case.restore_mode();
    let spec = if is_rollback(draft) {
        stable(draft, mode)?
    } else {
        recorded_spec(case)
    };
    let resources = build(case, draft, &spec)?;
    let uid = job_manager.target.uid.clone().unwrap_or_default();
    for object in resources.accompanying(&uid) {
        draft.act(Action::Create(Create {
            resource: resource_of(&object),
            object,
            identity: ChildIdentity::owner(uid.clone()),
        }))?;
    }
    let common = if is_rollback(draft) {
        draft.common().after_deployment(&case.target(&spec))?
    } else {
        draft.common().already_upgraded::<FlinkDeploymentSpec>()?
    };
    draft.set_common(common);
    status::end_restart(&mut draft.status);
    draft.status.job_manager_deployment_status = JobManagerStatus::Deploying;
    if spec.job().is_some() {
        draft.status.common.job_status.state = Some(JobState::Reconciling);
        let config = case.effective(&spec)?.config;
        draft.status.task_manager = case.task_managers(&spec, &config)?;
    }
    draft.look_after(case.settings.progress_interval);
    Ok(())
}

fn resource_of(object: &Value) -> Resource {
    if object["kind"] == SERVICE.kind {
        SERVICE
    } else {
        Resource::CONFIG_MAP
    }
}

/// The objects of a cluster, as the status on record has them: whoever makes them again makes the same.
fn build(
    case: &Case<'_>,
    draft: &Deciding<'_>,
    spec: &FlinkDeploymentSpec,
) -> Result<Resources, Trouble> {
    let mut effective = case.effective(spec)?;
    let config = &mut effective.config;
    let status = &draft.status;
    let generation = status.common.observed_generation.unwrap_or(case.generation);
    effective::set_generation(config, generation)?;
    let owner = DeploymentOwner {
        api_version: API_VERSION,
        kind: KIND_DEPLOYMENT,
        name: case.name(),
        uid: case.uid(),
    };
    effective::set_owner(config, owner);
    if spec.job().is_some() {
        let job = &status.common.job_status;
        effective::set_savepoint(config, job.upgrade_savepoint_path.as_deref());
        let attempt = status::attempt(status).unwrap_or_default();
        effective::set_job_result_store(config, case.name(), attempt)?;
        if let Some(id) = &job.job_id {
            config.set(&options::JOB_ID, id.as_str());
        }
    }
    let cluster = Cluster {
        namespace: case.namespace(),
        id: case.name(),
        version: effective.version,
        config: &effective.config,
        job_manager_template: effective.job_manager_template.as_ref(),
        task_manager_template: effective.task_manager_template.as_ref(),
        logs: &effective.logs,
    };
    Ok(resources::native(&cluster)?)
}

/// Puts on record that the job is stopped, and that this spec is to run in its place, restored in this way.
pub(super) fn suspend(
    case: &Case<'_>,
    draft: &mut Deciding<'_>,
    spec: &FlinkDeploymentSpec,
    mode: UpgradeMode,
) -> Result<(), Trouble> {
    let spec = job::restored_by(spec, mode);
    let target = case.target(&spec);
    let common = if case.wanted_state() == DesiredState::Suspended {
        draft.common().after_deployment(&target)?
    } else {
        draft.common().before_attempt(&target)?
    };
    draft.set_common(common);
    let state = draft.common().job_status.state;
    let is_over = state.is_some_and(JobState::is_globally_terminal);
    let is_suspended = case.wanted_state() == DesiredState::Suspended;
    if is_suspended && !is_over && spec.job().is_some() {
        draft.status.common.job_status.state = Some(JobState::Finished);
    }
    if !is_suspended {
        status::set_attempt(&mut draft.status, None);
    }
    draft.look_after(Duration::ZERO);
    Ok(())
}

/// Whether a spec is, but for what asks for nothing, what runs already.
pub(super) fn is_deployed(case: &Case<'_>) -> bool {
    let mode = case.wanted.deployment_mode();
    case.deployed.as_ref().is_some_and(|deployed| {
        let diff = diff::of_deployments(mode, &deployed.spec, &case.wanted);
        diff.kind() == DiffType::Ignore
    })
}
