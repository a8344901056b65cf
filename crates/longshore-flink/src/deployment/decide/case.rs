//! What a decision is made from: the observation, parsed, and the wanted spec, validated.

use std::sync::Arc;

use longshore_flink_core::{
    conf::{
        FlinkConfig,
        effective::{self, ClusterName, Effective},
        options,
    },
    diff::{self, Diff, DiffType},
    resources::LogFiles,
    spec::{DesiredState, FlinkDeploymentSpec, Spec, UpgradeMode},
    status::{
        FlinkDeploymentStatus, ReconciledSpec, ReconciliationState, Target, TaskManagerInfo,
        n_task_managers,
    },
    upgrade::HaMetadata,
    validate::{self, Deployment},
};

use crate::{
    deployment::model::{
        Desired, HaConfigMap, JobManager, JobManagerPod, Observed, SnapshotResource,
    },
    job,
    record::Trouble,
    rest,
    settings::Settings,
};

/// What a decision is made from.
pub(super) struct Case<'a> {
    pub(super) observed: &'a Observed,
    pub(super) desired: &'a Desired,
    pub(super) job_manager: Option<&'a JobManager>,
    pub(super) pods: &'a [Arc<JobManagerPod>],
    pub(super) config_maps: &'a [Arc<HaConfigMap>],
    pub(super) session_jobs: &'a [String],
    pub(super) snapshots: &'a [Arc<SnapshotResource>],
    /// The spec that is to run: that of the object, or the last good one.
    pub(super) wanted: FlinkDeploymentSpec,
    /// The generation of the wanted spec.
    pub(super) generation: i64,
    /// Why the spec of the object is not the wanted one.
    pub(super) invalid: Option<String>,
    /// What was last deployed, or is being deployed.
    pub(super) reconciled: Option<ReconciledSpec<FlinkDeploymentSpec>>,
    /// What runs.
    pub(super) deployed: Option<ReconciledSpec<FlinkDeploymentSpec>>,
    /// The configuration by which what runs is observed.
    pub(super) config: FlinkConfig,
    pub(super) settings: Settings,
}

impl<'a> Case<'a> {
    /// The inner error says why there is no spec to go by: that of the object is not valid, and there is none before it.
    pub(super) fn of(
        observed: &'a Observed,
        desired: &'a Desired,
        status: &FlinkDeploymentStatus,
    ) -> Result<Result<Self, String>, Trouble> {
        let reconciled = status.common.reconciled::<FlinkDeploymentSpec>()?;
        let deployed = status.common.deployed::<FlinkDeploymentSpec>()?;
        let last = reconciled.as_ref().map(|it| &it.spec);
        let valid = validated(observed, desired, last);
        let (wanted, generation, invalid) = match (valid, last) {
            (Ok(spec), _) => (spec, desired.generation, None),
            (Err(invalid), None) => return Ok(Err(invalid)),
            (Err(invalid), Some(last)) => {
                let generation = status.common.observed_generation;
                let generation = generation.unwrap_or(desired.generation);
                (last_good(last, status), generation, Some(invalid))
            }
        };
        let runs = deployed.as_ref().map_or(&wanted, |it| &it.spec);
        let config = effective(observed, desired, runs)?.config;
        let config = effective::observe(config, wanted.flink_configuration.as_ref())?;
        let settings =
            Settings::of(&config)?.where_snapshots_are_served(!observed.snapshots.is_absent());
        Ok(Ok(Self {
            observed,
            desired,
            job_manager: observed.job_manager.present().map(Arc::as_ref),
            pods: observed.pods.present().map_or(&[], Vec::as_slice),
            config_maps: observed.config_maps.present().map_or(&[], Vec::as_slice),
            session_jobs: observed.session_jobs.present().map_or(&[], Vec::as_slice),
            snapshots: observed.snapshots.present().map_or(&[], Vec::as_slice),
            wanted,
            generation,
            invalid,
            reconciled,
            deployed,
            config,
            settings,
        }))
    }

