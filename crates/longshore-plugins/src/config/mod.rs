//! The configuration of plugins: the part of upstream's sections that is used, with upstream's defaults.

mod accelerators;
mod co_pilot;
mod duration;
mod k8s;
mod keys;
mod logs;
mod read;
mod section;

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

pub use accelerators::{AcceleratorNodes, Accelerators, DeviceClassConfig};
pub use co_pilot::{CoPilot, CoPilotStorage};
pub use keys::{ConfigKey, KeyUse};
pub(crate) use logs::{read as read_logs, read_link};
pub use read::{ConfigErrors, Reading};
pub use section::{ConfigProblem, ConfigReport, ConfigWarning, Section};

use crate::{
    connector::ConnectorConfig, dask::DaskConfig, kubeflow::KubeflowConfig, links::LogConfig,
    ray::RayConfig, spark::SparkConfig,
};

/// What plugins are configured with. Sections of single plugins are boxed: the whole is moved about by value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `executor.defaultK8sServiceAccount`: of pods whose template names none; `None` leaves it to Kubernetes.
    pub default_service_account: Option<String>,
    /// `plugins.k8s`.
    pub k8s: K8sConfig,
    /// `plugins.logs`: links of all plugins that have no section for their own.
    pub logs: Box<LogConfig>,
    /// `plugins.spark`.
    pub spark: Box<SparkConfig>,
    /// `plugins.ray`.
    pub ray: Box<RayConfig>,
    /// `plugins.dask`.
    pub dask: Box<DaskConfig>,
    /// `plugins.kf-operator`: of the plugins `pytorch`, `tensorflow` and `mpi`.
    pub kubeflow: KubeflowConfig,
    /// `plugins.connector-service`.
    pub connector: Box<ConnectorConfig>,
    /// `plugins.catalogCache.maxCacheAge`: cached outputs that are older count as none; zero for any age. Default: zero.
    pub max_cache_age: Duration,
    /// `tasks.task-plugins.default-for-task-types`: task type to plugin id.
    pub default_for_task_types: BTreeMap<String, String>,
}

/// `plugins.k8s`: what all plugins that make Kubernetes resources share.
#[derive(Clone, Debug, PartialEq)]
pub struct K8sConfig {
    /// `inject-finalizer`: whether resources get the finalizer `flyte/flytek8s`. Default: no.
    pub inject_finalizer: bool,
    /// `disable-inject-owner-references`: whether resources outlive their TaskAction. Default: no.
    pub disable_inject_owner_references: bool,
    /// `delete-resource-on-finalize`: whether a resource is deleted as soon as its task ended. Default: no.
    pub delete_resource_on_finalize: bool,
    /// `default-annotations` of resources. Default: not safe to evict.
    pub default_annotations: BTreeMap<String, String>,
    /// `default-labels` of resources.
    pub default_labels: BTreeMap<String, String>,
    /// `default-env-vars` of all containers.
    pub default_env_vars: BTreeMap<String, String>,
    /// `default-env-vars-from-env` of all containers, resolved: name to value, an unset variable being empty.
    pub default_env_vars_from_env: BTreeMap<String, String>,
    /// `default-env-from-configmaps` of all containers: names.
    pub default_env_from_config_maps: Vec<String>,
    /// `default-env-from-secrets` of all containers: names.
    pub default_env_from_secrets: Vec<String>,
    /// `default-cpus`: the request of a primary container that says nothing, a quantity. Default: `1000m`.
    pub default_cpu_request: String,
    /// `default-memory`: the request of a primary container that says nothing, a quantity. Default: `1024Mi`.
    pub default_memory_request: String,
    /// The nodes on which pods may run.
    pub scheduling: Scheduling,
    /// GPUs and other accelerators.
    pub accelerators: Accelerators,
    /// How long a pod may stay in each kind of trouble before its start.
    pub grace: GracePeriods,
    /// `image-pull-policy` of raw containers; `None` leaves it to Kubernetes.
    pub image_pull_policy: Option<String>,
    /// `default-pod-security-context` of pods without one.
    pub default_pod_security_context: Option<Value>,
    /// `default-security-context` of primary containers without one.
    pub default_security_context: Option<Value>,
    /// `enable-host-networking-pod`; `None` leaves the pod's own.
    pub enable_host_networking_pod: Option<bool>,
    /// `default-pod-dns-config` of pods without one.
    pub default_pod_dns_config: Option<Value>,
    /// `default-pod-template-name`: the PodTemplate on which all pods are built whose task names none.
    pub default_pod_template_name: Option<String>,
    /// `add-tolerations-for-extended-resources`: pods of operators tolerate the taints of these resources.
    pub tolerated_extended_resources: Vec<String>,
    /// `co-pilot`: the helpers of tasks that do not read their inputs themselves.
    pub co_pilot: Box<CoPilot>,
}

