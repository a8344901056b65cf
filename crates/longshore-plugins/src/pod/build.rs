//! The pod of an attempt: the raw pod with everything of ours (task action spec §11.2).

use longshore_api::flyte::{ANNOTATION_PRIMARY_CONTAINER, LABEL_GPU_PARTITION_SLICES};
use longshore_proto::flyteidl2::core::{
    ExtendedResources, GpuAccelerator, Resources, gpu_accelerator::PartitionSizeValue,
};
use serde_json::{Map, Value, json};

use super::{
    TYPE_RAW_CONTAINER, TYPE_SIDECAR, co_pilot, env, ide,
    merge::merge,
    raw::{self, Pod},
    render::{self, Values},
    resources::{self, Mode},
    scheduling, shared_memory, template,
};
use crate::{
    config::K8sConfig,
    context::{TaskContext, own_pod_template},
    plugin::BuildError,
};

/// The pod, without name, namespace and owner.
pub(super) fn of(context: &TaskContext, config: &K8sConfig) -> Result<Value, BuildError> {
    let mut pod = task_pod(context, config, None)?;
    ide::add_probe(&mut pod);
    annotate_primary(&mut pod, &context.template.r#type);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": pod.metadata(),
        "spec": pod.spec,
    }))
}

/// The pod of a task, in whichever resource it is to be; `resources` are those of one of several roles, which win over
/// the task's.
pub(super) fn task_pod(
    context: &TaskContext,
    config: &K8sConfig,
    resources: Option<&Resources>,
) -> Result<Pod, BuildError> {
    let mut pod = raw::of(context, config)?;
    let extended = context.template.extended_resources.as_ref();
    if let (Some(resources), Some(primary)) = (resources, primary(&mut pod)) {
        let over = resources::of_role(resources, extended, config)?;
        merge(primary.entry("resources").or_insert(Value::Null), &over);
    }
    customize_containers(&mut pod, context, extended, config)?;
    co_pilot::add(&mut pod, context, &config.co_pilot)?;
    scheduling::add_defaults(&mut pod.spec, context, config);
    add_security_context(&mut pod, config);
    build_on_templates(&mut pod, context, config)?;
    if let Some(accelerator) = extended.and_then(|extended| extended.gpu_accelerator.as_ref()) {
        scheduling::add_accelerator(&mut pod.spec, accelerator, &config.accelerators);
        if let Some(slices) = partition_slices(accelerator) {
            pod.labels
                .insert(LABEL_GPU_PARTITION_SLICES.to_owned(), slices);
        }
    }
    if let Some(memory) = extended.and_then(|extended| extended.shared_memory.as_ref()) {
        shared_memory::add(&mut pod, memory)?;
    }
    Ok(pod)
}

/// First the template of the class of the accelerator, then the task's or the configured PodTemplate, whose metadata
/// the pod has too.
fn build_on_templates(
    pod: &mut Pod,
    context: &TaskContext,
    config: &K8sConfig,
) -> Result<(), BuildError> {
    let extended = context.template.extended_resources.as_ref();
    let accelerator = extended.and_then(|extended| extended.gpu_accelerator.as_ref());
    let of_class = accelerator.and_then(|accelerator| {
        let class = accelerator.device_class().as_str_name();
        let class = config.accelerators.device_classes.get(class)?;
        class.pod_template.as_ref()
    });
    if let Some(template) = of_class {
        template::build_on(&template["template"]["spec"], &mut pod.spec, &pod.primary);
    }
    let Some(template) = &context.pod_template else {
        return match own_pod_template(&context.template) {
            None => Ok(()),
            Some(name) => Err(BuildError::bad_specification(format!(
                "PodTemplate '{name}' does not exist in namespace {:?} or in the executor's",
                context.namespace
            ))),
        };
    };
    let template = &template["template"];
    template::build_on(&template["spec"], &mut pod.spec, &pod.primary);
    for (field, own) in [
        ("labels", &mut pod.labels),
        ("annotations", &mut pod.annotations),
    ] {
        let pairs = template["metadata"][field].as_object();
        for (key, value) in pairs.into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            own.entry(key.clone()).or_insert(value);
        }
    }
    Ok(())
}

