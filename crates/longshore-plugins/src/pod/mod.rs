//! Tasks that run as one Pod: a container, a pod that the user wrote, or a sidecar task of the old SDK.
//!
//! Built as upstream does (task action spec §11): the raw pod, then templates, variables and resources of its
//! containers, then where it may run, then extras. The pod stays JSON, so that fields that nobody here knows survive.

mod build;
mod env;
mod failure;
mod literal;
mod pending;
mod phase;
mod raw;
mod render;
mod resources;
mod scheduling;
mod shared_memory;
mod status;

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::Resource;
use serde_json::Value;

use crate::{
    config::K8sConfig,
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
    config: Arc<K8sConfig>,
}

impl PodPlugin {
    /// The plugin's id.
    pub const ID: &str = "pod";

    /// The plugin, as it is configured.
    pub fn new(config: Arc<K8sConfig>) -> Self {
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
        raw::of(context, &self.config).is_ok_and(|pod| build::needs_inputs(&pod))
    }

    fn build(&self, context: &TaskContext) -> Result<Value, BuildError> {
        build::of(context, &self.config)
    }

    fn phase(&self, _context: &TaskContext, resource: &Value, now: Timestamp) -> PhaseInfo {
        phase::of(resource, &self.config.grace, now)
    }
}

#[cfg(test)]
mod tests;
