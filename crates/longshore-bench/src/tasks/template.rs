//! What the actions of a measurement are.

use std::path::Path;

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use kube::api::DynamicObject;
use longshore_api::flyte::{GROUP, KIND, VERSION};
use longshore_proto::flyteidl2::core::{
    Container, Identifier, ResourceType, TaskMetadata, TaskTemplate, task_template::Target,
};
use longshore_test::{flyte::outputs, scripted_node::ANNOTATION_SCRIPT};
use prost::Message;
use serde_json::{Value, json};

/// The script of most pods.
pub(super) const ENDS_AT_ONCE: &str = "run 0s exit 0";

/// What the actions of a measurement have in common.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// The task, as the resource has it.
    task: String,
    /// Below it are inputs and outputs, as a URL.
    store: String,
}

impl Template {
    /// Tasks without outputs and without a cache.
    pub(crate) fn plain() -> Self {
        Self::of(&task(), "file:///nowhere".to_owned())
    }

    /// Tasks whose outputs are left in this folder, and cached, with a reservation.
    pub(crate) fn cached(folder: &Path) -> Self {
        let mut task = task();
        task.metadata = Some(TaskMetadata {
            discoverable: true,
            cache_serializable: true,
            ..TaskMetadata::default()
        });
        task.interface = Some(outputs::interface());
        if let Some(Target::Container(container)) = &mut task.target {
            container.args = outputs::arguments();
        }
        Self::of(&task, format!("file://{}", folder.display()))
    }

    fn of(task: &TaskTemplate, store: String) -> Self {
        Self {
            task: BASE64_STANDARD.encode(task.encode_to_vec()),
            store,
        }
    }

    /// An action whose container the node plays by this script.
    pub(super) fn action(&self, name: &str, script: &str) -> Result<DynamicObject> {
        let object: Value = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": KIND,
            "metadata": {"name": name, "annotations": {ANNOTATION_SCRIPT: script}},
            "spec": {
                "runName": "bench",
                "project": "bench",
                "domain": "development",
                "actionName": name,
                "taskType": "container",
                "cacheKey": name,
                "taskTemplate": self.task,
                "inputUri": format!("{}/inputs.pb", self.store),
                "runOutputBase": self.store,
            },
        });
        Ok(serde_json::from_value(object)?)
    }
}

fn task() -> TaskTemplate {
    TaskTemplate {
        id: Some(Identifier {
            resource_type: ResourceType::Task.into(),
            project: "bench".to_owned(),
            domain: "development".to_owned(),
            name: "noop".to_owned(),
            version: "v1".to_owned(),
            ..Identifier::default()
        }),
        r#type: "container".to_owned(),
        target: Some(Target::Container(Container {
            image: "noop".to_owned(),
            command: vec!["true".to_owned()],
            ..Container::default()
        })),
        ..TaskTemplate::default()
    }
}
