//! What a deployment runs with: its spec on top of the defaults, in upstream's order (spec 12.2; upstream:
//! `FlinkConfigBuilder`, `FlinkConfigManager`).

use std::collections::BTreeMap;

use longshore_api::flink::ANNOTATION_GENERATION;
use serde_json::Value;

use super::{FlinkConfig, InvalidOption, duration, operator, options, structured};
use crate::{
    json::Json,
    resources::{
        LogFiles, ResourceError,
        template::{self, ArrayMerge},
    },
    spec::{
        DeploymentMode, FlinkConfiguration, FlinkDeploymentSpec, FlinkVersion, JobSpec, UpgradeMode,
    },
};

mod containers;
#[cfg(test)]
mod tests;

pub use containers::flink_memory;

/// Time between checkpoints of a job that is upgraded from its last state, where the user says nothing.
const DEFAULT_CHECKPOINT_INTERVAL: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);
const LOG4J_FILE: &str = "log4j-console.properties";
const LOGBACK_FILE: &str = "logback-console.xml";
const JOB_RESULT_DIR: &str = "job-result-store.storage-path";
const JOB_RESULT_DELETE: &str = "job-result-store.delete-on-commit";

/// What a cluster is deployed with.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// Version of Flink in the image.
    pub version: FlinkVersion,
    /// The configuration.
    pub config: FlinkConfig,
    /// The JobManager's pod template.
    pub job_manager_template: Option<Value>,
    /// The TaskManagers' pod template.
    pub task_manager_template: Option<Value>,
    /// Configuration of logging.
    pub logs: LogFiles,
}

/// Name of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterName<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its id: the name of its FlinkDeployment.
    pub id: &'a str,
}

/// The resource that a JobManager's Deployment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeploymentOwner<'a> {
    /// Group and version.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

/// Why a spec gives no configuration. Validation refuses these specs first.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EffectiveError {
    /// The spec has no version of Flink.
    #[error("Flink Version must be defined.")]
    NoVersion,
    /// Another policy than Kubernetes knows.
    #[error("expected `spec.imagePullPolicy` to be Always, IfNotPresent or Never, found `{found}`")]
    PullPolicy {
        /// What it is.
        found: String,
    },
    /// An amount that is none.
    #[error(
        "{component} resource {resource} parse error: expected an amount such as `1024m`, `2Gi` or `500m`, found `{found}`"
    )]
    Amount {
        /// `JobManager` or `TaskManager`.
        component: &'static str,
        /// Name of the resource.
        resource: &'static str,
        /// What it is.
        found: String,
    },
    /// A value that its option cannot have.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// A pod template.
    #[error(transparent)]
    Template(#[from] ResourceError),
}

/// What a FlinkDeployment is deployed with.
///
/// `defaults` is what it inherits ([`super::layers`]), `operator_logs` the operator's own configuration of logging,
/// which `logConfiguration` replaces as a whole.
///
/// # Errors
/// [`EffectiveError`] where the spec gives no configuration.
pub fn deployment(
    defaults: FlinkConfig,
    name: ClusterName<'_>,
    spec: &FlinkDeploymentSpec,
    operator_logs: &LogFiles,
) -> Result<Effective, EffectiveError> {
    let version = spec.flink_version.ok_or(EffectiveError::NoVersion)?;
    let mut config = defaults;
    apply_configuration(&mut config, spec.flink_configuration.as_ref(), version);
    apply_image(&mut config, spec, version)?;
    let (job_manager_template, task_manager_template) = templates(&config, spec)?;
    containers::apply_job_manager(&mut config, spec, version)?;
    containers::apply_task_manager(&mut config, spec, version)?;
    apply_job_or_session(&mut config, name.id, spec)?;
    config.set(&options::NAMESPACE, name.namespace);
    config.set(&options::CLUSTER_ID, name.id);
    if options::is_highly_available(&config)? {
        config.set(&options::HA_CLUSTER_ID, name.id);
    }
    Ok(Effective {
        version,
        config,
        job_manager_template,
        task_manager_template,
        logs: logs(spec, operator_logs),
    })
}

/// What a running cluster is observed with: what it was deployed with, and what the current spec says about the
/// operator and about savepoints (spec 6.1).
///
/// # Errors
/// Never: every text is a directory.
pub fn observe(
    mut deployed: FlinkConfig,
    current: Option<&FlinkConfiguration>,
) -> Result<FlinkConfig, InvalidOption> {
    let current: FlinkConfig = current.map_or_else(FlinkConfig::new, flat);
    for (key, text) in current.iter() {
        if key.starts_with(operator::PREFIX) || key.starts_with(operator::AUTOSCALER_PREFIX) {
            deployed.set_text(key, text);
        }
    }
    if let Some(directory) = current.find(&options::SAVEPOINT_DIR)? {
        deployed.set(&options::SAVEPOINT_DIR, directory);
    }
    Ok(deployed)
}

