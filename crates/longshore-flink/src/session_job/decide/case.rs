//! What a decision is made from: the observation, parsed, and the wanted spec, validated.

use std::sync::Arc;

use longshore_flink_core::{
    conf::{
        FlinkConfig,
        effective::{self, ClusterName},
    },
    diff::{self, Diff, DiffType},
    resources::LogFiles,
    spec::{DesiredState, FlinkDeploymentSpec, FlinkSessionJobSpec, Spec, UpgradeMode},
    status::{
        FlinkSessionJobStatus, JobManagerStatus, ReconciledSpec, ReconciliationState, Target,
    },
    validate::{JarHost, SessionCluster, SessionJob, validate_session_job},
};

use crate::{
    deployment::{self, SnapshotResource},
    job,
    record::Trouble,
    rest,
    session_job::model::{Desired, Observed},
    settings::Settings,
};

/// What a decision is made from.
pub(super) struct Case<'a> {
    pub(super) desired: &'a Desired,
    /// The session cluster, while it serves.
    pub(super) cluster: Option<&'a deployment::Desired>,
    /// The spec of the session cluster, whether it serves or not.
    pub(super) cluster_spec: Option<FlinkDeploymentSpec>,
    pub(super) snapshots: &'a [Arc<SnapshotResource>],
    /// The spec that is to run: that of the object, or the last good one.
    pub(super) wanted: FlinkSessionJobSpec,
    /// The generation of the wanted spec.
    pub(super) generation: i64,
    /// Why the spec of the object is not the wanted one.
    pub(super) invalid: Option<String>,
    /// What was last submitted, or is being submitted.
    pub(super) reconciled: Option<ReconciledSpec<FlinkSessionJobSpec>>,
    /// The configuration by which the job runs and is observed.
    pub(super) config: FlinkConfig,
    pub(super) settings: Settings,
    now_ms: i64,
}

impl<'a> Case<'a> {
    /// The inner error says why there is no spec to go by: that of the object is not valid, and there is none before it.
    pub(super) fn of(
        observed: &'a Observed,
        desired: &'a Desired,
        status: &FlinkSessionJobStatus,
    ) -> Result<Result<Self, String>, Trouble> {
        let reconciled = status.common.reconciled::<FlinkSessionJobSpec>()?;
        let last = reconciled.as_ref().map(|it| &it.spec);
        let cluster = observed.cluster.present().map(Arc::as_ref);
        let cluster_spec = cluster.and_then(deployment::Desired::running);
        let base = cluster_config(observed, cluster, cluster_spec.as_ref())?;
        let valid = validated(
            observed,
            desired,
            last,
            cluster,
            cluster_spec.as_ref(),
            &base,
        );
        let (wanted, generation, invalid) = match (valid, last) {
            (Ok(spec), _) => (spec, desired.generation, None),
            (Err(invalid), None) => return Ok(Err(invalid)),
            (Err(invalid), Some(last)) => {
                let generation = status.common.observed_generation;
                let generation = generation.unwrap_or(desired.generation);
                (last_good(last, status), generation, Some(invalid))
            }
        };
        let config = of_job(&base, &desired.target.name, &wanted);
        let settings =
            Settings::of(&config)?.where_snapshots_are_served(!observed.snapshots.is_absent());
        Ok(Ok(Self {
            desired,
            cluster: cluster.filter(|it| serves(it)),
            cluster_spec,
            snapshots: observed.snapshots.present().map_or(&[], Vec::as_slice),
            wanted,
            generation,
            invalid,
            reconciled,
            config,
            settings,
            now_ms: observed.now.as_millisecond(),
        }))
    }

