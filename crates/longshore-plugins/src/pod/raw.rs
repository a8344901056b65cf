//! The pod that a template describes, before anything of ours is in it (task action spec §11.1).

use std::collections::BTreeMap;

use longshore_api::flyte::ANNOTATION_PRIMARY_CONTAINER;
use longshore_k8s::names::is_label;
use longshore_proto::flyteidl2::core::{Container, K8sPod, TaskTemplate, task_template::Target};
use serde_json::{Map, Value, json};

use super::{TYPE_SIDECAR, resources};
use crate::{
    config::K8sConfig,
    context::TaskContext,
    names,
    plugin::BuildError,
    proto_json::{field, to_json},
};

/// A pod that is being built.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    /// Its `spec`.
    pub(crate) spec: Map<String, Value>,
    /// Of the template, for this pod alone.
    pub(crate) labels: BTreeMap<String, String>,
    /// Of the template, for this pod alone.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The container whose end is the task's end.
    pub(crate) primary: String,
}

/// The raw pod of an attempt.
pub(super) fn of(context: &TaskContext, config: &K8sConfig) -> Result<Pod, BuildError> {
    let template = &context.template;
    if template.r#type == TYPE_SIDECAR {
        match template.task_type_version {
            0 => return sidecar(template),
            1 => return pod_in_custom(template),
            _ => {}
        }
    }
    let mut pod = match &template.target {
        Some(Target::Container(container)) => one_container(context, container, config)?,
        Some(Target::K8sPod(pod)) => pod_target(template, pod)?,
        Some(Target::Sql(_)) | None => {
            return Err(BuildError::bad_specification(format!(
                "expected a template with a container or a pod, found {}; task type {:?} runs as a pod",
                if template.target.is_none() {
                    "none"
                } else {
                    "a query"
                },
                template.r#type
            )));
        }
    };
    pod.spec.insert("enableServiceLinks".into(), false.into());
    Ok(pod)
}

fn one_container(
    context: &TaskContext,
    container: &Container,
    config: &K8sConfig,
) -> Result<Pod, BuildError> {
    let generated = &context.generated_name;
    // Upstream takes four random characters where the name cannot be a container's; ours are always the same.
    let name = if is_label(generated) {
        generated.clone()
    } else {
        names::fixed_length_unique_id(generated, 0)
    };
    let env: Vec<Value> = container
        .env
        .iter()
        .map(|pair| json!({"name": pair.key, "value": pair.value}))
        .collect();
    let mut built = json!({
        "name": name,
        "image": container.image,
        "env": env,
        "resources": resources::of_template(container.resources.as_ref())?,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    for (field, list) in [("command", &container.command), ("args", &container.args)] {
        if !list.is_empty() {
            built[field] = json!(list);
        }
    }
    if let Some(policy) = &config.image_pull_policy {
        built["imagePullPolicy"] = json!(policy);
    }
    let mut spec = Map::new();
    spec.insert("containers".into(), json!([built]));
    Ok(Pod {
        spec,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        primary: name,
    })
}

fn pod_target(template: &TaskTemplate, pod: &K8sPod) -> Result<Pod, BuildError> {
    let spec = pod.pod_spec.as_ref().ok_or_else(|| {
        BuildError::bad_specification("expected a pod spec in the template's k8s_pod, found none")
    })?;
    let metadata = pod.metadata.clone().unwrap_or_default();
    Ok(Pod {
        spec: object(to_json(spec), "the template's k8s_pod")?,
        labels: metadata.labels,
        annotations: metadata.annotations,
        primary: primary_in_config(template)?,
    })
}

/// Version 0 of the sidecar task: pod and metadata in `custom`, whose keys Go reads in any case.
fn sidecar(template: &TaskTemplate) -> Result<Pod, BuildError> {
    let custom = template.custom.as_ref().map(to_json).unwrap_or_default();
    let strings = |name: &str| -> BTreeMap<String, String> {
        let map = field(&custom, name).and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect()
    };
    let spec = field(&custom, "podSpec").cloned().unwrap_or_default();
    Ok(Pod {
        spec: object(spec, "the sidecar task's custom podSpec")?,
        labels: strings("labels"),
        annotations: strings("annotations"),
        primary: field(&custom, "primaryContainerName")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
    })
}

/// Version 1 of the sidecar task: the pod in `custom`.
fn pod_in_custom(template: &TaskTemplate) -> Result<Pod, BuildError> {
    let custom = template.custom.as_ref().map(to_json).unwrap_or_default();
    let metadata = match &template.target {
        Some(Target::K8sPod(pod)) => pod.metadata.clone().unwrap_or_default(),
        Some(Target::Container(_) | Target::Sql(_)) | None => Default::default(),
    };
    Ok(Pod {
        spec: object(custom, "the sidecar task's custom")?,
        labels: metadata.labels,
        annotations: metadata.annotations,
        primary: primary_in_config(template)?,
    })
}

fn primary_in_config(template: &TaskTemplate) -> Result<String, BuildError> {
    let config = &template.config;
    config
        .get(ANNOTATION_PRIMARY_CONTAINER)
        .cloned()
        .ok_or_else(|| {
            let found: Vec<&String> = config.keys().collect();
            BuildError::bad_specification(format!(
                "expected {ANNOTATION_PRIMARY_CONTAINER:?} in the template's config, found {found:?}; name the container whose end is the task's end"
            ))
        })
}

fn object(value: Value, what: &str) -> Result<Map<String, Value>, BuildError> {
    match value {
        Value::Object(object) => Ok(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(BuildError::bad_specification(format!(
                "expected a pod spec in {what}, found none"
            )))
        }
    }
}
