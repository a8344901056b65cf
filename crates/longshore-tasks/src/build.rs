//! The resource of an attempt: what the plugin makes of the template, and what makes it ours (task action spec §9.5).

use longshore_api::tasks::ANNOTATION_LAUNCH;
use longshore_core::{ChildIdentity, Create, ObjectRef};
use longshore_plugins::{BuildError, K8sConfig, Owner, with_metadata};
use serde_json::json;

use crate::model::{LaunchId, Task};

/// The creation of the resource of one launch. A function of the action, its attempt and the configuration: repeated
/// after a crash, it meets its own resource.
pub(crate) fn create(
    action: &ObjectRef,
    task: &Task,
    launch: &LaunchId,
    config: &K8sConfig,
) -> Result<Create, BuildError> {
    let (plugin, context) = (&task.plugin, &task.context);
    let resource = plugin.resource();
    let name = plugin.resource_name(context);
    let owner = Owner {
        name: &action.name,
        uid: &launch.uid,
    };
    let (built, properties) = (plugin.build(context)?, plugin.properties());
    let mut object = with_metadata(built, &name, context, owner, properties, config);
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    object["metadata"]["annotations"][ANNOTATION_LAUNCH] = json!(launch.to_string());
    Ok(Create {
        resource,
        object,
        identity: ChildIdentity::annotation(ANNOTATION_LAUNCH, launch.to_string()),
    })
}
