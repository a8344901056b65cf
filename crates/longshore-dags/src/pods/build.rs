//! The objects of a run: a pod per launch of a task instance, and what its pods share.
//!
//! Everything is a function of the rows and the DAG that the run is pinned to, so a creation that is repeated after a
//! crash asks for the very same object.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use longshore_api::{airflow, dags};
use longshore_core::error::{Class, Classify};
use longshore_store::model::{Run, TaskInstance};

mod shared;

pub use shared::{
    build_files, build_workspace, files_name, run_identity, run_of, shared_selector, workspace_name,
};

use super::template::{self, Context, RenderError, Results};
use crate::{
    airflow::{names, pod_merge::merge_pods},
    model::{Dag, Launcher, Task},
    scheduler::identity::object_name,
};

/// How pods are made, whatever the DAG.
#[derive(Clone, Debug, PartialEq)]
pub struct PodConfig {
    /// Namespace of the pods and of what they share, unless a pod override names another for the pod.
    pub namespace: String,
    /// The scheduler that owns the pods: the label `airflow-worker`.
    pub scheduler_id: String,
    /// The version in the label `airflow_version`.
    pub airflow_version: String,
    /// The pod that all pods start from.
    pub pod_template: Option<Value>,
    /// Image of tasks that name none, where the template has none either.
    pub image: String,
}

impl Default for PodConfig {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            scheduler_id: "longshore".to_owned(),
            airflow_version: "3.3.2".to_owned(),
            pod_template: None,
            image: dags::IMAGE_HOST.to_owned(),
        }
    }
}

/// What a pod is made of.
#[derive(Clone, Copy, Debug)]
pub struct BuildInput<'a> {
    /// The run.
    pub run: &'a Run,
    /// The DAG that the run is pinned to.
    pub dag: &'a Dag,
    /// The task.
    pub task: &'a Task,
    /// The task instance, with its current try and launch.
    pub task_instance: &'a TaskInstance,
    /// What the tasks that ended before left.
    pub results: &'a dyn Results,
    /// How pods are made.
    pub config: &'a PodConfig,
}

/// Why no pod can be made. Trying again does not help: the task fails.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A template cannot be filled in.
    #[error("{place} of task `{task_id}` cannot be filled in")]
    Template {
        /// The task.
        task_id: String,
        /// Which part of it: `command`, `args`, variable `X`.
        place: String,
        /// What is missing.
        source: Box<RenderError>,
    },
    /// The pod would be in a namespace that the scheduler does not watch.
    #[error(
        "the pod override of task `{task_id}` wants namespace `{found}`, and the pods of this scheduler are watched in \
         `{expected}` only; leave the namespace out"
    )]
    Namespace {
        /// The task.
        task_id: String,
        /// What the override says.
        found: String,
        /// What the scheduler watches.
        expected: String,
    },
}

impl Classify for BuildError {
    fn class(&self) -> Class {
        match self {
            Self::Template { .. } | Self::Namespace { .. } => Class::Invalid,
        }
    }
}

/// The pod of the current launch of a task instance: the template, Longshore's own fields, the task's override, each
/// over the one before (see [`merge_pods`]).
///
/// The override may change everything but what the scheduler finds the pod by: its namespace, the labels of the watch,
/// the id of its try.
///
/// # Errors
/// A template of the task cannot be filled in, or its override names another namespace.
pub fn build_pod(input: &BuildInput<'_>) -> Result<Value, BuildError> {
    let empty = json!({});
    let template = input.config.pod_template.as_ref().unwrap_or(&empty);
    let dynamic = dynamic_pod(input, template)?;
    let mut pod = merge_pods(template, &dynamic);
    if let Some(over) = &input.task.pod_override {
        pod = merge_pods(&pod, over);
    }
    restore(&mut pod, input);
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    if namespace != input.config.namespace {
        return Err(BuildError::Namespace {
            task_id: input.task.task_id.clone(),
            found: namespace.to_owned(),
            expected: input.config.namespace.clone(),
        });
    }
    Ok(pod)
}

/// The name of the pod of a launch: the one in the row, else the one that the row is to have. An override's name wins
/// over it.
pub fn pod_name(task_instance: &TaskInstance) -> String {
    let computed = || object_name(Launcher::Pod, task_instance);
    task_instance.pod_name.clone().unwrap_or_else(computed)
}

fn dynamic_pod(input: &BuildInput<'_>, template: &Value) -> Result<Value, BuildError> {
    let mut spec = json!({
        "restartPolicy": "Never",
        "containers": [container(input, template)?],
    });
    let volumes = volumes(input);
    if !volumes.is_empty() {
        spec["volumes"] = volumes.into();
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(input.task_instance),
            "namespace": input.config.namespace,
            "labels": labels(input),
            "annotations": annotations(input),
        },
        "spec": spec,
    }))
}

