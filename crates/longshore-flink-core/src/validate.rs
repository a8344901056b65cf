//! Whether a spec can be deployed (spec 7; upstream: `DefaultValidator`).
//!
//! The rules are in upstream's order, and the first one that fails counts. The messages are upstream's, word for word, but
//! for what it quotes of Java's own errors after a colon.

mod autoscaler;
mod cluster;
mod ingress;
mod job;
mod resources;
mod session_job;
mod snapshot;
#[cfg(test)]
mod tests;

pub use session_job::{JarHost, SessionCluster, SessionJob, jar_host, validate_session_job};
pub use snapshot::{SnapshotTarget, validate_snapshot};

use crate::{
    conf::{FlinkConfig, InvalidOption, options},
    spec::FlinkDeploymentSpec,
};

/// Why a spec cannot be deployed. Its text is the message of the Event `ValidationError` and of a denial.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

impl Invalid {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl From<InvalidOption> for Invalid {
    fn from(error: InvalidOption) -> Self {
        Self(format!("{error}: {}", error.why))
    }
}

type Validity = Result<(), Invalid>;

/// A FlinkDeployment to be validated.
#[derive(Clone, Copy, Debug)]
pub struct Deployment<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// The wanted spec.
    pub spec: &'a FlinkDeploymentSpec,
    /// The spec that was last reconciled; none before the first deployment.
    pub last: Option<&'a FlinkDeploymentSpec>,
    /// The defaults for namespace and version, and above them what the spec configures.
    pub config: &'a FlinkConfig,
}

/// Validates a FlinkDeployment.
///
/// # Errors
/// The first rule that does not hold.
pub fn validate_deployment(it: &Deployment<'_>) -> Result<(), Invalid> {
    let spec = it.spec;
    cluster::name(Some(it.name))?;
    cluster::version(spec, it.last)?;
    cluster::configuration(it.config)?;
    ingress::validate(spec.ingress.as_ref(), it.name, it.namespace)?;
    cluster::logs(spec.log_configuration.as_ref())?;
    if let Some(job) = &spec.job {
        let replicas = spec.task_manager.as_ref().and_then(|it| it.replicas);
        job::validate(job, replicas, it.config)?;
    }
    cluster::job_manager(spec.job_manager.as_ref(), it.config)?;
    cluster::task_manager(spec.task_manager.as_ref(), it.config)?;
    if let Some(last) = it.last {
        cluster::change(last, spec)?;
    }
    if spec.service_account.is_none() {
        return Err(Invalid::new(
            "spec.serviceAccount must be defined. If you use helm, its value should be the same with the name of \
             jobServiceAccount.",
        ));
    }
    autoscaler::validate(it.config)
}

/// Whether high availability is on (upstream: `HighAvailabilityMode.isHighAvailabilityModeActivated`): any type but `NONE`,
/// which may be a class.
fn is_ha_on(config: &FlinkConfig) -> Result<bool, Invalid> {
    Ok(!config.get(&options::HA_TYPE)?.eq_ignore_ascii_case("NONE"))
}

/// Whether a text is absent or nothing but blanks.
fn is_blank(text: Option<&str>) -> bool {
    text.is_none_or(|text| text.trim().is_empty())
}
