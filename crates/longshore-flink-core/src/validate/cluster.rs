//! Rules about a cluster and its FlinkDeployment: 1 to 7, 9 and 13 to 20.

use std::collections::BTreeMap;

use super::{Invalid, Validity, is_blank, is_ha_on, resources};
use crate::{
    conf::{FlinkConfig, operator},
    memory::{JobManagerMemory, TaskManagerMemory},
    spec::{
        DeploymentMode, DesiredState, FlinkDeploymentSpec, JobManagerSpec, ResourceRequirements,
        ResourceSpec, TaskManagerSpec, UpgradeMode,
    },
};

/// Longest name of a cluster: Flink derives names of Services from it.
const MAX_NAME: usize = 45;
const LOG_FILES: [&str; 2] = ["log4j-console.properties", "logback-console.xml"];
/// Keys that the operator sets itself.
const FORBIDDEN: [&str; 3] = [
    "kubernetes.namespace",
    "kubernetes.cluster-id",
    "high-availability.cluster-id",
];

/// Rule 1.
pub(super) fn name(name: Option<&str>) -> Validity {
    if name.is_some_and(is_name) {
        return Ok(());
    }
    // What Java prints of a name that is missing.
    let name = name.unwrap_or("null");
    Err(Invalid(format!(
        "The FlinkDeployment name: {name} is invalid, must consist of lower case alphanumeric characters or '-', start with \
         an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123'), and the length \
         must be no more than 45 characters."
    )))
}

fn is_name(name: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.len() <= MAX_NAME
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|&byte| is_alphanumeric(byte))
        && bytes
            .iter()
            .all(|&byte| is_alphanumeric(byte) || byte == b'-')
}

/// Rules 2 to 4.
pub(super) fn version(spec: &FlinkDeploymentSpec, last: Option<&FlinkDeploymentSpec>) -> Validity {
    let Some(version) = spec.flink_version else {
        return Err(Invalid::new("Flink Version must be defined."));
    };
    if !version.is_supported() {
        return Err(Invalid(format!(
            "Flink version {version} is not supported by this operator version"
        )));
    }
    let (Some(job), Some(last)) = (&spec.job, last) else {
        return Ok(());
    };
    // The state of such a job is known to the metadata of high availability only, which other versions do not read.
    let is_suspended = last.job.as_ref().is_some_and(|last| {
        last.state == DesiredState::Suspended && last.upgrade_mode == UpgradeMode::LastState
    });
    let is_stateful = job.upgrade_mode != UpgradeMode::Stateless;
    if is_stateful && is_suspended && last.flink_version != spec.flink_version {
        return Err(Invalid::new(
            "Changing flinkVersion after last-state suspend is not allowed. Restore your cluster with the current \
             flinkVersion and perform the version upgrade afterwards.",
        ));
    }
    Ok(())
}

/// Rules 5 to 7.
pub(super) fn configuration(config: &FlinkConfig) -> Validity {
    if let Some(key) = FORBIDDEN.iter().find(|key| config.text(key).is_some()) {
        return Err(Invalid(format!("Forbidden Flink config key: {key}")));
    }
    if config.get(&operator::ROLLBACK)? && !is_ha_on(config)? {
        return Err(Invalid::new("HA must be enabled for rollback support."));
    }
    if config.get(&operator::HEALTH_CHECK)? && !config.get(&operator::JM_RECOVERY)? {
        return Err(Invalid(format!(
            "Deployment recovery ({}) must be enabled for job health check ({}) support.",
            operator::JM_RECOVERY.key.name,
            operator::HEALTH_CHECK.key.name
        )));
    }
    Ok(())
}

/// Rule 9.
pub(super) fn logs(files: Option<&BTreeMap<String, String>>) -> Validity {
    let mut names = files.into_iter().flat_map(BTreeMap::keys);
    match names.find(|name| !LOG_FILES.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Invalid(format!(
            "Invalid log config key: {name}. Allowed keys are [{}]",
            LOG_FILES.join(", ")
        ))),
    }
}

