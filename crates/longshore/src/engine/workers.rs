//! Workers of DAGs from Python: what Airflow's configuration says of them, and what answers them.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use longshore_airflow::{
    config::{
        AirflowConfig, CoreSettings, InvalidValue, KubernetesExecutor, RetryLimit,
        SchedulerSettings, TokenSettings,
    },
    fernet::{Fernet, FernetKeyError},
    token::{KeyError, SigningKey, Tokens, workload_validity},
};
use longshore_airflow_api::{ApiConfig, Measures, router};
use longshore_api::{airflow, dags::IMAGE_HOST};
use longshore_console::Token;
use longshore_dags::{
    Dags, DagsConfig,
    execution::{Execution, WorkerStore},
    pods::worker::{TemplateError, WorkerPods, read_template},
    secrets::Secrets,
};
use longshore_kit::{Metrics, SystemClock, Tasks};
use longshore_store::{Store, StoreError};
use serde_json::{Value, json};

use super::watched_store::WatchedStore;
use crate::error::CliError;

/// What the workers of a command need to know, beside Airflow's configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkersPlan {
    /// Where pods reach the Task Execution API, unless the configuration says where.
    pub(crate) server: Option<String>,
    /// The folder of the DAG files, where pods see the files of this machine.
    pub(crate) dags_folder: Option<PathBuf>,
}

/// Airflow's configuration, as far as it is about workers.
pub(crate) struct Workers {
    core: CoreSettings,
    scheduler: SchedulerSettings,
    executor: KubernetesExecutor,
    validity: std::time::Duration,
    tokens: Arc<Tokens>,
    fernet: Option<Fernet>,
}

