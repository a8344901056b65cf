//! `[kubernetes_executor]`, checked.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{AirflowConfig, InvalidValue, Key, keys};

/// `[kubernetes_executor]`.
#[derive(Clone, Debug, PartialEq)]
pub struct KubernetesExecutor {
    /// Whether logs show the annotations of pods, which name DAGs and tasks.
    pub logs_task_metadata: bool,
    /// So many last lines are read of the log of a running pod.
    pub running_pod_log_lines: u32,
    /// The file of the base pod.
    pub pod_template_file: Option<String>,
    /// Repository and tag, where both are set; else the template's image stays.
    pub image: Option<String>,
    /// The namespace of pods.
    pub namespace: String,
    /// Which namespaces are watched.
    pub namespaces: Namespaces,
    /// Whether a pod that ended is deleted, instead of labelled.
    pub delete_worker_pods: bool,
    /// Whether a pod that failed is deleted, too.
    pub delete_worker_pods_on_failure: bool,
    /// Reasons for which a container waits and never starts.
    pub fatal_container_state_reasons: Vec<String>,
    /// How many pods are created at the same time, at most. Nothing waits for a tick, as upstream does.
    pub creation_concurrency: u32,
    /// Whether the service account of the pod is used, instead of a kubeconfig.
    pub in_cluster: bool,
    /// The context of the kubeconfig.
    pub cluster_context: Option<String>,
    /// The kubeconfig.
    pub config_file: Option<String>,
    /// The timeout of requests.
    pub request_timeout: Option<RequestTimeout>,
    /// `DeleteOptions`, in the spelling of the API: `gracePeriodSeconds`.
    pub delete_options: Map<String, Value>,
    /// Whether the API server's certificate is checked.
    pub verify_ssl: bool,
    /// The certificates that it is checked with.
    pub ssl_ca_cert: Option<String>,
    /// How often a failed creation is repeated.
    pub task_publish_max_retries: RetryLimit,
    /// How often a pod is created again that ended before its task began.
    pub pod_launch_failure_retries: RetryLimit,
    /// Reasons for which it is not.
    pub launch_failure_excluded_reasons: Vec<String>,
}

/// Which namespaces are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// That of pods.
    One,
    /// These.
    Listed(Vec<String>),
    /// All.
    All,
}

/// How often something is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryLimit {
    /// So often.
    Times(u32),
    /// Without end: -1.
    Unlimited,
}

impl RetryLimit {
    /// Whether it may be repeated after so many times.
    #[must_use]
    pub fn allows(self, n_done: u32) -> bool {
        match self {
            Self::Times(n) => n_done < n,
            Self::Unlimited => true,
        }
    }
}

/// `_request_timeout` of `kube_client_request_args`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimeout {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until there is an answer.
    pub read: Duration,
}

impl KubernetesExecutor {
    /// Reads the section.
    ///
    /// # Errors
    /// All values that stop the start.
    pub fn read(config: &AirflowConfig) -> Result<Self, Vec<InvalidValue>> {
        let mut reader = Reader {
            config,
            invalid: Vec::new(),
        };
        let executor = reader.executor();
        if reader.invalid.is_empty() {
            Ok(executor)
        } else {
            Err(reader.invalid)
        }
    }
}

/// Reads values, and goes on where one is invalid, so that all are told at once.
pub(super) struct Reader<'a> {
    pub(super) config: &'a AirflowConfig,
    pub(super) invalid: Vec<InvalidValue>,
}

