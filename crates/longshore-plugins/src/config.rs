//! The configuration of plugins: the part of upstream's sections that is used, with upstream's defaults.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

/// What plugins are configured with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `executor.defaultK8sServiceAccount`: of pods whose template names none; `None` leaves it to Kubernetes.
    pub default_service_account: Option<String>,
    /// `plugins.k8s`.
    pub k8s: K8sConfig,
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
    /// Where pods may run.
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
}

/// Where pods may run.
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
    /// `add-tolerations-for-extended-resources`: resources whose names are also taints.
    pub add_tolerations_for_extended_resources: Vec<String>,
}

/// GPUs and other accelerators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerators {
    /// `gpu-resource-name`: the resource that a template's `gpu` is. Default: `nvidia.com/gpu`.
    pub gpu_resource_name: String,
    /// `accelerator-device-classes`: class to the resource that it is, as `GOOGLE_TPU` to `google.com/tpu`.
    pub device_classes: BTreeMap<String, String>,
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
        }
    }
}

impl Default for Accelerators {
    fn default() -> Self {
        let classes = [
            ("NVIDIA_GPU", "nvidia.com/gpu"),
            ("GOOGLE_TPU", "google.com/tpu"),
            ("AMAZON_NEURON", "aws.amazon.com/neuron"),
            ("AMD_GPU", "amd.com/gpu"),
            ("HABANA_GAUDI", "habana.ai/gaudi"),
        ];
        Self {
            gpu_resource_name: "nvidia.com/gpu".to_owned(),
            device_classes: classes
                .map(|(class, resource)| (class.to_owned(), resource.to_owned()))
                .into(),
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
