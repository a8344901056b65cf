//! The pods of workers: tasks of DAGs from Python run in them.
//!
//! `longshore-airflow` knows what such a pod is made of; here is what the rows and the document of the DAG say of one.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use longshore_airflow::{
    token::{KeyError, TokenScope, Tokens},
    worker::{
        BundleInfo, ExecuteTask, ExecuteTaskType, ExecutorConfig, ExecutorConfigError,
        INVALID_EXECUTOR_CONFIG, WorkerIdentity, WorkerPod, WorkloadTask, log_path,
    },
};
use longshore_core::{Class, Classify};
use longshore_store::{Run, TaskInstance};
use serde_json::{Value, json};

mod dags;

use super::build::PodConfig;
pub(crate) use dags::WorkerDags;
use dags::{WorkerDag, WorkerTask};

/// The bundle of a DAG whose version names none.
const DEFAULT_BUNDLE: &str = "dags-folder";

/// How the pods of workers are made, whatever the DAG. What all pods have in common is in [`PodConfig`].
#[derive(Clone, Debug)]
pub struct WorkerPods {
    /// The pod of `[kubernetes_executor] pod_template_file`.
    pub template: Value,
    /// `worker_container_repository:worker_container_tag`; without it, the template's image stays.
    pub image: Option<String>,
    /// Signs the tokens of workloads.
    pub tokens: Arc<Tokens>,
    /// How long such a token is valid: longer than a worker that has not begun is waited for.
    pub token_validity: Duration,
}

/// Why no pod can be made for a worker. Trying again does not help: the task fails.
#[derive(Debug, thiserror::Error)]
pub enum WorkerBuildError {
    /// No workers are configured.
    #[error(
        "task {0} is of a DAG from Python, and this command runs no workers; use `longshore standalone`, or `longshore \
         controller` with the role dags"
    )]
    NoWorkers(String),
    /// The row of the version is not there.
    #[error("the version of the DAG that task {0} belongs to is not in the database")]
    NoVersion(String),
    /// The document of the version cannot be read.
    #[error("the document of version {version} cannot be read: {why}")]
    Document {
        /// The version.
        version: String,
        /// What is wrong with it.
        why: String,
    },
    /// The `executor_config` cannot be used.
    #[error("{INVALID_EXECUTOR_CONFIG}: task `{task_id}`: {source}")]
    ExecutorConfig {
        /// The task.
        task_id: String,
        /// What is wrong with it.
        source: ExecutorConfigError,
    },
    /// The template of the task cannot be read.
    #[error("{INVALID_EXECUTOR_CONFIG}: task `{task_id}`: {source}")]
    Template {
        /// The task.
        task_id: String,
        /// What is wrong with it.
        source: TemplateError,
    },
    /// The pod would be in a namespace that the scheduler does not watch.
    #[error(
        "{INVALID_EXECUTOR_CONFIG}: the pod of task `{task_id}` wants namespace `{found}`, and the pods of this scheduler \
         are watched in `{expected}` only; leave the namespace out"
    )]
    Namespace {
        /// The task.
        task_id: String,
        /// What the pod says.
        found: String,
        /// What the scheduler watches.
        expected: String,
    },
    /// No token can be signed.
    #[error("no token can be signed for the worker")]
    Token(#[from] KeyError),
    /// The workload cannot be written.
    #[error("the workload cannot be written")]
    Workload(#[from] serde_json::Error),
}

impl Classify for WorkerBuildError {
    fn class(&self) -> Class {
        Class::Invalid
    }
}

/// Why a pod template file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It cannot be read.
    #[error("the pod template {path} cannot be read: {source}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no pod.
    #[error("expected the YAML of a pod in the pod template {path}, found {found}", path = .path.display())]
    NoPod {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
}

/// The pod in a template file. A file that is missing is an empty pod, as upstream has it, and `None` here.
///
/// # Errors
/// The file cannot be read, or is no pod.
pub fn read_template(path: &Path) -> Result<Option<Value>, TemplateError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            let path = path.to_owned();
            return Err(TemplateError::Unreadable { path, source });
        }
    };
    let no_pod = |found: String| TemplateError::NoPod {
        path: path.to_owned(),
        found,
    };
    match serde_saphyr::from_str::<Value>(&text) {
        Ok(pod) if pod.is_object() => Ok(Some(pod)),
        Ok(_) => Err(no_pod("another value".to_owned())),
        Err(error) => Err(no_pod(error.to_string())),
    }
}

