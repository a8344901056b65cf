//! The nodes on which a pod may run: tolerations, selectors, affinity, and other settings for all pods.

use std::collections::{BTreeMap, BTreeSet};

use longshore_proto::flyteidl2::core::{
    GpuAccelerator,
    gpu_accelerator::{DeviceClass, PartitionSizeValue},
};
use serde_json::{Map, Value, json};

use super::resources;
use crate::{
    config::{AcceleratorNodes, Accelerators, K8sConfig, Scheduling},
    context::TaskContext,
};

type Spec = Map<String, Value>;

/// Adds what the configuration says about all pods.
pub(super) fn add_defaults(spec: &mut Spec, context: &TaskContext, config: &K8sConfig) {
    let scheduling = &config.scheduling;
    fill(spec, "restartPolicy", Some(json!("Never")));
    let mut tolerations = tolerations(spec, context.is_interruptible, scheduling);
    if let Some(Value::Array(own)) = spec.remove("tolerations") {
        tolerations.extend(own);
    }
    if !tolerations.is_empty() {
        spec.insert("tolerations".into(), tolerations.into());
    }
    fill(
        spec,
        "serviceAccountName",
        context.service_account.as_ref().map(|name| json!(name)),
    );
    fill(
        spec,
        "schedulerName",
        scheduling.scheduler_name.as_ref().map(|name| json!(name)),
    );
    add_node_selector(spec, context.is_interruptible, scheduling);
    fill(spec, "affinity", scheduling.default_affinity.clone());
    fill(
        spec,
        "securityContext",
        config.default_pod_security_context.clone(),
    );
    if let Some(host_network) = config.enable_host_networking_pod {
        spec.insert("hostNetwork".into(), json!(host_network));
    }
    fill(spec, "dnsConfig", config.default_pod_dns_config.clone());
    // Upstream always leaves an affinity.
    fill(spec, "affinity", Some(json!({})));
    let requirement = if context.is_interruptible {
        &scheduling.interruptible_requirement
    } else {
        &scheduling.non_interruptible_requirement
    };
    if let Some(requirement) = requirement {
        require(spec, requirement);
    }
}

/// Adds the required node terms again, after a user's pod was merged onto the pod: the terms of the user's pod would
/// otherwise be a way around them. Terms that are there already stay as they are.
pub(crate) fn insist(spec: &mut Spec, is_interruptible: bool, scheduling: &Scheduling) {
    let default = scheduling.default_affinity.as_ref();
    let terms = default.and_then(|affinity| {
        affinity
            .pointer(
                "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
            )?
            .as_array()
    });
    for term in terms.into_iter().flatten() {
        for requirement in term["matchExpressions"].as_array().into_iter().flatten() {
            require(spec, requirement);
        }
    }
    let requirement = if is_interruptible {
        &scheduling.interruptible_requirement
    } else {
        &scheduling.non_interruptible_requirement
    };
    if let Some(requirement) = requirement {
        require(spec, requirement);
    }
    if is_interruptible {
        add_node_selector(
            spec,
            true,
            &Scheduling {
                interruptible_node_selector: scheduling.interruptible_node_selector.clone(),
                ..Scheduling::default()
            },
        );
        for toleration in &scheduling.interruptible_tolerations {
            tolerate(spec, toleration.clone());
        }
    }
}

/// Tolerates the taints of nodes that are kept for the extended resources which the pod requests.
pub(crate) fn tolerate_extended_resources(spec: &mut Spec, config: &K8sConfig) {
    let containers = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|list| spec.get(list)?.as_array())
        .flatten();
    let asked_for: BTreeSet<String> = containers
        .filter_map(|container| container["resources"]["requests"].as_object())
        .flat_map(Map::keys)
        .filter(|name| config.tolerated_extended_resources.contains(name))
        .cloned()
        .collect();
    for name in asked_for {
        let toleration = json!({"key": name, "operator": "Exists", "effect": "NoSchedule"});
        tolerate(spec, toleration);
    }
}

/// Adds the node selection of the accelerator, if any container may use one.
pub(crate) fn add_accelerator(
    spec: &mut Spec,
    accelerator: &GpuAccelerator,
    config: &Accelerators,
) {
    let containers = spec.get("containers").and_then(Value::as_array);
    if !containers.is_some_and(|containers| resources::uses_accelerator(containers, config)) {
        return;
    }
    let nodes = nodes_of(accelerator.device_class(), config);
    let device = &accelerator.device;
    if !device.is_empty() {
        let known = config.devices.get(&device.to_uppercase());
        require_value(spec, &nodes.device_label, known.unwrap_or(device));
    }
    match &accelerator.partition_size_value {
        Some(PartitionSizeValue::PartitionSize(size)) => {
            require_value(spec, &nodes.partition_size_label, size);
        }
        Some(PartitionSizeValue::Unpartitioned(true)) => {
            let absent = json!({"key": nodes.partition_size_label, "operator": "DoesNotExist"});
            require(spec, &nodes.unpartitioned_requirement.unwrap_or(absent));
            if let Some(toleration) = nodes.unpartitioned_toleration {
                tolerate(spec, toleration);
            }
        }
        Some(PartitionSizeValue::Unpartitioned(false)) | None => {}
    }
}

