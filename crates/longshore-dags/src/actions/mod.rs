//! The launcher of tasks with a plugin: TaskActions, which Flyte's executor runs (`longshore-tasks`, or upstream's).

use kube::{Api, Client};
use longshore_kit::api_resource;
use longshore_plugins::TASK_ACTION;

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
    Api::namespaced_with(client.clone(), namespace, &api_resource(TASK_ACTION))
}
