//! What all pods of a run share: the files beside the DAG, and the workspace.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use longshore_api::{airflow, dags};
use longshore_store::model::RunKey;

use super::PodConfig;
use crate::{airflow::names, model::Dag};

/// What the objects are for that the pods of a run share; part of their names.
const FILES: &str = "files";
const WORKSPACE: &str = "workspace";

/// The ConfigMap with the files beside the DAG, the same for all pods of the run; `None` without files.
pub fn build_files(run: &RunKey, dag: &Dag, config: &PodConfig) -> Option<Value> {
    if dag.files.is_empty() {
        return None;
    }
    let data: BTreeMap<&str, ByteString> = dag
        .files
        .iter()
        .map(|(name, content)| (name.as_str(), ByteString(content.clone())))
        .collect();
    Some(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": shared_metadata(run, FILES, config),
        "immutable": true,
        "binaryData": data,
    }))
}

/// The claim of the workspace that all pods of the run share; `None` without one.
pub fn build_workspace(run: &RunKey, dag: &Dag, config: &PodConfig) -> Option<Value> {
    let workspace = dag.workspace.as_ref()?;
    let mut spec = json!({
        "accessModes": workspace.access_modes,
        "resources": {"requests": {"storage": workspace.size}},
    });
    if let Some(class) = &workspace.storage_class_name {
        spec["storageClassName"] = class.as_str().into();
    }
    Some(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": shared_metadata(run, WORKSPACE, config),
        "spec": spec,
    }))
}

/// The value of the annotation [`dags::ANNOTATION_RUN`] on what the pods of a run share. Other schedulers may have runs
/// of the same name in the same namespace.
pub fn run_identity(run: &RunKey, config: &PodConfig) -> String {
    format!("{}/{run}", config.scheduler_id)
}

/// The run that an object was made for: [`run_identity`] backwards. `None` where it is another scheduler's.
///
/// Neither a scheduler's id nor a DAG's has a slash in it.
pub fn run_of(identity: &str, config: &PodConfig) -> Option<RunKey> {
    let run = identity
        .strip_prefix(&config.scheduler_id)?
        .strip_prefix('/')?;
    let (dag_id, run_id) = run.split_once('/')?;
    Some(RunKey {
        dag_id: dag_id.to_owned(),
        run_id: run_id.to_owned(),
    })
}

/// The selector of all that the pods of this scheduler's runs share.
pub fn shared_selector(config: &PodConfig) -> String {
    format!(
        "{},{}={}",
        airflow::LABEL_RUN_ID,
        airflow::LABEL_AIRFLOW_WORKER,
        names::label_value(&config.scheduler_id)
    )
}

/// The name of the ConfigMap of a run.
pub fn files_name(run: &RunKey) -> String {
    names::run_object_name(&run.dag_id, &run.run_id, FILES)
}

/// The name of the claim of a run's workspace.
pub fn workspace_name(run: &RunKey) -> String {
    names::run_object_name(&run.dag_id, &run.run_id, WORKSPACE)
}

fn shared_metadata(run: &RunKey, purpose: &str, config: &PodConfig) -> Value {
    json!({
        "name": names::run_object_name(&run.dag_id, &run.run_id, purpose),
        "namespace": config.namespace,
        "labels": {
            airflow::LABEL_DAG_ID: names::label_value(&run.dag_id),
            airflow::LABEL_RUN_ID: names::label_value(&run.run_id),
            airflow::LABEL_AIRFLOW_WORKER: names::label_value(&config.scheduler_id),
        },
        "annotations": {dags::ANNOTATION_RUN: run_identity(run, config)},
    })
}