/// The task instance's id: regenerated for every try, so that objects of an earlier try are not taken for those of this one.
fn identity(input: &BuildInput<'_>) -> String {
    input.task_instance.id.to_string()
}

fn labels(input: &BuildInput<'_>) -> BTreeMap<&'static str, String> {
    let config = input.config;
    let mut labels = task_labels(input);
    labels.extend([
        (airflow::LABEL_KUBERNETES_EXECUTOR, airflow::TRUE.to_owned()),
        (
            airflow::LABEL_AIRFLOW_VERSION,
            config.airflow_version.replace('+', "-"),
        ),
        (
            airflow::LABEL_AIRFLOW_WORKER,
            names::label_value(&config.scheduler_id),
        ),
    ]);
    labels
}

/// Which task instance it is, for people and their tools.
pub(crate) fn task_labels(input: &BuildInput<'_>) -> BTreeMap<&'static str, String> {
    let TaskInstance {
        key, try_number, ..
    } = input.task_instance;
    let mut labels = BTreeMap::from([
        (airflow::LABEL_DAG_ID, names::label_value(&key.run.dag_id)),
        (airflow::LABEL_TASK_ID, names::label_value(&key.task_id)),
        (airflow::LABEL_RUN_ID, names::label_value(&key.run.run_id)),
        (airflow::LABEL_TRY_NUMBER, try_number.to_string()),
        (airflow::LABEL_TI_ID, identity(input)),
    ]);
    if key.map_index >= 0 {
        labels.insert(airflow::LABEL_MAP_INDEX, key.map_index.to_string());
    }
    labels
}

/// Airflow's ids as they are, and which launch it is.
pub(crate) fn annotations(input: &BuildInput<'_>) -> BTreeMap<&'static str, String> {
    let TaskInstance {
        key,
        try_number,
        launch,
        ..
    } = input.task_instance;
    let mut annotations = BTreeMap::from([
        (airflow::ANNOTATION_DAG_ID, key.run.dag_id.clone()),
        (airflow::ANNOTATION_TASK_ID, key.task_id.clone()),
        (airflow::ANNOTATION_RUN_ID, key.run.run_id.clone()),
        (airflow::ANNOTATION_TRY_NUMBER, try_number.to_string()),
        (airflow::ANNOTATION_TASK_INSTANCE_ID, identity(input)),
        (dags::ANNOTATION_LAUNCH, launch.to_string()),
    ]);
    if key.map_index >= 0 {
        annotations.insert(airflow::ANNOTATION_MAP_INDEX, key.map_index.to_string());
    }
    annotations
}

/// What templates are filled in with.
pub(crate) fn context<'a>(
    input: &BuildInput<'a>,
    params: &'a BTreeMap<String, Value>,
) -> Context<'a> {
    let key = &input.task_instance.key;
    Context {
        dag_id: &key.run.dag_id,
        run_id: &key.run.run_id,
        task_id: &key.task_id,
        logical_date: input.run.logical_date,
        try_number: input.task_instance.try_number,
        params,
        tasks: &input.dag.tasks,
        results: input.results,
    }
}

fn container(input: &BuildInput<'_>, template: &Value) -> Result<Value, BuildError> {
    let task = input.task;
    let params = params(input);
    let context = context(input, &params);
    let return_path = return_path(task, template);
    let mut container = Map::from_iter([
        ("name".to_owned(), airflow::CONTAINER_BASE.into()),
        ("terminationMessagePath".to_owned(), return_path.into()),
        ("env".to_owned(), env(input, &context, return_path)?.into()),
    ]);
    let has_own_image = first_container(template, "image").is_some();
    let image = task
        .image
        .as_ref()
        .or((!has_own_image).then_some(&input.config.image));
    if let Some(image) = image {
        container.insert("image".to_owned(), image.as_str().into());
    }
    for (field, texts) in [("command", &task.command), ("args", &task.args)] {
        if !texts.is_empty() {
            let rendered = render_all(texts, &context, field)?;
            container.insert(field.to_owned(), rendered.into());
        }
    }
    let mounts = volume_mounts(input);
    if !mounts.is_empty() {
        container.insert("volumeMounts".to_owned(), mounts.into());
    }
    Ok(Value::Object(container))
}

/// The parameters of the run: the DAG's, and over them what was given at the trigger.
pub(crate) fn params(input: &BuildInput<'_>) -> BTreeMap<String, Value> {
    let mut params = input.dag.params.clone();
    for (name, value) in input.run.conf.as_object().into_iter().flatten() {
        params.insert(name.clone(), value.clone());
    }
    params
}

/// Where the task writes its small result: where the kubelet will look for it.
fn return_path<'a>(task: &'a Task, template: &'a Value) -> &'a str {
    let over = task.pod_override.as_ref();
    over.and_then(|pod| first_container(pod, "terminationMessagePath"))
        .or_else(|| first_container(template, "terminationMessagePath"))
        .unwrap_or(dags::RETURN_PATH)
}

/// A text of a pod's first container, the one that runs the task.
fn first_container<'a>(pod: &'a Value, field: &str) -> Option<&'a str> {
    let text = pod.pointer("/spec/containers/0")?.get(field)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// Ours first: where names meet, a kubelet takes the last.
