//! GPUs and other accelerators: how tasks request them, and how their nodes are selected.

use std::collections::BTreeMap;

use serde_json::Value;

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

/// The labels and taints that identify nodes with accelerators.
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
    /// `pod-template`: a PodTemplate on which the pods of this class are built.
    pub pod_template: Option<Value>,
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
            pod_template: None,
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