    pub(super) fn namespace(&self) -> &'a str {
        &self.desired.target.namespace
    }

    pub(super) fn name(&self) -> &'a str {
        &self.desired.target.name
    }

    pub(super) fn uid(&self) -> &'a str {
        self.desired.target.uid.as_deref().unwrap_or_default()
    }

    /// Host and port of the JobManager's REST Service, while there is a JobManager.
    pub(super) fn address(&self) -> Option<String> {
        self.job_manager?;
        Some(rest::address(&self.desired.target, self.settings.rest_port))
    }

    /// What the wanted spec changes.
    pub(super) fn diff(&self) -> Option<Diff> {
        let before = &self.reconciled.as_ref()?.spec;
        let mode = self.wanted.deployment_mode();
        Some(diff::of_deployments(mode, before, &self.wanted))
    }

    /// Whether the wanted spec is to be deployed in place of the reconciled one.
    pub(super) fn is_changed(&self) -> bool {
        self.diff()
            .is_some_and(|diff| diff.kind() != DiffType::Ignore)
    }

    /// How the reconciled spec was restored, or is to be.
    pub(super) fn restore_mode(&self) -> UpgradeMode {
        let reconciled = self.reconciled.as_ref();
        let job = reconciled.and_then(|it| it.spec.job());
        // A session cluster keeps the metadata of high availability of its jobs.
        job.map_or(UpgradeMode::LastState, |job| job.upgrade_mode)
    }

    /// The wanted state of the job; a session cluster runs.
    pub(super) fn wanted_state(&self) -> DesiredState {
        let job = self.wanted.job.as_ref();
        job.map_or(DesiredState::Running, |job| job.state)
    }

    /// The wanted spec, restored in this way.
    pub(super) fn wanted_by(&self, mode: UpgradeMode) -> FlinkDeploymentSpec {
        job::restored_by(&self.wanted, mode)
    }

    pub(super) fn target<'s>(
        &self,
        spec: &'s FlinkDeploymentSpec,
    ) -> Target<'s, FlinkDeploymentSpec> {
        Target {
            spec,
            generation: self.generation,
            now_ms: self.observed.now.as_millisecond(),
        }
    }

    /// What a spec is deployed with.
    pub(super) fn effective(&self, spec: &FlinkDeploymentSpec) -> Result<Effective, Trouble> {
        effective(self.observed, self.desired, spec)
    }

    /// The metadata of high availability, as a configuration sees them.
    pub(super) fn ha(&self, config: &FlinkConfig) -> Result<HaMetadata, Trouble> {
        if !options::is_highly_available(config)? {
            return Ok(HaMetadata::Off);
        }
        let is_there = self.config_maps.iter().any(|it| it.is_metadata());
        Ok(if is_there {
            HaMetadata::Present
        } else {
            HaMetadata::Absent
        })
    }

    /// The metadata of high availability of the job of the status.
    pub(super) fn metadata_of_job(
        &self,
        status: &FlinkDeploymentStatus,
    ) -> Option<&'a HaConfigMap> {
        let job = status.common.job_status.job_id.as_deref()?;
        let metadata = self.config_maps.iter().filter(|it| it.is_metadata());
        let mut of_job = metadata.filter(|it| it.target.name.contains(job));
        of_job.next().map(Arc::as_ref)
    }

    /// For the subresource `scale`.
    pub(super) fn task_managers(
        &self,
        spec: &FlinkDeploymentSpec,
        config: &FlinkConfig,
    ) -> Result<Option<TaskManagerInfo>, Trouble> {
        let Some(job) = spec.job() else {
            return Ok(None);
        };
        let parallelism = config.get(&options::PARALLELISM)?;
        let n = n_task_managers(parallelism, config.get(&options::SLOTS)?);
        Ok(Some(TaskManagerInfo::of(self.name(), job.state, n)))
    }
}

fn validated(
    observed: &Observed,
    desired: &Desired,
    last: Option<&FlinkDeploymentSpec>,
) -> Result<FlinkDeploymentSpec, String> {
    let spec = desired.spec.clone()?;
    let namespace = &desired.target.namespace;
    let mut config = observed.operator.defaults(namespace, spec.flink_version);
    if let Some(configuration) = &spec.flink_configuration {
        config.merge(&configuration.flat().into_iter().collect());
    }
    let deployment = Deployment {
        name: &desired.target.name,
        namespace,
        spec: &spec,
        last,
        config: &config,
    };
    validate::validate_deployment(&deployment).map_err(|invalid| invalid.to_string())?;
    // What no rule of upstream checks, and nothing can be deployed with.
    let effective = effective(observed, desired, &spec).map_err(|it| it.to_string())?;
    Settings::of(&effective.config).map_err(|error| Trouble::from(error).to_string())?;
    Ok(spec)
}

/// What was reconciled last. What is being deployed is to run.
fn last_good(last: &FlinkDeploymentSpec, status: &FlinkDeploymentStatus) -> FlinkDeploymentSpec {
    let mut spec = last.clone();
    let is_under_way = match status.common.reconciliation_status.state {
        ReconciliationState::Upgrading | ReconciliationState::RollingBack => true,
        ReconciliationState::Deployed | ReconciliationState::RolledBack => false,
    };
    if let Some(job) = spec.job_mut()
        && is_under_way
    {
        job.state = DesiredState::Running;
    }
    spec
}

fn effective(
    observed: &Observed,
    desired: &Desired,
    spec: &FlinkDeploymentSpec,
) -> Result<Effective, Trouble> {
    let namespace = &desired.target.namespace;
    let defaults = observed.operator.defaults(namespace, spec.flink_version);
    let name = ClusterName {
        namespace,
        id: &desired.target.name,
    };
    Ok(effective::deployment(
        defaults,
        name,
        spec,
        &LogFiles::default(),
    )?)
}
