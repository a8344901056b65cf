//! The other sections, checked.

use std::time::Duration;

use super::{AirflowConfig, InvalidValue, executor::Reader, keys};
use crate::token::{Algorithm, TokenRules};

/// `[core]`, as far as it is read here.
#[derive(Clone, PartialEq, Eq)]
pub struct CoreSettings {
    /// How many task instances run at a time, at most.
    pub parallelism: u32,
    /// Where workers find the Execution API: what is set, else below `[api] base_url`. `None` where neither is set: below
    /// the address of this server, where upstream takes `http://localhost:8080`.
    pub execution_api_server_url: Option<String>,
    /// Keys of the database's secrets; empty: nothing is encrypted.
    pub fernet_key: String,
    /// How many instances a mapped task may have.
    pub max_map_length: u32,
}

impl std::fmt::Debug for CoreSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("CoreSettings");
        shown.field("parallelism", &self.parallelism);
        shown.finish_non_exhaustive()
    }
}

/// `[scheduler]`, as far as it is read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// A task instance that is queued for longer is stuck.
    pub task_queued_timeout: Duration,
    /// How often that is looked at.
    pub task_queued_timeout_check_interval: Duration,
    /// How often task instances of dead schedulers are looked for.
    pub orphaned_tasks_check_interval: Duration,
    /// A scheduler without a heartbeat for longer is dead.
    pub scheduler_health_check_threshold: Duration,
    /// A worker without a heartbeat for longer is dead.
    pub task_instance_heartbeat_timeout: Duration,
    /// How often that is looked at.
    pub heartbeat_timeout_detection_interval: Duration,
    /// How often a stuck task instance is scheduled again before it fails.
    pub num_stuck_in_queued_retries: u32,
}

/// `[workers]`. These hold in the worker's process, which reads them itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Time between two heartbeats.
    pub min_heartbeat_interval: Duration,
    /// So many failed heartbeats end the worker.
    pub max_failed_heartbeats: u32,
    /// How often a request is repeated.
    pub execution_api_retries: u32,
    /// The shortest wait before that.
    pub execution_api_retry_wait_min: Duration,
    /// The longest wait before that.
    pub execution_api_retry_wait_max: Duration,
    /// Timeout of a request.
    pub execution_api_timeout: Duration,
    /// How often a worker looks again for a DAG that is not in its file.
    pub missing_dag_retries: u32,
    /// Time between two looks.
    pub missing_dag_retry_delay: Duration,
}

/// `[api_auth]` and `[execution_api]`.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenSettings {
    /// The secret that signs; empty where it is not set.
    pub secret: String,
    /// The file of the private key that signs instead.
    pub private_key_path: Option<String>,
    /// The id of that key.
    pub key_id: Option<String>,
    /// How tokens are signed; `None`: what fits the key.
    pub algorithm: Option<Algorithm>,
    /// What a token has to say.
    pub rules: TokenRules,
    /// How long a token of an execution is valid.
    pub validity: Duration,
}

impl std::fmt::Debug for TokenSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("TokenSettings");
        shown.field("private_key_path", &self.private_key_path);
        shown.field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Reads a section; all values that stop the start are told at once.
