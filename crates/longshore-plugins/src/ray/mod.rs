//! Ray jobs, run by KubeRay: a RayJob (task action spec §11.10).

mod build;
mod config;
mod groups;
mod phase;

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{Resource, Scope};
use serde_json::Value;

pub use config::{RayConfig, RayNode, SubmissionMode};

use crate::{
    config::Config,
    context::TaskContext,
    json::text,
    phase::PhaseInfo,
    plugin::{BuildError, HeadPod, Plugin, PluginProperties},
};

/// `ray.io/v1` RayJob.
const RESOURCE: Resource = Resource {
    group: "ray.io",
    version: "v1",
    kind: "RayJob",
    plural: "rayjobs",
    scope: Scope::Namespaced,
};

/// Longer names leave no room for what KubeRay adds.
const MAX_NAME: usize = 47;
/// The container of the head.
const HEAD: &str = "ray-head";

/// The plugin.
#[derive(Clone, Debug)]
pub(crate) struct RayPlugin {
    config: Arc<Config>,
}

impl RayPlugin {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }
}

impl Plugin for RayPlugin {
    fn id(&self) -> &'static str {
        "ray"
    }

    fn task_types(&self) -> &'static [&'static str] {
        &["ray"]
    }

    fn resource(&self) -> Resource {
        RESOURCE
    }

    fn properties(&self) -> PluginProperties {
        PluginProperties::with_names_up_to(MAX_NAME)
    }

    fn head_pod(&self, _: &TaskContext, resource: &Value) -> Option<HeadPod> {
        let cluster = text(&resource["status"], "rayClusterName");
        // Older operators add random characters.
        (!cluster.is_empty()).then(|| HeadPod::Beginning(format!("{cluster}-head")))
    }

    fn needs_error_file(&self, resource: &Value) -> bool {
        resource["status"]["jobDeploymentStatus"] == "Failed"
    }

    fn needs_inputs(&self, context: &TaskContext) -> bool {
        context.pod_needs_inputs(&self.config.k8s)
    }

    fn build(&self, context: &TaskContext) -> Result<Value, BuildError> {
        build::of(context, &self.config)
    }

    fn phase(&self, context: &TaskContext, resource: &Value, now: Timestamp) -> PhaseInfo {
        phase::of(context, resource, &self.config, now)
    }
}

#[cfg(test)]
mod tests;
