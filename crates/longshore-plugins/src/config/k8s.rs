//! Reads `plugins.k8s`.

use super::{AcceleratorNodes, Accelerators, CoPilot, CoPilotStorage, K8sConfig, Section};

/// The process decides what variables of its own are handed on.
pub(super) fn read(
    section: &mut Section<'_>,
    config: &mut K8sConfig,
    env: &dyn Fn(&str) -> Option<String>,
) {
    section.flag("inject-finalizer", &mut config.inject_finalizer);
    section.flag(
        "disable-inject-owner-references",
        &mut config.disable_inject_owner_references,
    );
    section.flag(
        "delete-resource-on-finalize",
        &mut config.delete_resource_on_finalize,
    );
    read_metadata_and_variables(section, config, env);
    section.quantity("default-cpus", &mut config.default_cpu_request);
    section.quantity("default-memory", &mut config.default_memory_request);
    read_scheduling(section, config);
    read_accelerators(section, &mut config.accelerators);
    read_grace(section, config);
    section.option("image-pull-policy", &mut config.image_pull_policy);
    section.object(
        "default-pod-security-context",
        &mut config.default_pod_security_context,
    );
    section.object(
        "default-security-context",
        &mut config.default_security_context,
    );
    section.option_flag(
        "enable-host-networking-pod",
        &mut config.enable_host_networking_pod,
    );
    section.object("default-pod-dns-config", &mut config.default_pod_dns_config);
    section.option(
        "default-pod-template-name",
        &mut config.default_pod_template_name,
    );
    section.texts(
        "add-tolerations-for-extended-resources",
        &mut config.tolerated_extended_resources,
    );
    section.section("co-pilot", |section| {
        read_co_pilot(section, &mut config.co_pilot)
    });
    section.unsupported("send-object-events", "events of resources are always told");
    section.unsupported("default-pod-template-resync", "PodTemplates are watched");
    for key in ["update-base-backoff-duration", "update-backoff-retries"] {
        section.unsupported(
            key,
            "a conflict is decided anew from the object as it is then",
        );
    }
}

fn read_metadata_and_variables(
    section: &mut Section<'_>,
    config: &mut K8sConfig,
    env: &dyn Fn(&str) -> Option<String>,
) {
    section.map("default-annotations", &mut config.default_annotations);
    section.map("default-labels", &mut config.default_labels);
    section.map("default-env-vars", &mut config.default_env_vars);
    section.map(
        "default-env-vars-from-env",
        &mut config.default_env_vars_from_env,
    );
    for value in config.default_env_vars_from_env.values_mut() {
        *value = env(value).unwrap_or_default();
    }
    section.texts(
        "default-env-from-configmaps",
        &mut config.default_env_from_config_maps,
    );
    section.texts(
        "default-env-from-secrets",
        &mut config.default_env_from_secrets,
    );
}

fn read_scheduling(section: &mut Section<'_>, config: &mut K8sConfig) {
    let scheduling = &mut config.scheduling;
    section.option("scheduler-name", &mut scheduling.scheduler_name);
    section.objects("default-tolerations", &mut scheduling.default_tolerations);
    section.map(
        "default-node-selector",
        &mut scheduling.default_node_selector,
    );
    section.object("default-affinity", &mut scheduling.default_affinity);
    section.objects(
        "interruptible-tolerations",
        &mut scheduling.interruptible_tolerations,
    );
    section.map(
        "interruptible-node-selector",
        &mut scheduling.interruptible_node_selector,
    );
    section.object(
        "interruptible-node-selector-requirement",
        &mut scheduling.interruptible_requirement,
    );
    section.object(
        "non-interruptible-node-selector-requirement",
        &mut scheduling.non_interruptible_requirement,
    );
    section.objects_by_name("resource-tolerations", &mut scheduling.resource_tolerations);
}