/// What the pod of a worker is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerInput<'a> {
    pub(crate) run: &'a Run,
    /// The task instance, with its current try and launch.
    pub(crate) task_instance: &'a TaskInstance,
    pub(crate) dag: &'a WorkerDag,
    pub(crate) pods: &'a PodConfig,
    pub(crate) workers: &'a WorkerPods,
    /// When the token is issued.
    pub(crate) now: Timestamp,
    /// The token's own id.
    pub(crate) token_id: [u8; 16],
}

/// The pod of the current launch of a task instance. It is the same for each creation of one launch, but for the token.
///
/// # Errors
/// The `executor_config` of the task cannot be used, or no token can be signed.
pub(crate) fn build_worker(input: &WorkerInput<'_>) -> Result<Value, WorkerBuildError> {
    let key = &input.task_instance.key;
    let task = input.dag.tasks.get(&key.task_id);
    let unset = WorkerTask::default();
    let task = task.unwrap_or(&unset);
    let config = ExecutorConfig::read(&task.executor_config);
    let config = config.map_err(|source| WorkerBuildError::ExecutorConfig {
        task_id: key.task_id.clone(),
        source,
    })?;
    let own_template = template_of(&config, &key.task_id)?;
    let args = workload(input, task.queue.as_deref())?.args()?;
    let pod = WorkerPod {
        identity: identity(input),
        args: &args,
        template: own_template.as_ref().unwrap_or(&input.workers.template),
        namespace: &input.pods.namespace,
        image: input.workers.image.as_deref(),
        airflow_version: &input.pods.airflow_version,
        pod_override: config.pod_override.as_ref(),
    }
    .build();
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    if namespace != input.pods.namespace {
        return Err(WorkerBuildError::Namespace {
            task_id: key.task_id.clone(),
            found: namespace.to_owned(),
            expected: input.pods.namespace.clone(),
        });
    }
    Ok(pod)
}

fn template_of(config: &ExecutorConfig, task_id: &str) -> Result<Option<Value>, WorkerBuildError> {
    let Some(path) = config.pod_template_file.as_deref() else {
        return Ok(None);
    };
    let read = read_template(Path::new(path));
    let read = read.map_err(|source| WorkerBuildError::Template {
        task_id: task_id.to_owned(),
        source,
    })?;
    if read.is_none() {
        tracing::warn!(
            task_id,
            path,
            "the pod template of a task is not there: its pod starts empty"
        );
    }
    Ok(Some(read.unwrap_or_else(|| json!({}))))
}

fn identity<'a>(input: &WorkerInput<'a>) -> WorkerIdentity<'a> {
    let row = input.task_instance;
    WorkerIdentity {
        dag_id: &row.key.run.dag_id,
        run_id: &row.key.run.run_id,
        task_id: &row.key.task_id,
        map_index: row.key.map_index,
        try_number: row.try_number,
        task_instance_id: row.id,
        launch: row.launch,
        scheduler_id: &input.pods.scheduler_id,
    }
}

fn workload(input: &WorkerInput<'_>, queue: Option<&str>) -> Result<ExecuteTask, KeyError> {
    let (row, version) = (input.task_instance, &input.dag.version);
    let WorkerIdentity {
        dag_id,
        run_id,
        task_id,
        map_index,
        try_number,
        ..
    } = identity(input);
    let WorkerPods {
        tokens,
        token_validity,
        ..
    } = input.workers;
    let scope = TokenScope::Workload;
    let bundle = version.bundle.as_ref().map(|bundle| bundle.name.as_str());
    let weight = row.priority_weight;
    Ok(ExecuteTask {
        token: tokens.issue(row.id, scope, *token_validity, input.now, input.token_id)?,
        dag_rel_path: version.file.clone(),
        bundle_info: BundleInfo {
            name: bundle.unwrap_or(DEFAULT_BUNDLE).to_owned(),
            version: input.run.details.bundle_version.clone(),
        },
        log_path: Some(log_path(dag_id, run_id, task_id, map_index, try_number)),
        ti: WorkloadTask {
            id: row.id,
            task_id: task_id.to_owned(),
            dag_id: dag_id.to_owned(),
            run_id: run_id.to_owned(),
            try_number,
            dag_version_id: version.id,
            map_index,
            hostname: None,
            context_carrier: None,
            queue: queue.unwrap_or("default").to_owned(),
            pool_slots: row.pool_slots,
            priority_weight: i32::try_from(weight).unwrap_or(if weight < 0 {
                i32::MIN
            } else {
                i32::MAX
            }),
        },
        sentry_integration: String::new(),
        kind: ExecuteTaskType::ExecuteTask,
    })
}

#[cfg(test)]
mod tests;
