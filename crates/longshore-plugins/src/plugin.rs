//! The contract of a plugin: how a task becomes a resource, and what the resource says about the task.
//!
//! How to add one: `docs/plugins.md`.

use jiff::Timestamp;
use longshore_core::Resource;
use serde_json::Value;

use crate::{
    abort::AbortBehavior, config::K8sConfig, context::TaskContext, names, phase::PhaseInfo,
};

/// The code of a template that cannot be run.
pub const BAD_TASK_SPECIFICATION: &str = "BadTaskSpecification";

/// A task type that runs as one Kubernetes resource.
///
/// Pure: the caller has read everything that [`TaskContext`] holds, creates what [`build`](Self::build) returns (after
/// it set name, labels, annotations and owner), and shows the live resource to [`phase`](Self::phase).
pub trait Plugin: Send + Sync + std::fmt::Debug {
    /// The id of the plugin, as `tasks.task-plugins.default-for-task-types` names it.
    fn id(&self) -> &'static str;

    /// The task types that it takes unless the configuration says otherwise.
    fn task_types(&self) -> &'static [&'static str];

    /// The kind of resource that the plugin creates.
    fn resource(&self) -> Resource;

    /// How its resources differ from those of other plugins.
    fn properties(&self) -> PluginProperties {
        PluginProperties::default()
    }

    /// The name of the resource of this attempt.
    fn resource_name(&self, context: &TaskContext) -> String {
        let name = &context.generated_name;
        let limit = self.properties().generated_name_max_length;
        let limit = limit.unwrap_or(name.len());
        names::subdomain(&names::fixed_length_unique_id(name, limit))
    }

    /// Whether [`build`](Self::build) reads [`TaskContext::inputs`]. Most tasks read their inputs
    /// themselves, so the controller loads them only where this returns `true`.
    fn needs_inputs(&self, _context: &TaskContext) -> bool {
        false
    }

    /// The resource of this attempt, without name, namespace and owner.
    ///
    /// # Errors
    /// Where the template cannot become one: `BadTaskSpecification`, a failure for good.
    fn build(&self, context: &TaskContext) -> Result<Value, BuildError>;

    /// Whether the resource, as this CustomResourceDefinition has it, takes whole pods as
    /// templates. The controller calls this once for each definition, and [`build`](Self::build)
    /// finds the result in [`TaskContext::takes_pod_templates`].
    fn takes_pod_templates(&self, _definition: &Value) -> bool {
        false
    }

    /// The pod that the controller reads before [`phase`](Self::phase), as
    /// [`TaskContext::head_pod`]: it shows failures that the resource itself shows late, or never.
    fn head_pod(&self, _context: &TaskContext, _resource: &Value) -> Option<HeadPod> {
        None
    }

    /// Whether [`phase`](Self::phase) reads [`TaskContext::error_file`] of this resource.
    fn needs_error_file(&self, _resource: &Value) -> bool {
        false
    }

    /// What the live resource says, before [`PhaseInfo::ordered_after`] compares it with what was said last. Never [`Phase::Aborted`](crate::Phase::Aborted).
    fn phase(&self, context: &TaskContext, resource: &Value, now: Timestamp) -> PhaseInfo;

    /// What is done with the live resource when the action is deleted. The executor asks again in each round until the
    /// action is gone, and shows the resource as it is by then.
    fn on_abort(&self, _context: &TaskContext, _resource: &Value) -> AbortBehavior {
        AbortBehavior::delete()
    }
}

/// How the resources of a plugin differ from those of other plugins. What the configuration disables stays disabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginProperties {
    /// The resource names no owner: the garbage collector of the cluster leaves it alone when its TaskAction goes. The
    /// executor looks at it at intervals, because its changes do not say which TaskAction they are about.
    pub disable_inject_owner_references: bool,
    /// The resource gets no finalizer, whatever `inject-finalizer` says.
    pub disable_inject_finalizer: bool,
    /// The longest name that the resource can have; `None` for what Kubernetes allows.
    pub generated_name_max_length: Option<usize>,
    /// The resource stays when its task has ended, whatever `delete-resource-on-finalize` says. For resources that use
    /// nothing once they have ended.
    pub disable_delete_resource_on_finalize: bool,
}

