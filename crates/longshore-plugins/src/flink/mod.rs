//! Flink jobs: a FlinkDeployment, whose spec is the task's `custom` as it is. Ours; upstream has no such plugin.

mod phase;

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{Resource, Scope};
use serde_json::{Value, json};

use crate::{
    config::Config,
    context::TaskContext,
    phase::PhaseInfo,
    plugin::{BuildError, Plugin, PluginProperties},
    pod::render::Values,
    proto_json::to_json,
};

/// `flink.apache.org/v1beta1` FlinkDeployment.
const RESOURCE: Resource = Resource {
    group: "flink.apache.org",
    version: "v1beta1",
    kind: "FlinkDeployment",
    plural: "flinkdeployments",
    scope: Scope::Namespaced,
};

/// Flink's cluster ids, which are the names of deployments, cannot be longer.
const MAX_NAME: usize = 45;

/// The plugin of Flink jobs.
#[derive(Clone, Debug)]
pub(crate) struct FlinkPlugin {
    config: Arc<Config>,
}

impl FlinkPlugin {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }
}

impl Plugin for FlinkPlugin {
    fn id(&self) -> &'static str {
        "flink"
    }

    fn task_types(&self) -> &'static [&'static str] {
        &["flink"]
    }

    fn resource(&self) -> Resource {
        RESOURCE
    }

    fn properties(&self) -> PluginProperties {
        PluginProperties::with_names_up_to(MAX_NAME)
    }

    fn needs_inputs(&self, context: &TaskContext) -> bool {
        let custom = context
            .template
            .custom
            .as_ref()
            .map(to_json)
            .unwrap_or_default();
        let args = custom["job"]["args"].as_array().into_iter().flatten();
        args.filter_map(Value::as_str)
            .any(crate::pod::render::needs_inputs)
    }

    /// The arguments of the job may hold templates, as a container's; the rest of the spec is the user's.
    fn build(&self, context: &TaskContext) -> Result<Value, BuildError> {
        let custom = context
            .template
            .custom
            .as_ref()
            .map(to_json)
            .unwrap_or_default();
        let mut spec = custom;
        if !spec["job"].is_object() {
            return Err(BuildError::bad_specification(
                "expected the spec of a FlinkDeployment with a job in the template's custom, found none; a session without a job never ends",
            ));
        }
        let values = Values::of(context);
        let args = spec["job"]["args"].as_array_mut();
        for arg in args.into_iter().flatten() {
            if let Value::String(text) = arg {
                *text = values.render(text)?;
            }
        }
        if let Some(account) = &context.service_account
            && spec["serviceAccount"].is_null()
        {
            spec["serviceAccount"] = json!(account);
        }
        Ok(json!({"apiVersion": RESOURCE.api_version(), "kind": RESOURCE.kind, "spec": spec}))
    }

    fn phase(&self, context: &TaskContext, resource: &Value, _: Timestamp) -> PhaseInfo {
        phase::of(context, resource, &self.config)
    }
}

#[cfg(test)]
mod tests;