/// The nodes on which pods may run, and the scheduler that chooses one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduling {
    /// `scheduler-name` of pods without one.
    pub scheduler_name: Option<String>,
    /// `default-tolerations` of all pods.
    pub default_tolerations: Vec<Value>,
    /// `default-node-selector` of all pods; a pod's own values win.
    pub default_node_selector: BTreeMap<String, String>,
    /// `default-affinity` of pods without one.
    pub default_affinity: Option<Value>,
    /// `interruptible-tolerations` of interruptible pods.
    pub interruptible_tolerations: Vec<Value>,
    /// `interruptible-node-selector` of interruptible pods; wins over a pod's own values.
    pub interruptible_node_selector: BTreeMap<String, String>,
    /// `interruptible-node-selector-requirement`, required of the nodes of interruptible pods.
    pub interruptible_requirement: Option<Value>,
    /// `non-interruptible-node-selector-requirement`, required of the nodes of all other pods.
    pub non_interruptible_requirement: Option<Value>,
    /// `resource-tolerations`: of pods that ask for a resource of this name.
    pub resource_tolerations: BTreeMap<String, Vec<Value>>,
}

/// How long a pod may stay in each kind of trouble before its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracePeriods {
    /// `create-container-error-grace-period`. Default: 3 minutes.
    pub create_container_error: Duration,
    /// `create-container-config-error-grace-period`. Default: none.
    pub create_container_config_error: Duration,
    /// `image-pull-backoff-grace-period`. Default: 3 minutes.
    pub image_pull_backoff: Duration,
    /// `pod-pending-timeout`: of everything else. Default: zero, which is for ever.
    pub pod_pending_timeout: Duration,
}

impl Default for K8sConfig {
    fn default() -> Self {
        let not_evicted = longshore_api::flyte::ANNOTATION_SAFE_TO_EVICT.to_owned();
        Self {
            inject_finalizer: false,
            disable_inject_owner_references: false,
            delete_resource_on_finalize: false,
            default_annotations: [(not_evicted, "false".to_owned())].into(),
            default_labels: BTreeMap::new(),
            default_env_vars: BTreeMap::new(),
            default_env_vars_from_env: BTreeMap::new(),
            default_env_from_config_maps: Vec::new(),
            default_env_from_secrets: Vec::new(),
            default_cpu_request: "1000m".to_owned(),
            default_memory_request: "1024Mi".to_owned(),
            scheduling: Scheduling::default(),
            accelerators: Accelerators::default(),
            grace: GracePeriods::default(),
            image_pull_policy: None,
            default_pod_security_context: None,
            default_security_context: None,
            enable_host_networking_pod: None,
            default_pod_dns_config: None,
            default_pod_template_name: None,
            tolerated_extended_resources: Vec::new(),
            co_pilot: Box::default(),
        }
    }
}

impl Default for GracePeriods {
    fn default() -> Self {
        Self {
            create_container_error: Duration::from_mins(3),
            create_container_config_error: Duration::ZERO,
            image_pull_backoff: Duration::from_mins(3),
            pod_pending_timeout: Duration::ZERO,
        }
    }
}