fn read_grace(section: &mut Section<'_>, config: &mut K8sConfig) {
    let grace = &mut config.grace;
    for (key, place) in [
        (
            "create-container-error-grace-period",
            &mut grace.create_container_error,
        ),
        (
            "create-container-config-error-grace-period",
            &mut grace.create_container_config_error,
        ),
        (
            "image-pull-backoff-grace-period",
            &mut grace.image_pull_backoff,
        ),
        ("pod-pending-timeout", &mut grace.pod_pending_timeout),
    ] {
        section.duration(key, place);
    }
}

fn read_accelerators(section: &mut Section<'_>, accelerators: &mut Accelerators) {
    let AcceleratorNodes {
        device_label,
        partition_size_label,
        unpartitioned_requirement,
        unpartitioned_toleration,
    } = &mut accelerators.nodes;
    section.text("gpu-resource-name", &mut accelerators.gpu_resource_name);
    section.text("gpu-device-node-label", device_label);
    section.text("gpu-partition-size-node-label", partition_size_label);
    section.object(
        "gpu-unpartitioned-node-selector-requirement",
        unpartitioned_requirement,
    );
    section.object("gpu-unpartitioned-toleration", unpartitioned_toleration);
    let mut devices = std::collections::BTreeMap::new();
    section.map("accelerator-devices", &mut devices);
    let devices = devices.into_iter();
    accelerators
        .devices
        .extend(devices.map(|(device, label)| (device.to_uppercase(), label)));
    section.sections("accelerator-device-classes", |name, section| {
        let classes = &mut accelerators.device_classes;
        let class = classes.entry(name.to_uppercase()).or_default();
        section.text("resource-name", &mut class.resource_name);
        section.text("device-node-label", &mut class.nodes.device_label);
        section.text(
            "partition-size-node-label",
            &mut class.nodes.partition_size_label,
        );
        section.object(
            "unpartitioned-node-selector-requirement",
            &mut class.nodes.unpartitioned_requirement,
        );
        section.object(
            "unpartitioned-toleration",
            &mut class.nodes.unpartitioned_toleration,
        );
        section.object("pod-template", &mut class.pod_template);
    });
}

fn read_co_pilot(section: &mut Section<'_>, config: &mut CoPilot) {
    section.text("name", &mut config.name_prefix);
    section.text("image", &mut config.image);
    section.text("default-input-path", &mut config.input_path);
    section.text("default-output-path", &mut config.output_path);
    section.text("input-vol-name", &mut config.input_volume);
    section.text("output-vol-name", &mut config.output_volume);
    section.duration("timeout", &mut config.timeout);
    section.quantity("cpu", &mut config.cpu);
    section.quantity("memory", &mut config.memory);
    section.option("storage-config-secret-name", &mut config.storage_secret);
    let mut storage = None;
    section.object("storage-config-override", &mut storage);
    if let Some(storage) = storage {
        config.storage = storage_of(&storage);
        config.is_storage_overridden = true;
    }
    section.unsupported(
        "start-timeout",
        "the helper waits for the task's container without limit",
    );
    section.unsupported("storage", "volumes have the size that the task asks for");
}

/// What helpers need of a section `storage`, which is another component's: what is wrong in it is not ours to say.
pub(super) fn storage_of(section: &serde_json::Value) -> CoPilotStorage {
    let text = |pointer: &str| section.pointer(pointer).and_then(|value| value.as_str());
    let default = CoPilotStorage::default();
    let stow_config = section
        .pointer("/stow/config")
        .and_then(|map| map.as_object());
    CoPilotStorage {
        kind: text("/type").map_or(default.kind, str::to_owned),
        container: text("/container").unwrap_or_default().to_owned(),
        is_multi_container: section["enable-multicontainer"] == true,
        stow_kind: text("/stow/kind").unwrap_or_default().to_owned(),
        stow_config: stow_config
            .into_iter()
            .flatten()
            .map(|(key, value)| {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                (key.clone(), value)
            })
            .collect(),
    }
}
