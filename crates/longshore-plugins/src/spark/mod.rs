//! Spark jobs, run by the Spark operator: a SparkApplication (task action spec §11.10).

mod build;
mod conf;
mod config;
mod phase;

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{Resource, Scope};
use serde_json::Value;

pub use config::{Feature, SparkConfig, SparkLogs};

use crate::{
    config::Config,
    context::TaskContext,
    json::text,
    phase::PhaseInfo,
    plugin::{BuildError, HeadPod, Plugin},
};

/// `sparkoperator.k8s.io/v1beta2` SparkApplication.
const RESOURCE: Resource = Resource {
    group: "sparkoperator.k8s.io",
    version: "v1beta2",
    kind: "SparkApplication",
    plural: "sparkapplications",
    scope: Scope::Namespaced,
};

/// The containers that the operator makes of the pods.
const DRIVER: &str = "spark-kubernetes-driver";
const EXECUTOR: &str = "spark-kubernetes-executor";

/// The plugin of Spark jobs.
#[derive(Clone, Debug)]
pub(crate) struct SparkPlugin {
    config: Arc<Config>,
}

impl SparkPlugin {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }
}

impl Plugin for SparkPlugin {
    fn id(&self) -> &'static str {
        "spark"
    }

    fn task_types(&self) -> &'static [&'static str] {
        &["spark"]
    }

    fn resource(&self) -> Resource {
        RESOURCE
    }

    fn needs_inputs(&self, context: &TaskContext) -> bool {
        context.pod_needs_inputs(&self.config.k8s)
    }

    fn build(&self, context: &TaskContext) -> Result<Value, BuildError> {
        build::of(context, &self.config)
    }

    fn takes_pod_templates(&self, definition: &Value) -> bool {
        let versions = definition["spec"]["versions"].as_array().into_iter();
        let mut served = versions
            .flatten()
            .filter(|version| version["name"] == RESOURCE.version && version["served"] == true);
        let path = "/schema/openAPIV3Schema/properties/spec/properties/driver/properties/template";
        served.any(|version| version.pointer(path).is_some())
    }

    fn head_pod(&self, _: &TaskContext, resource: &Value) -> Option<HeadPod> {
        let name = text(&resource["status"]["driverInfo"], "podName");
        (!name.is_empty()).then(|| HeadPod::Named(name.to_owned()))
    }

    fn phase(&self, context: &TaskContext, resource: &Value, now: Timestamp) -> PhaseInfo {
        phase::of(context, resource, &self.config, now)
    }
}

#[cfg(test)]
mod tests;
