//! The contract of a plugin: how a task becomes a resource, and what the resource says about the task.

use jiff::Timestamp;
use longshore_core::Resource;
use serde_json::Value;

use crate::{context::TaskContext, names, phase::PhaseInfo};

/// The code of a template that cannot be run.
pub const BAD_TASK_SPECIFICATION: &str = "BadTaskSpecification";

/// A task type that runs as one Kubernetes resource.
///
/// Pure: the caller has read everything that [`TaskContext`] holds, creates what [`build`](Self::build) returns (after
/// it set name, labels, annotations and owner), and shows the live resource to [`phase`](Self::phase).
pub trait Plugin: Send + Sync + std::fmt::Debug {
    /// Its id, as `tasks.task-plugins.default-for-task-types` names it.
    fn id(&self) -> &'static str;

    /// The task types that it takes unless the configuration says otherwise.
    fn task_types(&self) -> &'static [&'static str];

    /// What it creates.
    fn resource(&self) -> Resource;

    /// The longest name that its resource can have; `None` for what Kubernetes allows.
    fn max_name_length(&self) -> Option<usize> {
        None
    }

    /// The name of the resource of this attempt.
    fn resource_name(&self, context: &TaskContext) -> String {
        let name = &context.generated_name;
        let limit = self.max_name_length().unwrap_or(name.len());
        names::subdomain(&names::fixed_length_unique_id(name, limit))
    }

    /// Whether [`build`](Self::build) asks for [`TaskContext::inputs`]. Most tasks read their inputs themselves, so
    /// nobody else does unless it is needed.
    fn needs_inputs(&self, _context: &TaskContext) -> bool {
        false
    }

    /// The resource of this attempt, without name, namespace and owner.
    ///
    /// # Errors
    /// Where the template cannot become one: `BadTaskSpecification`, a failure for good.
    fn build(&self, context: &TaskContext) -> Result<Value, BuildError>;

    /// What the live resource says, before [`PhaseInfo::ordered_after`] compares it with what was said last. Never [`Phase::Aborted`](crate::Phase::Aborted).
    fn phase(&self, context: &TaskContext, resource: &Value, now: Timestamp) -> PhaseInfo;
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
