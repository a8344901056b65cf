//! The contract of a plugin: how a task becomes a resource, and what the resource says about the task.

use jiff::Timestamp;
use longshore_core::Resource;
use serde_json::Value;

use crate::{context::TaskContext, phase::PhaseInfo};

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

    /// The resource of this attempt, without name, namespace and owner.
    ///
    /// # Errors
    /// Where the template cannot become one: `BadTaskSpecification`, a failure for good.
    fn build(&self, context: &TaskContext) -> Result<Value, BuildError>;

    /// What the live resource says. Never [`Phase::Aborted`](crate::Phase::Aborted).
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