impl Reader<'_> {
    fn executor(&mut self) -> KubernetesExecutor {
        // It has no effect, but upstream does not start with a wrong one either.
        let retries = self.config.object(&keys::API_CLIENT_RETRY_CONFIGURATION);
        self.kept(retries);
        KubernetesExecutor {
            logs_task_metadata: self.boolean(&keys::LOGS_TASK_METADATA),
            running_pod_log_lines: self.at_least(&keys::RUNNING_POD_LOG_LINES, 1, "1 or more"),
            pod_template_file: self.text(&keys::POD_TEMPLATE_FILE),
            image: self.image(),
            namespace: self.text(&keys::NAMESPACE).unwrap_or_default(),
            namespaces: self.namespaces(),
            delete_worker_pods: self.boolean(&keys::DELETE_WORKER_PODS),
            delete_worker_pods_on_failure: self.boolean(&keys::DELETE_WORKER_PODS_ON_FAILURE),
            fatal_container_state_reasons: self.config.list(&keys::FATAL_REASONS),
            creation_concurrency: self.creation_concurrency(),
            in_cluster: self.boolean(&keys::IN_CLUSTER),
            cluster_context: self.text(&keys::CLUSTER_CONTEXT),
            config_file: self.text(&keys::CONFIG_FILE),
            request_timeout: self.request_timeout(),
            delete_options: self.delete_options(),
            verify_ssl: self.boolean(&keys::VERIFY_SSL),
            ssl_ca_cert: self.text(&keys::SSL_CA_CERT),
            task_publish_max_retries: self.limit(&keys::TASK_PUBLISH_MAX_RETRIES),
            pod_launch_failure_retries: self.limit(&keys::LAUNCH_FAILURE_RETRIES),
            launch_failure_excluded_reasons: self.config.list(&keys::LAUNCH_FAILURE_EXCLUDED),
        }
    }

    pub(super) fn boolean(&mut self, key: &Key) -> bool {
        let read = self.config.boolean(key);
        self.kept(read)
    }

    pub(super) fn text(&self, key: &Key) -> Option<String> {
        self.config.optional(key).map(str::to_owned)
    }

    /// An integer of at least `least`.
    pub(super) fn at_least(&mut self, key: &Key, least: u32, expected: &'static str) -> u32 {
        let number = self.config.integer(key).ok();
        let number = number.and_then(|it| u32::try_from(it).ok());
        let number = number.filter(|it| *it >= least);
        self.kept(number.ok_or_else(|| self.config.invalid(key, expected)))
    }

    /// An integer.
    pub(super) fn integer(&mut self, key: &Key) -> i64 {
        let read = self.config.integer(key);
        self.kept(read)
    }

    /// A duration in seconds.
    pub(super) fn seconds(&mut self, key: &Key) -> Duration {
        let number = self.config.float(key).ok();
        let duration = number.and_then(|it| Duration::try_from_secs_f64(it).ok());
        let expected = "a number of seconds, 0 or more";
        self.kept(duration.ok_or_else(|| self.config.invalid(key, expected)))
    }

    fn kept<T: Default>(&mut self, read: Result<T, InvalidValue>) -> T {
        read.unwrap_or_else(|invalid| {
            self.invalid.push(invalid);
            T::default()
        })
    }

    fn image(&self) -> Option<String> {
        let repository = self.config.optional(&keys::WORKER_CONTAINER_REPOSITORY)?;
        let tag = self.config.optional(&keys::WORKER_CONTAINER_TAG)?;
        Some(format!("{repository}:{tag}"))
    }

    fn namespaces(&mut self) -> Namespaces {
        if !self.boolean(&keys::MULTI_NAMESPACE_MODE) {
            return Namespaces::One;
        }
        let listed = self.config.list(&keys::MULTI_NAMESPACE_MODE_LIST);
        if listed.is_empty() {
            Namespaces::All
        } else {
            Namespaces::Listed(listed)
        }
    }

    /// Upstream creates a batch one by one unless `async_pod_creation`, and then at most so many of it at a time.
    fn creation_concurrency(&mut self) -> u32 {
        let batch = self.at_least(&keys::CREATION_BATCH_SIZE, 1, "1 or more");
        let most = self.at_least(&keys::CREATION_MAX_CONCURRENCY, 0, "0 or more");
        match (self.boolean(&keys::ASYNC_POD_CREATION), most) {
            (true, 0) => batch,
            (true, most) => most.min(batch),
            (false, _) => 1,
        }
    }

    fn limit(&mut self, key: &Key) -> RetryLimit {
        match self.config.integer(key) {
            Ok(-1) => RetryLimit::Unlimited,
            _ => RetryLimit::Times(self.at_least(key, 0, "0 or more, or -1 for no limit")),
        }
    }

    fn request_timeout(&mut self) -> Option<RequestTimeout> {
        let key = &keys::KUBE_CLIENT_REQUEST_ARGS;
        let read = self.config.object(key);
        let args = self.kept(read);
        let timeout = args.get("_request_timeout").filter(|it| !it.is_null())?;
        let seconds = |it: &Value| Duration::try_from_secs_f64(it.as_f64()?).ok();
        let read = match timeout.as_array().map(Vec::as_slice) {
            Some([connect, read]) => seconds(connect).zip(seconds(read)),
            Some(_) => None,
            None => seconds(timeout).map(|it| (it, it)),
        };
        if read.is_none() {
            let expected = "an object whose `_request_timeout` is a number of seconds, or a list of two: connect, read";
            self.invalid.push(self.config.invalid(key, expected));
        }
        read.map(|(connect, read)| RequestTimeout { connect, read })
    }

    fn delete_options(&mut self) -> Map<String, Value> {
        let read = self.config.object(&keys::DELETE_OPTION_KWARGS);
        let options = self.kept(read).into_iter();
        options
            .map(|(name, value)| (camel_case(&name), value))
            .collect()
    }
}

/// `grace_period_seconds` as the API spells it.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|it| it.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}