/// Rules 13 to 16.
pub(super) fn job_manager(spec: Option<&JobManagerSpec>, config: &FlinkConfig) -> Validity {
    let (resource, requirements) = spec.map_or((None, None), |it| {
        (it.resource.as_ref(), it.resources.as_ref())
    });
    if !has_memory(resource, requirements) && JobManagerMemory::derive(config).is_err() {
        return Err(no_memory("JobManager", "jobManager"));
    }
    let Some(spec) = spec else {
        return Ok(());
    };
    resources::resource("JobManager", resource)?;
    resources::requirements("JobManager", requirements)?;
    if spec.replicas < 1 {
        return Err(Invalid::new(
            "JobManager replicas should not be configured less than one.",
        ));
    }
    if spec.replicas > 1 && !is_ha_on(config)? {
        return Err(Invalid::new(
            "High availability should be enabled when starting standby JobManagers.",
        ));
    }
    Ok(())
}

/// Rule 17.
pub(super) fn task_manager(spec: Option<&TaskManagerSpec>, config: &FlinkConfig) -> Validity {
    let (resource, requirements) = spec.map_or((None, None), |it| {
        (it.resource.as_ref(), it.resources.as_ref())
    });
    if !has_memory(resource, requirements) && TaskManagerMemory::derive(config).is_err() {
        return Err(no_memory("TaskManager", "taskManager"));
    }
    let Some(spec) = spec else {
        return Ok(());
    };
    resources::resource("TaskManager", resource)?;
    resources::requirements("TaskManager", requirements)?;
    if spec.replicas.is_some_and(|replicas| replicas < 1) {
        return Err(Invalid::new(
            "TaskManager replicas should not be configured less than one.",
        ));
    }
    Ok(())
}

fn has_memory(
    resource: Option<&ResourceSpec>,
    requirements: Option<&ResourceRequirements>,
) -> bool {
    let memory = resource.and_then(|it| it.memory.as_deref());
    !is_blank(memory) || requirements.is_some_and(|it| it.request_or_limit("memory").is_some())
}

fn no_memory(component: &str, field: &str) -> Invalid {
    Invalid(format!(
        "{component} resource memory must be defined using `spec.{field}.resource.memory` or \
         `spec.{field}.resources.requests.memory`"
    ))
}

/// Rules 18 to 20.
pub(super) fn change(last: &FlinkDeploymentSpec, spec: &FlinkDeploymentSpec) -> Validity {
    match (&last.job, &spec.job) {
        (None, Some(_)) => {
            return Err(Invalid::new("Cannot switch from session to job cluster"));
        }
        (Some(_), None) => {
            return Err(Invalid::new("Cannot switch from job to session cluster"));
        }
        (None, None) | (Some(_), Some(_)) => {}
    }
    match (last.deployment_mode(), spec.deployment_mode()) {
        (DeploymentMode::Native, DeploymentMode::Standalone) => {
            return Err(Invalid::new(
                "Cannot switch from native kubernetes to standalone kubernetes cluster",
            ));
        }
        (DeploymentMode::Standalone, DeploymentMode::Native) => {
            return Err(Invalid::new(
                "Cannot switch from standalone kubernetes to native kubernetes cluster",
            ));
        }
        (DeploymentMode::Native, DeploymentMode::Native)
        | (DeploymentMode::Standalone, DeploymentMode::Standalone) => {}
    }
    let (Some(last), Some(job)) = (&last.job, &spec.job) else {
        return Ok(());
    };
    let is_redeployed = job.savepoint_redeploy_nonce.is_some()
        && job.savepoint_redeploy_nonce != last.savepoint_redeploy_nonce;
    if is_redeployed && is_blank(job.initial_savepoint_path.as_deref()) {
        return Err(Invalid::new(
            "InitialSavepointPath must not be empty for savepoint redeployment",
        ));
    }
    Ok(())
}
