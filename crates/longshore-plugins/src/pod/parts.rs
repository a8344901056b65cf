//! The pod of a task for plugins of operators, whose resources hold it in several places.

use longshore_proto::flyteidl2::core::Resources;
use serde_json::{Value, json};

use super::{build, raw::Pod, scheduling};
use crate::{
    config::K8sConfig, context::TaskContext, json::Object, metadata::union, plugin::BuildError,
};

impl Pod {
    /// The pod of a task, for a resource of an operator.
    pub(crate) fn for_operator(
        context: &TaskContext,
        config: &K8sConfig,
    ) -> Result<Self, BuildError> {
        Self::for_role(context, config, None)
    }

    /// The parts for one of several roles, which may have resources of its own.
    pub(crate) fn for_role(
        context: &TaskContext,
        config: &K8sConfig,
        resources: Option<&Resources>,
    ) -> Result<Self, BuildError> {
        let mut pod = build::task_pod(context, config, resources)?;
        scheduling::tolerate_extended_resources(&mut pod.spec, config);
        Ok(pod)
    }

    /// The primary container, which a pod that was built has.
    pub(crate) fn primary(&mut self) -> Result<&mut Object, BuildError> {
        let name = self.primary.clone();
        build::primary(self).ok_or_else(|| {
            BuildError::bad_specification(format!("expected a container {name:?}, found none"))
        })
    }

    /// The primary container under the name that the operator expects.
    pub(crate) fn renamed_primary(&mut self, name: &str) -> Result<&mut Object, BuildError> {
        self.primary()?.insert("name".into(), json!(name));
        name.clone_into(&mut self.primary);
        self.primary()
    }

    /// Labels and annotations of this pod alone.
    pub(crate) fn metadata(&self) -> Value {
        json!({"labels": self.labels, "annotations": self.annotations})
    }

    /// The pod as a template in a resource, with all labels and annotations, which no operator adds.
    pub(crate) fn into_template(self, context: &TaskContext, config: &K8sConfig) -> Value {
        json!({
            "metadata": {
                "labels": union(&config.default_labels, Some(json!(self.labels)), &context.labels),
                "annotations": union(
                    &config.default_annotations,
                    Some(json!(self.annotations)),
                    &context.annotations,
                ),
            },
            "spec": self.spec,
        })
    }
}
