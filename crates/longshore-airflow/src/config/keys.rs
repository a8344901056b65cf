//! The keys that Longshore knows, with upstream's types and defaults.

/// A key of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The section, in brackets as in the file.
    bracketed: &'static str,
    /// The key.
    pub name: &'static str,
    /// The type of its value.
    pub kind: KeyKind,
    /// Upstream's default.
    pub default: &'static str,
    /// Whether its value is a secret: then it may be fetched (`_cmd`, `_secret`), and is never shown.
    pub is_secret: bool,
    /// Whether it has an effect here.
    pub support: Support,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// A text.
    Text,
    /// `True` or `False`.
    Boolean,
    /// An integer.
    Integer,
    /// A number.
    Float,
    /// Texts with commas between them.
    List,
    /// A JSON object.
    Object,
}

/// Whether a key has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It has upstream's.
    Used,
    /// It has none: what happens instead.
    Instead(&'static str),
}

impl Key {
    /// The section.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.bracketed.trim_matches(['[', ']'])
    }

    const fn instead(self, what: &'static str) -> Self {
        Self {
            support: Support::Instead(what),
            ..self
        }
    }

    const fn secret(self) -> Self {
        Self {
            is_secret: true,
            ..self
        }
    }
}

const fn key(
    bracketed: &'static str,
    name: &'static str,
    kind: KeyKind,
    default: &'static str,
) -> Key {
    Key {
        bracketed,
        name,
        kind,
        default,
        is_secret: false,
        support: Support::Used,
    }
}

use KeyKind::{Boolean, Float, Integer, List, Object, Text};

/// Declares keys as constants, and the list of them.
macro_rules! keys {
    ($($constant:ident = $key:expr;)+) => {
        $(
            #[doc = concat!("`", stringify!($constant), "`, as upstream has it.")]
            pub(super) const $constant: Key = $key;
        )+
        /// Every key that Longshore knows.
        pub const KEYS: &[Key] = &[$($constant),+];
    };
}

const EXECUTOR: &str = "[kubernetes_executor]";
const CORE: &str = "[core]";
const SCHEDULER: &str = "[scheduler]";
const WORKERS: &str = "[workers]";
const API_AUTH: &str = "[api_auth]";
const EXECUTION_API: &str = "[execution_api]";
const API: &str = "[api]";
const DAG_PROCESSOR: &str = "[dag_processor]";

const KEEPALIVE: &str = "Longshore's client keeps its connections alive by HTTP/2 pings";
const CLIENT: &str =
    "it names Python code, and Longshore has a client of its own; configure that by kubeconfig";

