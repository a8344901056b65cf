//! The resource of an attempt: what the plugin makes of the template, and what makes it ours (task action spec §9.5).

use longshore_api::{flyte::FINALIZER_RESOURCE, tasks::ANNOTATION_LAUNCH};
use longshore_core::{Create, ObjectRef};
use longshore_plugins::{BuildError, K8sConfig};
use serde_json::{Map, Value, json};

use crate::model::{LaunchId, TASK_ACTION, Task};

/// The creation of the resource of one launch. A function of the action, its attempt and the configuration: repeated
/// after a crash, it meets its own resource.
pub(crate) fn create(
    owner: &ObjectRef,
    task: &Task,
    launch: &LaunchId,
    config: &K8sConfig,
) -> Result<Create, BuildError> {
    let (plugin, context) = (&task.plugin, &task.context);
    let resource = plugin.resource();
    let mut object = plugin.build(context)?;
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    let made = object["metadata"].take();
    let labels = united([
        &json!(config.default_labels),
        &made["labels"],
        &json!(context.labels),
    ]);
    let mut annotations = united([
        &json!(config.default_annotations),
        &made["annotations"],
        &json!(context.annotations),
    ]);
    annotations.insert(ANNOTATION_LAUNCH.to_owned(), json!(launch.to_string()));
    let mut metadata = json!({
        "name": plugin.resource_name(context),
        "namespace": context.namespace,
        "labels": labels,
        "annotations": annotations,
    });
    if !config.disable_inject_owner_references {
        metadata["ownerReferences"] = json!([{
            "apiVersion": TASK_ACTION.api_version(),
            "kind": TASK_ACTION.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
        }]);
    }
    if config.inject_finalizer {
        metadata["finalizers"] = json!([FINALIZER_RESOURCE]);
    }
    object["metadata"] = metadata;
    Ok(Create {
        resource,
        object,
        identity: (ANNOTATION_LAUNCH, launch.to_string()),
    })
}

/// All entries; where a key is in several maps, the last one wins.
fn united(maps: [&Value; 3]) -> Map<String, Value> {
    let entries = maps.into_iter().filter_map(Value::as_object).flatten();
    entries
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
