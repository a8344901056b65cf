//! Requests and limits of containers (task action spec §11.6).

use longshore_k8s::Quantity;
use longshore_proto::flyteidl2::core::{
    ExtendedResources, GpuAccelerator, Resources,
    gpu_accelerator::DeviceClass,
    resources::{ResourceEntry, ResourceName},
};
use serde_json::{Map, Value, json};

use crate::{
    config::{Accelerators, K8sConfig},
    plugin::BuildError,
};

/// The name that templates use for whichever accelerator is configured.
const GPU: &str = "gpu";
const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// How far a container's resources are ours to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The primary container: what is not said gets a default.
    Fill,
    /// All others: only contradictions are resolved.
    KeepInRange,
}

/// A template's resources as a container's.
pub(crate) fn of_template(resources: Option<&Resources>) -> Result<Value, BuildError> {
    let Some(resources) = resources else {
        return Ok(json!({}));
    };
    Ok(json!({
        "requests": of_entries(&resources.requests)?,
        "limits": of_entries(&resources.limits)?,
    }))
}

/// The resources of one of several roles, with defaults for what is not said.
pub(crate) fn of_role(
    resources: &Resources,
    extended: Option<&ExtendedResources>,
    config: &K8sConfig,
) -> Result<Value, BuildError> {
    let mut container = Map::new();
    container.insert("resources".into(), of_template(Some(resources))?);
    adjust(&mut container, Mode::Fill, extended, config)?;
    Ok(container.remove("resources").unwrap_or_default())
}

fn of_entries(entries: &[ResourceEntry]) -> Result<Map<String, Value>, BuildError> {
    let mut list = Map::new();
    for entry in entries {
        let name = match entry.name() {
            ResourceName::Cpu => CPU,
            ResourceName::Gpu => GPU,
            ResourceName::Memory => MEMORY,
            ResourceName::EphemeralStorage => EPHEMERAL_STORAGE,
            // Containers have no resource for the first; the meaning of the second is not known.
            ResourceName::Storage | ResourceName::Unknown => continue,
        };
        let quantity = parse(name, &entry.value)?;
        if !quantity.is_zero() {
            list.insert(name.to_owned(), json!(entry.value));
        }
    }
    Ok(list)
}

/// Brings a container's resources in order.
pub(super) fn adjust(
    container: &mut Map<String, Value>,
    mode: Mode,
    extended: Option<&ExtendedResources>,
    config: &K8sConfig,
) -> Result<(), BuildError> {
    let accelerators = &config.accelerators;
    let accelerator = extended.and_then(|extended| extended.gpu_accelerator.as_ref());
    let gpu = resource_of(accelerator, accelerators);
    let entry = container.entry("resources").or_insert_with(|| json!({}));
    let Some(resources) = entry.as_object_mut() else {
        return Err(BuildError::bad_specification(format!(
            "expected a container's resources to be an object, found {entry}"
        )));
    };
    let mut requests = take_map(resources, "requests");
    let mut limits = take_map(resources, "limits");
    for list in [&mut requests, &mut limits] {
        if let Some(amount) = list.remove(GPU) {
            list.insert(gpu.to_owned(), amount);
        }
    }
    let defaults = [
        (CPU, config.default_cpu_request.as_str()),
        (MEMORY, &config.default_memory_request),
    ];
    for (name, default) in defaults {
        let default = (mode == Mode::Fill).then_some(default);
        adjust_one(name, default, mode, &mut requests, &mut limits)?;
    }
    for name in [EPHEMERAL_STORAGE]
        .into_iter()
        .chain(accelerator_names(accelerators))
    {
        adjust_one(name, None, mode, &mut requests, &mut limits)?;
    }
    for (field, list) in [("requests", requests), ("limits", limits)] {
        if !list.is_empty() {
            resources.insert(field.to_owned(), Value::Object(list));
        }
    }
    Ok(())
}

/// Whether any container may use an accelerator.
pub(super) fn uses_accelerator(containers: &[Value], accelerators: &Accelerators) -> bool {
    containers.iter().any(|container| {
        accelerator_names(accelerators)
            .any(|name| container["resources"]["limits"].get(name).is_some())
    })
}

/// The resource that a template's `gpu` is.
fn resource_of<'a>(
    accelerator: Option<&GpuAccelerator>,
    accelerators: &'a Accelerators,
) -> &'a str {
    accelerator
        .map(GpuAccelerator::device_class)
        .and_then(|class: DeviceClass| accelerators.device_classes.get(class.as_str_name()))
        .map(|class| class.resource_name.as_str())
        .filter(|name| !name.is_empty())
        .unwrap_or(&accelerators.gpu_resource_name)
}

fn accelerator_names(accelerators: &Accelerators) -> impl Iterator<Item = &str> {
    let classes = accelerators.device_classes.values();
    let names = classes.map(|class| class.resource_name.as_str());
    std::iter::once(accelerators.gpu_resource_name.as_str()).chain(names)
}

/// Request and limit stand in for each other where one is missing, then a default does; a request is at most the limit.
///
/// Upstream writes zeros where nothing is requested, which makes a sidecar with a request and no limit invalid.
fn adjust_one(
    name: &str,
    default: Option<&str>,
    mode: Mode,
    requests: &mut Map<String, Value>,
    limits: &mut Map<String, Value>,
) -> Result<(), BuildError> {
    let mut request = amount(name, requests)?;
    let mut limit = amount(name, limits)?;
    if mode == Mode::Fill {
        request = match (request, &limit, default) {
            (None, None, Some(default)) => Some((parse(name, default)?, json!(default))),
            (None, limit, _) => limit.clone(),
            (request, _, _) => request,
        };
        limit = limit.or_else(|| request.clone());
    }
    if let (Some(asked), Some(allowed)) = (&request, &limit)
        && asked.0 > allowed.0
    {
        request = limit.clone();
    }
    for (list, amount) in [(requests, request), (limits, limit)] {
        if let Some((_, text)) = amount {
            list.insert(name.to_owned(), text);
        }
    }
    Ok(())
}

/// An amount and how it was written; nothing for zero.
fn amount(name: &str, list: &Map<String, Value>) -> Result<Option<(Quantity, Value)>, BuildError> {
    let Some(value) = list.get(name) else {
        return Ok(None);
    };
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    let quantity = parse(name, &text)?;
    Ok((!quantity.is_zero()).then(|| (quantity, value.clone())))
}

fn parse(name: &str, text: &str) -> Result<Quantity, BuildError> {
    Quantity::parse(text).ok_or_else(|| {
        BuildError::bad_specification(format!(
            "expected an amount of {name} as \"500m\" or \"2Gi\", found {text:?}"
        ))
    })
}

fn take_map(resources: &mut Map<String, Value>, field: &str) -> Map<String, Value> {
    match resources.remove(field) {
        Some(Value::Object(map)) => map,
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        )
        | None => Map::new(),
    }
}