/// What a session job runs with: what its session cluster is observed with, its own configuration, and its job.
#[must_use]
pub fn session_job(
    mut session: FlinkConfig,
    name: &str,
    configuration: Option<&FlinkConfiguration>,
    job: &JobSpec,
) -> FlinkConfig {
    if let Some(configuration) = configuration {
        session.merge(&flat(configuration));
    }
    apply_job(&mut session, name, job);
    session
}

/// Marks what is deployed with the generation of its resource.
///
/// # Errors
/// [`InvalidOption`] where the configured annotations are no map.
pub fn set_generation(config: &mut FlinkConfig, generation: i64) -> Result<(), InvalidOption> {
    let mut annotations = config.map(&options::JOB_MANAGER_ANNOTATIONS)?;
    annotations.insert(ANNOTATION_GENERATION.to_owned(), generation.to_string());
    config.set_map(&options::JOB_MANAGER_ANNOTATIONS, &annotations);
    Ok(())
}

/// Sets the owner of the JobManager's Deployment: its deletion waits for that of the Deployment.
pub fn set_owner(config: &mut FlinkConfig, owner: DeploymentOwner<'_>) {
    let fields = [
        ("name", owner.name),
        ("controller", "false"),
        ("blockOwnerDeletion", "true"),
        ("apiVersion", owner.api_version),
        ("kind", owner.kind),
        ("uid", owner.uid),
    ];
    let text = structured::write_list([structured::write_map(fields).as_str()]);
    config.set(&options::JOB_MANAGER_OWNERS.key, text);
}

/// Sets the savepoint that the job starts from, or removes it (spec 9.5).
pub fn set_savepoint(config: &mut FlinkConfig, path: Option<&str>) {
    config.remove(&options::SAVEPOINT_PATH);
    if let Some(path) = path {
        config.set(&options::SAVEPOINT_PATH, path);
    }
}

/// Gives this attempt a place of its own for the results of its jobs, where there is high availability (spec 9.5).
/// `attempt` is a random name.
///
/// # Errors
/// Never: every text is a directory.
pub fn set_job_result_store(
    config: &mut FlinkConfig,
    cluster_id: &str,
    attempt: &str,
) -> Result<(), InvalidOption> {
    if let Some(directory) = config.find(&options::HA_STORAGE_DIR)? {
        if config.text(JOB_RESULT_DELETE).is_none() {
            config.set_text(JOB_RESULT_DELETE, "false");
        }
        let path = format!("{directory}/job-result-store/{cluster_id}/{attempt}");
        config.set_text(JOB_RESULT_DIR, path);
    }
    Ok(())
}

/// The configuration that a user wrote, flat.
fn flat(configuration: &FlinkConfiguration) -> FlinkConfig {
    configuration.flat().into_iter().collect()
}

/// Step 1.
fn apply_configuration(
    config: &mut FlinkConfig,
    configuration: Option<&FlinkConfiguration>,
    version: FlinkVersion,
) {
    if let Some(configuration) = configuration {
        config.merge(&flat(configuration));
    }
    config.set_default(&options::REST_EXPOSED_TYPE.key, "ClusterIP");
    // Users would cancel by accident what the operator then starts again.
    config.set_default(&options::WEB_CANCEL, "false");
    config.set(&options::FLINK_VERSION, version.as_str());
}

/// Step 2.
fn logs(spec: &FlinkDeploymentSpec, operator_logs: &LogFiles) -> LogFiles {
    match &spec.log_configuration {
        Some(files) => LogFiles {
            log4j: files.get(LOG4J_FILE).cloned(),
            logback: files.get(LOGBACK_FILE).cloned(),
        },
        None => operator_logs.clone(),
    }
}

/// Steps 3 to 5.
fn apply_image(
    config: &mut FlinkConfig,
    spec: &FlinkDeploymentSpec,
    version: FlinkVersion,
) -> Result<(), EffectiveError> {
    if let Some(image) = given(spec.image.as_deref()) {
        let key = if version >= FlinkVersion::V1_17 {
            options::IMAGE.name
        } else {
            "kubernetes.container.image"
        };
        config.set_text(key, image);
    }
    match given(spec.image_pull_policy.as_deref()) {
        Some(policy @ ("Always" | "IfNotPresent" | "Never")) => {
            config.set(&options::IMAGE_PULL_POLICY.key, policy);
        }
        Some(found) => {
            let found = found.to_owned();
            return Err(EffectiveError::PullPolicy { found });
        }
        None => {}
    }
    if let Some(account) = &spec.service_account {
        config.set(&options::SERVICE_ACCOUNT, account.as_str());
    }
    Ok(())
}

