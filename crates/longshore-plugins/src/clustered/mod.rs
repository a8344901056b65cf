//! Tasks on several nodes at once, run by the JobSet controller: a JobSet (task action spec §11.10).

mod build;
mod phase;

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{Resource, Scope};
use serde_json::Value;

use crate::{
    config::Config,
    context::TaskContext,
    json::text,
    phase::PhaseInfo,
    plugin::{BuildError, HeadPod, Plugin, PluginProperties},
};

/// `jobset.x-k8s.io/v1alpha2` JobSet.
const RESOURCE: Resource = Resource {
    group: "jobset.x-k8s.io",
    version: "v1alpha2",
    kind: "JobSet",
    plural: "jobsets",
    scope: Scope::Namespaced,
};

/// The only job of the set.
const WORKERS: &str = "workers";
/// More pods would have longer names than a name may be.
const MAX_REPLICAS: i32 = 100_000;
/// What a label holds, less what the controllers add to the name of the set to make those of its pods.
const MAX_NAME: usize = 63 - "-workers-0-99999-abcde".len();

/// The plugin.
#[derive(Clone, Debug)]
pub(crate) struct ClusteredPlugin {
    config: Arc<Config>,
}

impl ClusteredPlugin {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }
}

impl Plugin for ClusteredPlugin {
    fn id(&self) -> &'static str {
        "clustered-task"
    }

    fn task_types(&self) -> &'static [&'static str] {
        &["clustered-task"]
    }

    fn resource(&self) -> Resource {
        RESOURCE
    }

    fn properties(&self) -> PluginProperties {
        PluginProperties::with_names_up_to(MAX_NAME)
    }

    fn needs_inputs(&self, context: &TaskContext) -> bool {
        context.pod_needs_inputs(&self.config.k8s)
    }

    fn build(&self, context: &TaskContext) -> Result<Value, BuildError> {
        build::of(context, &self.config, &self.resource_name(context))
    }

    fn head_pod(&self, _: &TaskContext, resource: &Value) -> Option<HeadPod> {
        let name = text(&resource["metadata"], "name");
        Some(HeadPod::Beginning(format!("{name}-{WORKERS}-0-0-")))
    }

    fn phase(&self, context: &TaskContext, resource: &Value, now: Timestamp) -> PhaseInfo {
        phase::of(context, resource, &self.config, now)
    }
}

#[cfg(test)]
mod tests;