    pub(super) fn uid(&self) -> &'a str {
        self.desired.target.uid.as_deref().unwrap_or_default()
    }

    /// Host and port of the JobManager's REST Service, while it serves.
    pub(super) fn address(&self) -> Option<String> {
        let cluster = &self.cluster?.target;
        Some(rest::address(cluster, self.settings.rest_port))
    }

    /// What the wanted spec changes.
    pub(super) fn diff(&self) -> Option<Diff> {
        let before = &self.reconciled.as_ref()?.spec;
        let cluster = self.cluster_spec.as_ref();
        let mode = cluster
            .map(FlinkDeploymentSpec::deployment_mode)
            .unwrap_or_default();
        Some(diff::of_session_jobs(mode, before, &self.wanted))
    }

    pub(super) fn diff_kind(&self) -> DiffType {
        self.diff().map_or(DiffType::Ignore, |diff| diff.kind())
    }

    /// How the reconciled spec was restored, or is to be.
    pub(super) fn restore_mode(&self) -> UpgradeMode {
        let reconciled = self.reconciled.as_ref();
        let job = reconciled.and_then(|it| it.spec.job());
        job.map_or(UpgradeMode::Stateless, |job| job.upgrade_mode)
    }

    /// The upgrade mode that the user asks for.
    pub(super) fn user_mode(&self) -> UpgradeMode {
        let job = self.wanted.job();
        job.map_or(UpgradeMode::Stateless, |job| job.upgrade_mode)
    }

    pub(super) fn wanted_state(&self) -> DesiredState {
        let job = self.wanted.job();
        job.map_or(DesiredState::Running, |job| job.state)
    }

    /// The wanted spec, restored in this way.
    pub(super) fn wanted_by(&self, mode: UpgradeMode) -> FlinkSessionJobSpec {
        job::restored_by(&self.wanted, mode)
    }

    pub(super) fn target<'s>(
        &self,
        spec: &'s FlinkSessionJobSpec,
    ) -> Target<'s, FlinkSessionJobSpec> {
        Target {
            spec,
            generation: self.generation,
            now_ms: self.now_ms,
        }
    }
}

/// Whether the REST API of a session cluster serves.
fn serves(cluster: &deployment::Desired) -> bool {
    let status = cluster.status.as_ref();
    status.is_ok_and(|it| it.job_manager_deployment_status == JobManagerStatus::Ready)
}

fn cluster_config(
    observed: &Observed,
    cluster: Option<&deployment::Desired>,
    spec: Option<&FlinkDeploymentSpec>,
) -> Result<FlinkConfig, Trouble> {
    let (Some(cluster), Some(spec)) = (cluster, spec) else {
        return Ok(observed.operator.file().clone());
    };
    let namespace = &cluster.target.namespace;
    let defaults = observed.operator.defaults(namespace, spec.flink_version);
    let name = ClusterName {
        namespace,
        id: &cluster.target.name,
    };
    let effective = effective::deployment(defaults, name, spec, &LogFiles::default())?;
    let current = cluster.spec.as_ref().ok();
    let current = current.and_then(|it| it.flink_configuration.as_ref());
    Ok(effective::observe(effective.config, current)?)
}

/// What the job runs with, above its session cluster.
fn of_job(base: &FlinkConfig, name: &str, spec: &FlinkSessionJobSpec) -> FlinkConfig {
    let configuration = spec.configuration();
    match spec.job() {
        Some(job) => effective::session_job(base.clone(), name, configuration, job),
        None => base.clone(),
    }
}

fn validated(
    observed: &Observed,
    desired: &Desired,
    last: Option<&FlinkSessionJobSpec>,
    cluster: Option<&deployment::Desired>,
    cluster_spec: Option<&FlinkDeploymentSpec>,
    base: &FlinkConfig,
) -> Result<FlinkSessionJobSpec, String> {
    let spec = desired.spec.clone()?;
    let config = of_job(base, &desired.target.name, &spec);
    let cluster = cluster.zip(cluster_spec);
    let cluster = cluster.map(|(cluster, cluster_spec)| SessionCluster {
        name: &cluster.target.name,
        spec: cluster_spec,
        config: &config,
    });
    let job = SessionJob {
        spec: &spec,
        last,
        operator: observed.operator.file(),
        // The transport connects to no restricted address.
        jar_host: JarHost::AtConnect,
        cluster,
    };
    validate_session_job(&job).map_err(|invalid| invalid.to_string())?;
    Settings::of(&config).map_err(|error| Trouble::from(error).to_string())?;
    Ok(spec)
}

/// What was reconciled last. What is being submitted is to run.
fn last_good(last: &FlinkSessionJobSpec, status: &FlinkSessionJobStatus) -> FlinkSessionJobSpec {
    let mut spec = last.clone();
    let is_upgrading = status.common.reconciliation_status.state == ReconciliationState::Upgrading;
    if let Some(job) = spec.job_mut()
        && is_upgrading
    {
        job.state = DesiredState::Running;
    }
    spec
}