/// Step 6: the templates of JobManager and TaskManagers.
fn templates(
    config: &FlinkConfig,
    spec: &FlinkDeploymentSpec,
) -> Result<(Option<Value>, Option<Value>), EffectiveError> {
    let arrays = if config.get(&operator::MERGE_BY_NAME)? {
        ArrayMerge::ByName
    } else {
        ArrayMerge::ByIndex
    };
    let common = spec.pod_template.as_ref().map(plain);
    let merged = |over: Option<&Json>| {
        let over = over.map(plain);
        template::merge(common.as_ref(), over.as_ref(), arrays)
    };
    let job_manager = spec.job_manager.as_ref();
    let task_manager = spec.task_manager.as_ref();
    let mut for_job_manager = template::with_resources(
        merged(job_manager.and_then(|it| it.pod_template.as_ref())),
        &containers::other_resources(
            job_manager.and_then(|it| it.resources.as_ref()),
            job_manager.and_then(|it| it.resource.as_ref()),
        ),
    )?;
    if config.get(&operator::JM_STARTUP_PROBE)? {
        for_job_manager = Some(template::with_startup_probe(for_job_manager)?);
    }
    let for_task_manager = template::with_resources(
        merged(task_manager.and_then(|it| it.pod_template.as_ref())),
        &containers::other_resources(
            task_manager.and_then(|it| it.resources.as_ref()),
            task_manager.and_then(|it| it.resource.as_ref()),
        ),
    )?;
    Ok((for_job_manager, for_task_manager))
}

/// Step 9.
fn apply_job_or_session(
    config: &mut FlinkConfig,
    name: &str,
    spec: &FlinkDeploymentSpec,
) -> Result<(), EffectiveError> {
    let mode = spec.deployment_mode();
    let (target, cluster_mode) = match &spec.job {
        Some(_) => ("kubernetes-application", "APPLICATION"),
        None => ("kubernetes-session", "SESSION"),
    };
    config.set(&options::TARGET, target);
    let jar = spec.job.as_ref().and_then(|job| job.jar_uri.as_deref());
    if let Some(job) = &spec.job {
        if let (DeploymentMode::Native, Some(jar)) = (mode, jar) {
            config.set(&options::JARS, structured::write_list([jar]));
        }
        let parallelism = containers::parallelism(config, spec, job)?;
        config.set(&options::PARALLELISM.key, parallelism.to_string());
        // The operator reads the end of the job from its JobManager.
        config.set(&options::SHUTDOWN_ON_FINISH, "false");
        config.set_default(&options::SUBMIT_FAILED_JOB, "true");
        apply_job(config, name, job);
    }
    if mode == DeploymentMode::Standalone {
        config.set(&options::TARGET, "remote");
        config.set(&options::CLUSTER_MODE, cluster_mode);
        if let Some(jar) = jar {
            let path = file_uri(jar);
            config.set(
                &options::CLASSPATHS,
                structured::write_list([path.as_str()]),
            );
        }
    }
    Ok(())
}

/// What jobs of applications and of sessions have in common.
fn apply_job(config: &mut FlinkConfig, name: &str, job: &JobSpec) {
    config.set_default(&options::JOB_NAME, name);
    if job.upgrade_mode == UpgradeMode::LastState {
        config.set_default(
            &options::CHECKPOINT_INTERVAL,
            duration::format(DEFAULT_CHECKPOINT_INTERVAL),
        );
    }
    config.set_default(&options::CHECKPOINT_RETENTION, "RETAIN_ON_CANCELLATION");
    if let Some(is_allowed) = job.allow_non_restored_state {
        config.set(&options::IGNORE_UNCLAIMED_STATE, is_allowed.to_string());
    }
    if let Some(class) = &job.entry_class {
        config.set(&options::MAIN_CLASS, class.as_str());
    }
    let args = job.args.iter().map(String::as_str);
    config.set(&options::PROGRAM_ARGS, structured::write_list(args));
}

/// The jar of a standalone cluster: `local:` means the image, which is `file:` in it.
fn file_uri(jar: &str) -> String {
    match jar.strip_prefix("local:") {
        Some(rest) if rest.starts_with("//") => format!("file:{rest}"),
        Some(rest) => format!("file://{rest}"),
        None => jar.to_owned(),
    }
}

/// A text that is more than blanks.
fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.trim().is_empty())
}

fn plain(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => Value::Number(number.clone()),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(elements) => elements.iter().map(plain).collect(),
        Json::Object(object) => object
            .iter()
            .map(|(key, value)| (key.to_owned(), plain(value)))
            .collect(),
    }
}

/// Texts of a map that option values are made of.
type Texts = BTreeMap<String, String>;