keys! {
    API_CLIENT_RETRY_CONFIGURATION = key(EXECUTOR, "api_client_retry_configuration", Object, "")
        .instead("Longshore's client retries with growing delays, and honours Retry-After");
    LOGS_TASK_METADATA = key(EXECUTOR, "logs_task_metadata", Boolean, "False");
    RUNNING_POD_LOG_LINES = key(EXECUTOR, "running_pod_log_lines", Integer, "100");
    POD_TEMPLATE_FILE = key(EXECUTOR, "pod_template_file", Text, "");
    WORKER_CONTAINER_REPOSITORY = key(EXECUTOR, "worker_container_repository", Text, "");
    WORKER_CONTAINER_TAG = key(EXECUTOR, "worker_container_tag", Text, "");
    NAMESPACE = key(EXECUTOR, "namespace", Text, "default");
    DELETE_WORKER_PODS = key(EXECUTOR, "delete_worker_pods", Boolean, "True");
    DELETE_WORKER_PODS_ON_FAILURE = key(EXECUTOR, "delete_worker_pods_on_failure", Boolean, "False");
    FATAL_REASONS = key(
        EXECUTOR,
        "worker_pod_pending_fatal_container_state_reasons",
        List,
        "CreateContainerConfigError,ErrImagePull,CreateContainerError,ImageInspectError,InvalidImageName"
    );
    CREATION_BATCH_SIZE = key(EXECUTOR, "worker_pods_creation_batch_size", Integer, "1");
    ASYNC_POD_CREATION = key(EXECUTOR, "async_pod_creation", Boolean, "False");
    CREATION_MAX_CONCURRENCY = key(EXECUTOR, "pod_creation_max_concurrency", Integer, "0");
    MULTI_NAMESPACE_MODE = key(EXECUTOR, "multi_namespace_mode", Boolean, "False");
    MULTI_NAMESPACE_MODE_LIST = key(EXECUTOR, "multi_namespace_mode_namespace_list", List, "");
    IN_CLUSTER = key(EXECUTOR, "in_cluster", Boolean, "True");
    CLUSTER_CONTEXT = key(EXECUTOR, "cluster_context", Text, "");
    CONFIG_FILE = key(EXECUTOR, "config_file", Text, "");
    CLIENT_FACTORY = key(EXECUTOR, "client_factory", Text, "").instead(CLIENT);
    ASYNC_CLIENT_FACTORY = key(EXECUTOR, "async_client_factory", Text, "").instead(CLIENT);
    KUBE_CLIENT_REQUEST_ARGS = key(EXECUTOR, "kube_client_request_args", Object, "");
    DELETE_OPTION_KWARGS = key(EXECUTOR, "delete_option_kwargs", Object, "");
    ENABLE_TCP_KEEPALIVE = key(EXECUTOR, "enable_tcp_keepalive", Boolean, "True").instead(KEEPALIVE);
    TCP_KEEP_IDLE = key(EXECUTOR, "tcp_keep_idle", Integer, "120").instead(KEEPALIVE);
    TCP_KEEP_INTVL = key(EXECUTOR, "tcp_keep_intvl", Integer, "30").instead(KEEPALIVE);
    TCP_KEEP_CNT = key(EXECUTOR, "tcp_keep_cnt", Integer, "6").instead(KEEPALIVE);
    VERIFY_SSL = key(EXECUTOR, "verify_ssl", Boolean, "True");
    SSL_CA_CERT = key(EXECUTOR, "ssl_ca_cert", Text, "");
    TASK_PUBLISH_MAX_RETRIES = key(EXECUTOR, "task_publish_max_retries", Integer, "0");
    LAUNCH_FAILURE_RETRIES = key(EXECUTOR, "pod_launch_failure_retries", Integer, "1");
    LAUNCH_FAILURE_EXCLUDED = key(
        EXECUTOR,
        "pod_launch_failure_excluded_container_reasons",
        List,
        "Error"
    );

    PARALLELISM = key(CORE, "parallelism", Integer, "32");
    EXECUTION_API_SERVER_URL = key(CORE, "execution_api_server_url", Text, "");
    FERNET_KEY = key(CORE, "fernet_key", Text, "").secret();
    MAX_MAP_LENGTH = key(CORE, "max_map_length", Integer, "1024");
    MULTI_TEAM = key(CORE, "multi_team", Boolean, "False")
        .instead("all DAGs share one executor and one configuration");

    TASK_QUEUED_TIMEOUT = key(SCHEDULER, "task_queued_timeout", Float, "600");
    TASK_QUEUED_TIMEOUT_CHECK = key(SCHEDULER, "task_queued_timeout_check_interval", Float, "120");
    ORPHANED_TASKS_CHECK = key(SCHEDULER, "orphaned_tasks_check_interval", Float, "300");
    SCHEDULER_HEALTH = key(SCHEDULER, "scheduler_health_check_threshold", Integer, "30");
    HEARTBEAT_TIMEOUT = key(SCHEDULER, "task_instance_heartbeat_timeout", Integer, "300");
    HEARTBEAT_TIMEOUT_DETECTION = key(
        SCHEDULER,
        "task_instance_heartbeat_timeout_detection_interval",
        Float,
        "10"
    );
    SCHEDULER_IDLE_SLEEP = key(SCHEDULER, "scheduler_idle_sleep_time", Float, "1")
        .instead("Longshore's scheduler does not sleep: a change wakes it at once");
    STUCK_IN_QUEUED_RETRIES = key(SCHEDULER, "num_stuck_in_queued_retries", Integer, "2");

    MIN_HEARTBEAT_INTERVAL = key(WORKERS, "min_heartbeat_interval", Integer, "5");
    MAX_FAILED_HEARTBEATS = key(WORKERS, "max_failed_heartbeats", Integer, "3");
    EXECUTION_API_RETRIES = key(WORKERS, "execution_api_retries", Integer, "5");
    EXECUTION_API_RETRY_WAIT_MIN = key(WORKERS, "execution_api_retry_wait_min", Float, "1.0");
    EXECUTION_API_RETRY_WAIT_MAX = key(WORKERS, "execution_api_retry_wait_max", Float, "90.0");
    EXECUTION_API_TIMEOUT = key(WORKERS, "execution_api_timeout", Float, "5.0");
    MISSING_DAG_RETRIES = key(WORKERS, "missing_dag_retries", Integer, "3");
    MISSING_DAG_RETRY_DELAY = key(WORKERS, "missing_dag_retry_delay", Float, "60");

    JWT_SECRET = key(API_AUTH, "jwt_secret", Text, "").secret();
    JWT_PRIVATE_KEY_PATH = key(API_AUTH, "jwt_private_key_path", Text, "");
    JWT_KID = key(API_AUTH, "jwt_kid", Text, "");
    JWT_ISSUER = key(API_AUTH, "jwt_issuer", Text, "");
    JWT_ALGORITHM = key(API_AUTH, "jwt_algorithm", Text, "GUESS");
    JWT_LEEWAY = key(API_AUTH, "jwt_leeway", Integer, "10");
    TRUSTED_JWKS_URL = key(API_AUTH, "trusted_jwks_url", Text, "")
        .instead("Longshore accepts the tokens that it signs itself, and no others");

    BASE_URL = key(API, "base_url", Text, "");

    DAGS_FOLDER = key(CORE, "dags_folder", Text, "");
    DAGS_ARE_PAUSED = key(CORE, "dags_are_paused_at_creation", Boolean, "True");
    DAG_DISCOVERY_SAFE_MODE = key(CORE, "dag_discovery_safe_mode", Boolean, "True");
    DAG_IGNORE_FILE_SYNTAX = key(CORE, "dag_ignore_file_syntax", Text, "glob");
    BUNDLE_LIST = key(DAG_PROCESSOR, "dag_bundle_config_list", Text, "");
    BUNDLE_STORAGE = key(DAG_PROCESSOR, "dag_bundle_storage_path", Text, "");
    REFRESH_INTERVAL = key(DAG_PROCESSOR, "refresh_interval", Integer, "300");
    PARSING_PROCESSES = key(DAG_PROCESSOR, "parsing_processes", Integer, "2");
    FILE_PROCESS_INTERVAL = key(DAG_PROCESSOR, "min_file_process_interval", Integer, "30");
    FILE_PROCESSOR_TIMEOUT = key(DAG_PROCESSOR, "dag_file_processor_timeout", Float, "50");
    CLEANUP_INTERVAL = key(DAG_PROCESSOR, "stale_bundle_cleanup_interval", Integer, "1800");
    CLEANUP_AGE = key(DAG_PROCESSOR, "stale_bundle_cleanup_age_threshold", Integer, "21600");
    CLEANUP_MIN_VERSIONS = key(DAG_PROCESSOR, "stale_bundle_cleanup_min_versions", Integer, "10");
    JWT_AUDIENCE = key(EXECUTION_API, "jwt_audience", List, "urn:airflow.apache.org:task");
    JWT_EXPIRATION_TIME = key(EXECUTION_API, "jwt_expiration_time", Integer, "600");
}
