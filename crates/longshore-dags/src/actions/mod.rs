//! The launcher of tasks with a plugin: TaskActions, which Flyte's executor runs (`longshore-tasks`, or upstream's).

use kube::{Api, Client, core::ApiResource};
use longshore_core::Resource;

pub mod build;
pub mod events;
mod pods;

pub use events::TaskAction;
pub use pods::{TaskPod, pod_of};

/// Why a task with a plugin fails where TaskActions do not exist.
pub(crate) const NOT_INSTALLED: &str = "the cluster has no TaskActions (flyte.org/v1), and a task with a plugin becomes \
     one; install them: kubectl apply -f crates/longshore-api/crds/flyte.org_taskactions.yaml";

/// The TaskActions of a namespace.
pub(crate) fn api(client: &Client, namespace: &str) -> Api<TaskAction> {
    let resource = Resource::TASK_ACTION;
    let kind = ApiResource {
        group: resource.group.to_owned(),
        version: resource.version.to_owned(),
        api_version: resource.api_version(),
        kind: resource.kind.to_owned(),
        plural: resource.plural.to_owned(),
    };
    Api::namespaced_with(client.clone(), namespace, &kind)
}