/// Why workers cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkersError {
    #[error("{path} cannot be read")]
    Unreadable {
        path: String,
        source: std::io::Error,
    },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<InvalidValue>),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Fernet(#[from] FernetKeyError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("the secret of tokens cannot be stored")]
    Store(#[from] StoreError),
}

impl From<WorkersError> for CliError {
    fn from(error: WorkersError) -> Self {
        Self::engine("the workers of DAGs from Python", error)
    }
}

impl Workers {
    /// Reads `airflow.cfg` and `AIRFLOW__*`, and the secret that signs tokens: the configured one, else the one of the
    /// database, so that a restart keeps every token good.
    pub(crate) async fn read(store: &Store) -> Result<Self, WorkersError> {
        let config = configuration()?;
        for problem in config.problems() {
            tracing::warn!(%problem, "Airflow's configuration");
        }
        for pending in config.pending() {
            let (section, key) = (&pending.name.section, &pending.name.key);
            tracing::warn!(
                section,
                key,
                "commands and secrets backends are not asked; set the key itself"
            );
        }
        let tokens = TokenSettings::read(&config).map_err(WorkersError::Invalid)?;
        let core = CoreSettings::read(&config).map_err(WorkersError::Invalid)?;
        Ok(Self {
            scheduler: SchedulerSettings::read(&config).map_err(WorkersError::Invalid)?,
            executor: KubernetesExecutor::read(&config).map_err(WorkersError::Invalid)?,
            fernet: Fernet::new(&core.fernet_key)?,
            core,
            validity: tokens.validity,
            tokens: Arc::new(Tokens::new(
                signing_key(&tokens, store).await?,
                tokens.rules,
            )),
        })
    }

    /// The configuration of a scheduler whose workers these are.
    pub(crate) fn configure(
        &self,
        mut config: DagsConfig,
        plan: &WorkersPlan,
    ) -> Result<DagsConfig, WorkersError> {
        let (scheduler, executor) = (&self.scheduler, &self.executor);
        let limits = &mut config.limits;
        limits.heartbeat_timeout = scheduler.task_instance_heartbeat_timeout;
        limits.queued_timeout = scheduler.task_queued_timeout;
        limits.stuck_in_queued_retries = scheduler.num_stuck_in_queued_retries;
        limits.pod_launch_failure_retries = match executor.pod_launch_failure_retries {
            RetryLimit::Times(n) => Some(n),
            RetryLimit::Unlimited => None,
        };
        let excluded = &executor.launch_failure_excluded_reasons;
        limits.excluded_reasons = excluded.iter().cloned().collect();
        config.disposal.delete_worker_pods = executor.delete_worker_pods;
        config.disposal.delete_worker_pods_on_failure = executor.delete_worker_pods_on_failure;
        let longest = scheduler.task_queued_timeout + scheduler.task_queued_timeout_check_interval;
        config.workers = Some(WorkerPods {
            template: self.template(plan)?,
            image: executor.image.clone(),
            tokens: Arc::clone(&self.tokens),
            token_validity: workload_validity(scheduler.task_queued_timeout, longest),
        });
        Ok(config)
    }

    /// The base pod. What the command knows comes first in its environment: what the file says wins.
    fn template(&self, plan: &WorkersPlan) -> Result<Value, WorkersError> {
        let file = self.executor.pod_template_file.as_deref();
        let read = match file {
            Some(file) => read_template(file.as_ref())?,
            None => None,
        };
        if let (Some(file), None) = (file, &read) {
            tracing::warn!(
                file,
                "the pod template is not there: pods of workers start empty"
            );
        }
        let mut template = read.unwrap_or_else(|| match (file, &plan.dags_folder) {
            // Where pods are processes of this machine, its Python is theirs.
            (None, Some(_)) => json!({"spec": {"restartPolicy": "Never", "containers": [
                {"name": airflow::CONTAINER_BASE, "image": IMAGE_HOST},
            ]}}),
            _ => json!({}),
        });
        let server = self.core.execution_api_server_url.as_ref();
        let server = server.or(plan.server.as_ref()).cloned();
        let folder = plan.dags_folder.as_ref();
        let folder = folder.map(|folder| folder.display().to_string());
        let variables = [
            ("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", server),
            ("AIRFLOW__CORE__DAGS_FOLDER", folder),
        ];
        let variables = variables.into_iter().filter_map(|(name, value)| {
            let value = value?;
            Some(json!({"name": name, "value": value}))
        });
        add_variables(&mut template, variables.collect());
        Ok(template)
    }

    /// What answers workers, for the path `/execution` of a server. Heartbeats are written until `tasks` stop.
    pub(crate) fn serve(
        self,
        dags: Arc<Dags>,
        store: &Arc<WatchedStore>,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> axum::Router {
        let rows = WorkerStore {
            told: store.clone(),
            catalog: store.catalog(),
            asked: store.asked(),
        };
        let execution = Arc::new(Execution::new(dags, rows, Secrets::new(self.fernet)));
        let written = execution.clone().write_heartbeats(tasks.shutdown());
        tasks.spawn("execution.heartbeats", written);
        let config = ApiConfig {
            validity: self.validity,
            max_map_length: u64::from(self.core.max_map_length),
            ..ApiConfig::new(self.tokens)
        };
        router(
            execution,
            Arc::new(SystemClock),
            config,
            &Measures::new(metrics),
        )
    }
}

async fn signing_key(tokens: &TokenSettings, store: &Store) -> Result<SigningKey, WorkersError> {
    if let Some(path) = &tokens.private_key_path {
        let pem = std::fs::read_to_string(path).map_err(|source| WorkersError::Unreadable {
            path: path.clone(),
            source,
        })?;
        let id = tokens.key_id.as_deref();
        return Ok(SigningKey::private(&pem, tokens.algorithm, id)?);
    }
    let secret = if tokens.secret.is_empty() {
        store.token_secret(&Token::generate().into_text()).await?
    } else {
        tokens.secret.clone()
    };
    Ok(SigningKey::secret(&secret, tokens.algorithm)?)
}

/// `AIRFLOW_CONFIG`, else `airflow.cfg` in `AIRFLOW_HOME`, where one of the two is set; and the variables of the environment.
fn configuration() -> Result<AirflowConfig, WorkersError> {
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let variables: BTreeMap<String, String> = variables.collect();
    let home = variables.get("AIRFLOW_HOME").map(PathBuf::from);
    let named = variables.get("AIRFLOW_CONFIG").map(PathBuf::from);
    let file = named.or_else(|| home.map(|home| home.join("airflow.cfg")));
    let text = match &file {
        None => String::new(),
        Some(path) => match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => {
                let path = path.display().to_string();
                return Err(WorkersError::Unreadable { path, source });
            }
        },
    };
    Ok(AirflowConfig::read(&text, &variables))
}

/// Puts variables before those of the first container, which is made where there is none.
fn add_variables(template: &mut Value, variables: Vec<Value>) {
    if variables.is_empty() {
        return;
    }
    let containers = &mut template["spec"]["containers"];
    if !containers.get(0).is_some_and(Value::is_object) {
        *containers = json!([{"name": airflow::CONTAINER_BASE}]);
    }
    let env = &mut containers[0]["env"];
    let of_file = env.as_array().cloned().unwrap_or_default();
    *env = variables.into_iter().chain(of_file).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_template_says_comes_last_and_wins() {
        let ours = || vec![json!({"name": "A", "value": "ours"})];
        let base = json!({"name": "base", "env": [ours()[0]]});
        for (mut template, expected) in [
            (json!({}), json!({"spec": {"containers": [base]}})),
            (
                json!({"spec": {"nodeName": "n", "containers": [
                    {"name": "x", "env": [{"name": "A", "value": "theirs"}]}, {"name": "y"},
                ]}}),
                json!({"spec": {"nodeName": "n", "containers": [
                    {"name": "x", "env": [ours()[0], {"name": "A", "value": "theirs"}]}, {"name": "y"},
                ]}}),
            ),
        ] {
            add_variables(&mut template, ours());
            assert_eq!(template, expected);
        }
        let mut nothing = json!({});
        add_variables(&mut nothing, Vec::new());
        assert_eq!(nothing, json!({}));
    }
}
