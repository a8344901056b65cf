//! Tasks that run as one Pod: a container, a pod that the user wrote, or a sidecar task of the old SDK.
//!
//! Built as upstream does (task action spec §11): the raw pod, then templates, variables and
//! resources of its containers, then where it may run, then extras. The pod stays JSON, so that
//! fields that this code does not know survive.

mod build;
mod co_pilot;
mod duration;
mod env;
mod failure;
mod head;
mod ide;
mod literal;
mod logs;
mod merge;
mod msgpack;
mod parts;
mod pending;
mod phase;
mod raw;
pub(crate) mod render;
pub(crate) mod resources;
pub(crate) mod scheduling;
mod shared_memory;
mod status;
mod template;

pub(crate) use head::{failed, stuck, trouble};
pub(crate) use ide::serves_editor;
pub(crate) use logs::log_context;
pub(crate) use merge::merge;
pub(crate) use raw::Pod;
pub(crate) use template::overlay;

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::Resource;
use serde_json::Value;

use crate::{
    config::{Config, K8sConfig},
    context::TaskContext,
    phase::PhaseInfo,
    plugin::{BuildError, Plugin},
};

/// Task types that differ in how their pods are made or read.
const TYPE_SIDECAR: &str = "sidecar";
const TYPE_RAW_CONTAINER: &str = "raw-container";

/// The plugin of everything that is a Pod, and of every task type that has no plugin of its own.
#[derive(Clone, Debug)]
pub struct PodPlugin {
    config: Arc<Config>,
}

impl PodPlugin {
    /// The plugin's id.
    pub const ID: &str = "pod";

    /// The plugin, as it is configured.
    pub fn new(config: Arc<Config>) -> Self {
        Self { config }
    }
}

impl Plugin for PodPlugin {
    fn id(&self) -> &'static str {
        Self::ID
    }

    fn task_types(&self) -> &'static [&'static str] {
        &["container", "python", TYPE_RAW_CONTAINER, TYPE_SIDECAR]
    }

    fn resource(&self) -> Resource {
        Resource::POD
    }

    fn needs_inputs(&self, context: &TaskContext) -> bool {
        needs_inputs(context, &self.config.k8s)
    }

    fn build(&self, context: &TaskContext) -> Result<Value, BuildError> {
        build::of(context, &self.config.k8s)
    }

    fn phase(&self, context: &TaskContext, resource: &Value, now: Timestamp) -> PhaseInfo {
        let info = phase::of(resource, &self.config.k8s.grace, now);
        logs::add(info, context, resource, &self.config.logs, now)
    }
}

/// Whether the pod of a task cannot be built without its inputs.
pub(crate) fn needs_inputs(context: &TaskContext, config: &K8sConfig) -> bool {
    raw::of(context, config).is_ok_and(|pod| build::needs_inputs(&pod))
}

#[cfg(test)]
mod tests;
