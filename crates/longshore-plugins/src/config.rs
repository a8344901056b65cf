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
}

/// GPUs and other accelerators.
#[derive(Clone, Debug, PartialEq)]
pub struct Accelerators {
    /// `gpu-resource-name`: the resource that a template's `gpu` is. Default: `nvidia.com/gpu`.
    pub gpu_resource_name: String,
    /// `gpu-device-node-label`, `gpu-partition-size-node-label` and what unpartitioned devices need: of classes that
    /// do not say otherwise. Defaults: Amazon's labels.
    pub nodes: AcceleratorNodes,
    /// `accelerator-devices`: a device in upper case to the value of its label.
    pub devices: BTreeMap<String, String>,
    /// `accelerator-device-classes`: by class, as `GOOGLE_TPU`.
    pub device_classes: BTreeMap<String, DeviceClassConfig>,
}

/// How nodes with accelerators are told from others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AcceleratorNodes {
    /// Label, and taint, of the device.
    pub device_label: String,
    /// Label, and taint, of the size of its partitions.
    pub partition_size_label: String,
    /// Required of nodes with unpartitioned devices; `None`: that they do not have the label of the size.
    pub unpartitioned_requirement: Option<Value>,
    /// Tolerated on nodes with unpartitioned devices.
    pub unpartitioned_toleration: Option<Value>,
}

/// A class of accelerators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceClassConfig {
    /// `resource-name`; empty means [`Accelerators::gpu_resource_name`].
    pub resource_name: String,
    /// What differs from [`Accelerators::nodes`]: an empty label and `None` mean the same as there.
    pub nodes: AcceleratorNodes,
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

/// Upstream's names of devices, and how their nodes are labelled.
const DEVICES: [(&str, &str); 40] = [
    ("A10", "nvidia-a10"),
    ("A10G", "nvidia-a10g"),
    ("A100", "nvidia-tesla-a100"),
    ("A100 80G", "nvidia-a100-80gb"),
    ("A100G", "nvidia-a100g"),
    ("B200", "nvidia-b200"),
    ("GB200", "nvidia-gb200"),
    ("H100", "nvidia-h100"),
    ("H100 80G", "nvidia-h100-80gb"),
    ("H100 MEGA 80G", "nvidia-h100-mega-80gb"),
    ("H200", "nvidia-h200"),
    ("K80", "nvidia-tesla-k80"),
    ("L4", "nvidia-l4"),
    // Upstream has `L40s`, which its upper-case lookup never finds.
    ("L40S", "nvidia-l40s"),
    ("L4_VWS", "nvidia-l4-vws"),
    ("M60", "nvidia-tesla-m60"),
    ("P4", "nvidia-tesla-p4"),
    ("P100", "nvidia-tesla-p100"),
    ("RTX PRO 6000", "nvidia-rtx-pro-6000"),
    ("T4", "nvidia-tesla-t4"),
    ("V100", "nvidia-tesla-v100"),
    ("V5E", "tpu-v5-lite-podslice"),
    ("V5P", "tpu-v5p-slice"),
    ("V6E", "tpu-v6e-slice"),
    ("INF1", "aws-neuron-inf1"),
    ("INF2", "aws-neuron-inf2"),
    ("TRN1", "aws-neuron-trn1"),
    ("TRN1N", "aws-neuron-trn1n"),
    ("TRN2", "aws-neuron-trn2"),
    ("TRN2U", "aws-neuron-trn2u"),
    ("MI100", "amd-mi100"),
    ("MI210", "amd-mi210"),
    ("MI250", "amd-mi250"),
    ("MI250X", "amd-mi250x"),
    ("MI300A", "amd-mi300a"),
    ("MI300X", "amd-mi300x"),
    ("MI325X", "amd-mi325x"),
    ("MI350X", "amd-mi350x"),
    ("MI355X", "amd-mi355x"),
    ("GAUDI1", "habana-gaudi-dl1"),
];

/// Upstream's classes, and the resources that they are.
const DEVICE_CLASSES: [(&str, &str); 5] = [
    ("NVIDIA_GPU", "nvidia.com/gpu"),
    ("GOOGLE_TPU", GOOGLE_TPU),
    ("AMAZON_NEURON", "aws.amazon.com/neuron"),
    ("AMD_GPU", "amd.com/gpu"),
    ("HABANA_GAUDI", "habana.ai/gaudi"),
];
const GOOGLE_TPU: &str = "google.com/tpu";

impl Default for Accelerators {
    fn default() -> Self {
        let class = |resource: &str| DeviceClassConfig {
            resource_name: resource.to_owned(),
            nodes: if resource == GOOGLE_TPU {
                AcceleratorNodes {
                    device_label: "cloud.google.com/gke-tpu-accelerator".to_owned(),
                    partition_size_label: "cloud.google.com/gke-tpu-topology".to_owned(),
                    ..AcceleratorNodes::default()
                }
            } else {
                AcceleratorNodes::default()
            },
        };
        Self {
            gpu_resource_name: "nvidia.com/gpu".to_owned(),
            nodes: AcceleratorNodes {
                device_label: "k8s.amazonaws.com/accelerator".to_owned(),
                partition_size_label: "k8s.amazonaws.com/gpu-partition-size".to_owned(),
                ..AcceleratorNodes::default()
            },
            devices: DEVICES
                .map(|(device, label)| (device.to_owned(), label.to_owned()))
                .into(),
            device_classes: DEVICE_CLASSES
                .map(|(name, resource)| (name.to_owned(), class(resource)))
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