/// What the class says, else what is said for all.
fn nodes_of(class: DeviceClass, config: &Accelerators) -> AcceleratorNodes {
    let mut nodes = config.nodes.clone();
    if let Some(class) = config.device_classes.get(class.as_str_name()) {
        let own = &class.nodes;
        for (label, own) in [
            (&mut nodes.device_label, &own.device_label),
            (&mut nodes.partition_size_label, &own.partition_size_label),
        ] {
            if !own.is_empty() {
                label.clone_from(own);
            }
        }
        for (part, own) in [
            (
                &mut nodes.unpartitioned_requirement,
                &own.unpartitioned_requirement,
            ),
            (
                &mut nodes.unpartitioned_toleration,
                &own.unpartitioned_toleration,
            ),
        ] {
            if own.is_some() {
                part.clone_from(own);
            }
        }
    }
    nodes
}

fn tolerations(spec: &Spec, is_interruptible: bool, scheduling: &Scheduling) -> Vec<Value> {
    let containers = spec.get("containers").and_then(Value::as_array);
    let asked_for: BTreeSet<&String> = containers
        .into_iter()
        .flatten()
        .flat_map(|container| {
            let resources = &container["resources"];
            ["requests", "limits"].map(|list| resources[list].as_object())
        })
        .flatten()
        .flat_map(Map::keys)
        .collect();
    let of_resources = asked_for
        .into_iter()
        .filter_map(|name| scheduling.resource_tolerations.get(name))
        .flatten();
    let of_interruptible = scheduling
        .interruptible_tolerations
        .iter()
        .filter(|_| is_interruptible);
    of_resources
        .chain(of_interruptible)
        .chain(&scheduling.default_tolerations)
        .cloned()
        .collect()
}

fn add_node_selector(spec: &mut Spec, is_interruptible: bool, scheduling: &Scheduling) {
    let to_json = |labels: &BTreeMap<String, String>| {
        labels
            .iter()
            .map(|(label, value)| (label.clone(), json!(value)))
            .collect::<Map<_, _>>()
    };
    let mut selector = to_json(&scheduling.default_node_selector);
    if let Some(Value::Object(own)) = spec.remove("nodeSelector") {
        selector.extend(own);
    }
    if is_interruptible {
        selector.extend(to_json(&scheduling.interruptible_node_selector));
    }
    if !selector.is_empty() {
        spec.insert("nodeSelector".into(), selector.into());
    }
}

/// Sets a field that is not set: absent, null or an empty text.
fn fill(spec: &mut Spec, field: &str, value: Option<Value>) {
    let is_set = spec
        .get(field)
        .is_some_and(|own| !own.is_null() && own != "");
    if let Some(value) = value
        && !is_set
    {
        spec.insert(field.to_owned(), value);
    }
}

/// Nodes need this label with this value, and their taint of the same name is tolerated.
fn require_value(spec: &mut Spec, label: &str, value: &str) {
    require(
        spec,
        &json!({"key": label, "operator": "In", "values": [value]}),
    );
    let toleration =
        json!({"key": label, "value": value, "operator": "Equal", "effect": "NoSchedule"});
    tolerate(spec, toleration);
}

/// Adds a requirement to each of the pod's alternatives, once.
fn require(spec: &mut Spec, requirement: &Value) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    change_object(spec, "affinity", |affinity| {
        change_object(affinity, "nodeAffinity", |affinity| {
            change_object(affinity, REQUIRED, |required| {
                let terms = required.entry("nodeSelectorTerms").or_insert(Value::Null);
                add_to_terms(terms, requirement);
            });
        });
    });
}

fn add_to_terms(terms: &mut Value, requirement: &Value) {
    match terms.as_array_mut() {
        Some(terms) if !terms.is_empty() => {
            for term in terms.iter_mut().filter_map(Value::as_object_mut) {
                let own = term.entry("matchExpressions").or_insert(Value::Null);
                push_once(own, requirement.clone());
            }
        }
        _ => *terms = json!([{"matchExpressions": [requirement]}]),
    }
}

/// Changes an object inside an object. A value of another type is replaced by an object.
fn change_object(parent: &mut Spec, field: &str, change: impl FnOnce(&mut Spec)) {
    let mut object = match parent.remove(field) {
        Some(Value::Object(object)) => object,
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        )
        | None => Map::new(),
    };
    change(&mut object);
    parent.insert(field.to_owned(), Value::Object(object));
}

fn push_once(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(own) if own.contains(&item) => {}
        Some(own) => own.push(item),
        None => *list = json!([item]),
    }
}

/// Adds a toleration, once.
fn tolerate(spec: &mut Spec, toleration: Value) {
    push_once(spec.entry("tolerations").or_insert(Value::Null), toleration);
}