impl PluginProperties {
    /// Those of a resource whose name has at most so many bytes.
    pub(crate) fn with_names_up_to(length: usize) -> Self {
        Self {
            generated_name_max_length: Some(length),
            ..Self::default()
        }
    }

    /// Whether the resource names the TaskAction as its owner.
    pub fn has_owner(self, config: &K8sConfig) -> bool {
        !(config.disable_inject_owner_references || self.disable_inject_owner_references)
    }

    /// Whether the resource gets a finalizer.
    pub fn has_finalizer(self, config: &K8sConfig) -> bool {
        config.inject_finalizer && !self.disable_inject_finalizer
    }

    /// Whether the resource is deleted when its task has ended.
    pub fn is_deleted_at_the_end(self, config: &K8sConfig) -> bool {
        config.delete_resource_on_finalize && !self.disable_delete_resource_on_finalize
    }
}

/// Which pod is the head of a resource with many pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadPod {
    /// The one with this name.
    Named(String),
    /// The one whose name begins so: the operator chooses the rest.
    Beginning(String),
}

impl HeadPod {
    /// That pod. Where several fit, one that may still run, then the newest.
    pub fn select<'a>(&self, pods: impl IntoIterator<Item = &'a Value>) -> Option<&'a Value> {
        let rank = |pod: &Value| {
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            let text = |field: &str| {
                pod["metadata"][field]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            let is_open = matches!(phase, "Running" | "Pending");
            (is_open, text("creationTimestamp"), text("name"))
        };
        let fits = |pod: &&Value| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            match self {
                Self::Named(wanted) => name == wanted,
                Self::Beginning(start) => name.starts_with(start),
            }
        };
        pods.into_iter().filter(fits).max_by_key(|pod| rank(pod))
    }
}

/// A template that cannot become a resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BuildError {
    /// `BadTaskSpecification` or another code of the spec.
    pub code: &'static str,
    /// What was expected, what was found, what to do.
    pub message: String,
}

impl BuildError {
    /// A template that cannot be run.
    pub fn bad_specification(message: impl Into<String>) -> Self {
        Self {
            code: BAD_TASK_SPECIFICATION,
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_plugin_or_the_configuration_disables_is_disabled() {
        let none = PluginProperties::default();
        let all = PluginProperties {
            disable_inject_owner_references: true,
            disable_inject_finalizer: true,
            disable_delete_resource_on_finalize: true,
            ..none
        };
        let plain = K8sConfig::default();
        let eager = K8sConfig {
            inject_finalizer: true,
            delete_resource_on_finalize: true,
            disable_inject_owner_references: true,
            ..K8sConfig::default()
        };
        for (properties, config, expected) in [
            (none, &plain, [true, false, false]),
            (none, &eager, [false, true, true]),
            (all, &plain, [false, false, false]),
            (all, &eager, [false, false, false]),
        ] {
            let found = [
                properties.has_owner(config),
                properties.has_finalizer(config),
                properties.is_deleted_at_the_end(config),
            ];
            assert_eq!(found, expected, "{properties:?}");
        }
    }

    #[test]
    fn of_several_head_pods_the_newest_that_is_open_counts() {
        let pod = |name: &str, phase: &str, created: &str| {
            json!({
                "metadata": {"name": name, "creationTimestamp": created},
                "status": {"phase": phase},
            })
        };
        let pods = [
            pod("j-0-a", "Failed", "2026-01-01T00:00:03Z"),
            pod("j-0-b", "Running", "2026-01-01T00:00:01Z"),
            pod("j-0-c", "Pending", "2026-01-01T00:00:02Z"),
            pod("k-0", "Running", "2026-01-01T00:00:09Z"),
        ];
        let select = |head: HeadPod| {
            let pod = head.select(&pods)?;
            pod["metadata"]["name"].as_str()
        };
        assert_eq!(select(HeadPod::Beginning("j-0".to_owned())), Some("j-0-c"));
        assert_eq!(select(HeadPod::Named("j-0-a".to_owned())), Some("j-0-a"));
        assert_eq!(select(HeadPod::Named("j-0".to_owned())), None);
    }
}