pub(super) fn read<T>(
    config: &AirflowConfig,
    section: impl FnOnce(&mut Reader<'_>) -> T,
) -> Result<T, Vec<InvalidValue>> {
    let mut reader = Reader {
        config,
        invalid: Vec::new(),
    };
    let section = section(&mut reader);
    if reader.invalid.is_empty() {
        Ok(section)
    } else {
        Err(reader.invalid)
    }
}

impl CoreSettings {
    /// Reads the section.
    ///
    /// # Errors
    /// All values that stop the start.
    pub fn read(config: &AirflowConfig) -> Result<Self, Vec<InvalidValue>> {
        read(config, |reader| Self {
            parallelism: reader.at_least(&keys::PARALLELISM, 1, "1 or more"),
            execution_api_server_url: execution_api_server_url(reader),
            fernet_key: reader.text(&keys::FERNET_KEY).unwrap_or_default(),
            max_map_length: reader.at_least(&keys::MAX_MAP_LENGTH, 0, "0 or more"),
        })
    }
}

impl SchedulerSettings {
    /// Reads the section.
    ///
    /// # Errors
    /// All values that stop the start.
    pub fn read(config: &AirflowConfig) -> Result<Self, Vec<InvalidValue>> {
        read(config, |reader| Self {
            task_queued_timeout: reader.seconds(&keys::TASK_QUEUED_TIMEOUT),
            task_queued_timeout_check_interval: reader.seconds(&keys::TASK_QUEUED_TIMEOUT_CHECK),
            orphaned_tasks_check_interval: reader.seconds(&keys::ORPHANED_TASKS_CHECK),
            scheduler_health_check_threshold: reader.seconds(&keys::SCHEDULER_HEALTH),
            task_instance_heartbeat_timeout: reader.seconds(&keys::HEARTBEAT_TIMEOUT),
            heartbeat_timeout_detection_interval: reader
                .seconds(&keys::HEARTBEAT_TIMEOUT_DETECTION),
            num_stuck_in_queued_retries: reader.at_least(
                &keys::STUCK_IN_QUEUED_RETRIES,
                0,
                "0 or more",
            ),
        })
    }
}

impl WorkerSettings {
    /// Reads the section.
    ///
    /// # Errors
    /// All values that stop the start.
    pub fn read(config: &AirflowConfig) -> Result<Self, Vec<InvalidValue>> {
        let count = "0 or more";
        read(config, |reader| Self {
            min_heartbeat_interval: reader.seconds(&keys::MIN_HEARTBEAT_INTERVAL),
            max_failed_heartbeats: reader.at_least(&keys::MAX_FAILED_HEARTBEATS, 0, count),
            execution_api_retries: reader.at_least(&keys::EXECUTION_API_RETRIES, 0, count),
            execution_api_retry_wait_min: reader.seconds(&keys::EXECUTION_API_RETRY_WAIT_MIN),
            execution_api_retry_wait_max: reader.seconds(&keys::EXECUTION_API_RETRY_WAIT_MAX),
            execution_api_timeout: reader.seconds(&keys::EXECUTION_API_TIMEOUT),
            missing_dag_retries: reader.at_least(&keys::MISSING_DAG_RETRIES, 0, count),
            missing_dag_retry_delay: reader.seconds(&keys::MISSING_DAG_RETRY_DELAY),
        })
    }
}

impl TokenSettings {
    /// Reads the sections.
    ///
    /// # Errors
    /// All values that stop the start.
    pub fn read(config: &AirflowConfig) -> Result<Self, Vec<InvalidValue>> {
        read(config, |reader| Self {
            secret: reader.text(&keys::JWT_SECRET).unwrap_or_default(),
            private_key_path: reader.text(&keys::JWT_PRIVATE_KEY_PATH),
            key_id: reader.text(&keys::JWT_KID),
            algorithm: algorithm(reader),
            rules: TokenRules {
                audiences: audiences(reader),
                issuer: reader.text(&keys::JWT_ISSUER),
                leeway: reader.seconds(&keys::JWT_LEEWAY),
            },
            validity: reader.seconds(&keys::JWT_EXPIRATION_TIME),
        })
    }
}

fn execution_api_server_url(reader: &Reader<'_>) -> Option<String> {
    let below = |base: String| format!("{}/execution/", base.trim_end_matches('/'));
    let set = reader.text(&keys::EXECUTION_API_SERVER_URL);
    set.or_else(|| reader.text(&keys::BASE_URL).map(below))
}

fn algorithm(reader: &mut Reader<'_>) -> Option<Algorithm> {
    let key = &keys::JWT_ALGORITHM;
    let name = reader.config.optional(key).filter(|it| *it != "GUESS")?;
    let algorithm = Algorithm::parse(name);
    if algorithm.is_none() {
        let expected = "GUESS, HS256, HS384, HS512, RS256, RS384, RS512 or EdDSA";
        reader.invalid.push(reader.config.invalid(key, expected));
    }
    algorithm
}

fn audiences(reader: &mut Reader<'_>) -> Vec<String> {
    let key = &keys::JWT_AUDIENCE;
    let audiences = reader.config.list(key);
    if audiences.is_empty() {
        reader
            .invalid
            .push(reader.config.invalid(key, "one audience or more"));
    }
    audiences
}