/// Whether the pod cannot be built without the task's inputs.
pub(super) fn needs_inputs(pod: &Pod) -> bool {
    let texts = ["initContainers", "containers"]
        .into_iter()
        .filter_map(|list| pod.spec.get(list)?.as_array())
        .flatten()
        .flat_map(|container| ["command", "args"].map(|field| container.get(field)))
        .filter_map(|list| list?.as_array())
        .flatten();
    texts.filter_map(Value::as_str).any(render::needs_inputs)
}

fn customize_containers(
    pod: &mut Pod,
    context: &TaskContext,
    extended: Option<&ExtendedResources>,
    config: &K8sConfig,
) -> Result<(), BuildError> {
    let values = Values::of(context);
    let mut has_primary = false;
    for list in ["initContainers", "containers"] {
        let Some(containers) = pod.spec.get_mut(list) else {
            continue;
        };
        let found = containers.to_string();
        let containers = containers.as_array_mut().ok_or_else(|| {
            BuildError::bad_specification(format!("expected a list of {list}, found {found}"))
        })?;
        for container in containers {
            let container = container.as_object_mut().ok_or_else(|| {
                BuildError::bad_specification(format!("expected objects in {list}, found {found}"))
            })?;
            let is_primary =
                list == "containers" && container.get("name") == Some(&json!(pod.primary));
            has_primary |= is_primary;
            let mode = if is_primary {
                Mode::Fill
            } else {
                Mode::KeepInRange
            };
            render_texts(container, &values)?;
            env::add(container, context, config);
            resources::adjust(container, mode, extended, config)?;
        }
    }
    if has_primary {
        return Ok(());
    }
    Err(BuildError::bad_specification(format!(
        "expected a container with the name of the primary container, {:?}, found none",
        pod.primary
    )))
}

fn render_texts(container: &mut Map<String, Value>, values: &Values<'_>) -> Result<(), BuildError> {
    for field in ["command", "args"] {
        let texts = container.get_mut(field).and_then(Value::as_array_mut);
        for text in texts.into_iter().flatten() {
            if let Value::String(text) = text {
                *text = values.render(text)?;
            }
        }
    }
    Ok(())
}

fn add_security_context(pod: &mut Pod, config: &K8sConfig) {
    let Some(default) = &config.default_security_context else {
        return;
    };
    if let Some(primary) = primary(pod) {
        let own = primary.entry("securityContext").or_insert(Value::Null);
        if own.is_null() {
            *own = default.clone();
        }
    }
}

/// The primary container of a pod that was customised.
pub(super) fn primary(pod: &mut Pod) -> Option<&mut Map<String, Value>> {
    let name = json!(pod.primary);
    let containers = pod.spec.get_mut("containers")?.as_array_mut()?;
    containers
        .iter_mut()
        .filter_map(Value::as_object_mut)
        .find(|container| container.get("name") == Some(&name))
}

/// The end of this container is the end of the task. The annotation is set only for sidecar tasks, or where there is no
/// other container.
fn annotate_primary(pod: &mut Pod, task_type: &str) {
    let n_containers = pod.spec.get("containers").and_then(Value::as_array);
    let is_alone = n_containers.is_some_and(|containers| containers.len() == 1);
    if task_type == TYPE_SIDECAR || (is_alone && task_type != TYPE_RAW_CONTAINER) {
        let annotation = ANNOTATION_PRIMARY_CONTAINER.to_owned();
        pod.annotations.insert(annotation, pod.primary.clone());
    }
}

/// How many slices of a GPU a partition such as `3g.20gb` takes.
fn partition_slices(accelerator: &GpuAccelerator) -> Option<String> {
    let Some(PartitionSizeValue::PartitionSize(size)) = &accelerator.partition_size_value else {
        return None;
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (slices, memory) = size.split_once("g.")?;
    let is_known = is_number(slices) && is_number(memory.strip_suffix("gb")?);
    is_known.then(|| slices.to_owned())
}
