//! Dask jobs, run by the Dask operator: a DaskJob (task action spec §11.10).

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
    links::LogConfig,
    phase::PhaseInfo,
    plugin::{BuildError, HeadPod, Plugin},
};

/// `kubernetes.dask.org/v1` DaskJob.
const RESOURCE: Resource = Resource {
    group: "kubernetes.dask.org",
    version: "v1",
    kind: "DaskJob",
    plural: "daskjobs",
    scope: Scope::Namespaced,
};

/// The container that runs the task.
const JOB_RUNNER: &str = "job-runner";

/// `plugins.dask`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaskConfig {
    /// `logs`: the links to logs of Dask tasks.
    pub logs: LogConfig,
}

/// The plugin.
#[derive(Clone, Debug)]
pub(crate) struct DaskPlugin {
    config: Arc<Config>,
}

impl DaskPlugin {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }
}

impl Plugin for DaskPlugin {
    fn id(&self) -> &'static str {
        "dask"
    }

    fn task_types(&self) -> &'static [&'static str] {
        &["dask"]
    }

    fn resource(&self) -> Resource {
        RESOURCE
    }

    fn head_pod(&self, _: &TaskContext, resource: &Value) -> Option<HeadPod> {
        let name = text(&resource["status"], "jobRunnerPodName");
        (!name.is_empty()).then(|| HeadPod::Named(name.to_owned()))
    }

    fn needs_inputs(&self, context: &TaskContext) -> bool {
        context.pod_needs_inputs(&self.config.k8s)
    }

    fn build(&self, context: &TaskContext) -> Result<Value, BuildError> {
        build::of(context, &self.config, &self.resource_name(context))
    }

    fn phase(&self, context: &TaskContext, resource: &Value, now: Timestamp) -> PhaseInfo {
        phase::of(context, resource, &self.config, now)
    }
}

#[cfg(test)]
mod tests;
