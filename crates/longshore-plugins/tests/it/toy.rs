//! A small plugin: a task type `job` that runs as a Job of Kubernetes, which an abort suspends and keeps.

use jiff::Timestamp;
use longshore_core::{Resource, Scope};
use longshore_plugins::{
    AbortBehavior, BuildError, ErrorKind, Phase, PhaseInfo, Plugin, PluginProperties, TaskContext,
};
use longshore_proto::flyteidl2::core::task_template::Target;
use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct JobPlugin;

impl Plugin for JobPlugin {
    fn id(&self) -> &'static str {
        "job"
    }

    fn task_types(&self) -> &'static [&'static str] {
        &["job"]
    }

    fn resource(&self) -> Resource {
        Resource {
            group: "batch",
            version: "v1",
            kind: "Job",
            plural: "jobs",
            scope: Scope::Namespaced,
        }
    }

    /// A Job that has ended uses nothing, and one that an abort has kept outlives its TaskAction.
    fn properties(&self) -> PluginProperties {
        PluginProperties {
            disable_inject_owner_references: true,
            disable_delete_resource_on_finalize: true,
            // Kubernetes copies the name into a label of the pods.
            generated_name_max_length: Some(63),
            ..PluginProperties::default()
        }
    }

    fn build(&self, context: &TaskContext) -> Result<Value, BuildError> {
        let Some(Target::Container(container)) = &context.template.target else {
            return Err(BuildError::bad_specification(
                "expected a template with a container",
            ));
        };
        Ok(json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {
                // Attempts are the executor's to count.
                "backoffLimit": 0,
                "template": {
                    "metadata": {"labels": context.labels, "annotations": context.annotations},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{
                            "name": "main",
                            "image": container.image,
                            "command": container.command,
                            "args": container.args,
                        }],
                    },
                },
            },
        }))
    }

    fn phase(&self, _: &TaskContext, job: &Value, _: Timestamp) -> PhaseInfo {
        let status = &job["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        for condition in conditions.filter(|condition| condition["status"] == "True") {
            let message = condition["message"].as_str().unwrap_or_default();
            match condition["type"].as_str() {
                Some("Complete") => return PhaseInfo::of(Phase::Success, ""),
                Some("Failed") => {
                    return PhaseInfo::retryable(ErrorKind::User, "JobFailed", message);
                }
                _ => {}
            }
        }
        match status["ready"].as_i64() {
            Some(1..) => PhaseInfo::of(Phase::Running, ""),
            _ => PhaseInfo::of(Phase::Queued, "waiting for the pod of the job"),
        }
    }

    /// Kubernetes ends the pod of a Job that is suspended; people can still look at the Job.
    fn on_abort(&self, _: &TaskContext, _: &Value) -> AbortBehavior {
        AbortBehavior::patch(json!({"spec": {"suspend": true}})).or_delete()
    }
}