fn env(
    input: &BuildInput<'_>,
    context: &Context<'_>,
    return_path: &str,
) -> Result<Vec<Value>, BuildError> {
    let try_number = context.try_number.to_string();
    let mut ours = vec![
        (airflow::ENV_IS_K8S_EXECUTOR_POD, airflow::TRUE),
        (dags::ENV_DAG_ID, context.dag_id),
        (dags::ENV_RUN_ID, context.run_id),
        (dags::ENV_TASK_ID, context.task_id),
        (dags::ENV_TRY_NUMBER, &try_number),
        (dags::ENV_RETURN, return_path),
    ];
    if let Some(workspace) = &input.dag.workspace {
        ours.push((dags::ENV_WORKSPACE, &workspace.mount_path));
    }
    if !input.dag.files.is_empty() {
        ours.push((dags::ENV_FILES, dags::FILES_MOUNT_PATH));
    }
    let mut env: Vec<Value> = ours
        .into_iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    for variable in &input.task.env {
        env.push(rendered_variable(variable, context)?);
    }
    Ok(env)
}

/// A list of texts, filled in.
pub(crate) fn render_all(
    texts: &[String],
    context: &Context<'_>,
    field: &str,
) -> Result<Vec<String>, BuildError> {
    let texts = texts.iter();
    texts
        .map(|text| render(text, context, || format!("`{field}`")))
        .collect()
}

fn rendered_variable(variable: &Value, context: &Context<'_>) -> Result<Value, BuildError> {
    let Some(text) = variable.get("value").and_then(Value::as_str) else {
        return Ok(variable.clone());
    };
    let place = || {
        let name = variable
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        format!("variable `{name}`")
    };
    let mut rendered = variable.clone();
    rendered["value"] = render(text, context, place)?.into();
    Ok(rendered)
}

/// A text, filled in. `place` names it for messages.
pub(crate) fn render(
    text: &str,
    context: &Context<'_>,
    place: impl FnOnce() -> String,
) -> Result<String, BuildError> {
    template::render(text, context).map_err(|source| BuildError::Template {
        task_id: context.task_id.to_owned(),
        place: place(),
        source: Box::new(source),
    })
}

fn volumes(input: &BuildInput<'_>) -> Vec<Value> {
    let run = &input.task_instance.key.run;
    let mut volumes = Vec::new();
    if input.dag.workspace.is_some() {
        volumes.push(json!({
            "name": dags::VOLUME_WORKSPACE,
            "persistentVolumeClaim": {"claimName": workspace_name(run)},
        }));
    }
    if !input.dag.files.is_empty() {
        volumes.push(json!({
            "name": dags::VOLUME_FILES,
            "configMap": {"name": files_name(run)},
        }));
    }
    volumes
}

fn volume_mounts(input: &BuildInput<'_>) -> Vec<Value> {
    let mut mounts = Vec::new();
    if let Some(workspace) = &input.dag.workspace {
        mounts.push(json!({"name": dags::VOLUME_WORKSPACE, "mountPath": workspace.mount_path}));
    }
    if !input.dag.files.is_empty() {
        mounts.push(json!({
            "name": dags::VOLUME_FILES,
            "mountPath": dags::FILES_MOUNT_PATH,
            "readOnly": true,
        }));
    }
    mounts
}

/// Sets a key of a map in the metadata whatever a template or an override said.
/// Puts back what the pod is found again by, whatever the template or the override said.
fn restore(pod: &mut Value, input: &BuildInput<'_>) {
    let ours = [
        ("labels", airflow::LABEL_TI_ID, identity(input)),
        (
            "labels",
            airflow::LABEL_KUBERNETES_EXECUTOR,
            airflow::TRUE.to_owned(),
        ),
        (
            "labels",
            airflow::LABEL_AIRFLOW_WORKER,
            names::label_value(&input.config.scheduler_id),
        ),
        (
            "annotations",
            airflow::ANNOTATION_TASK_INSTANCE_ID,
            identity(input),
        ),
        (
            "annotations",
            dags::ANNOTATION_LAUNCH,
            input.task_instance.launch.to_string(),
        ),
    ];
    for (map, key, value) in ours {
        let map = pod.pointer_mut(&format!("/metadata/{map}"));
        if let Some(map) = map.and_then(Value::as_object_mut) {
            map.insert(key.to_owned(), value.into());
        }
    }
}

#[cfg(test)]
mod tests;
