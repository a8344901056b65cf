//! A TaskAction that a command or a DAG creates: as the actions service makes those of the SDK.

use std::collections::BTreeMap;

use longshore_api::flyte::{
    self, ACTION_TYPE_TASK, LABEL_FLYTE_ACTION, LABEL_FLYTE_ACTION_TYPE, LABEL_FLYTE_DOMAIN,
    LABEL_FLYTE_IS_ROOT, LABEL_FLYTE_PROJECT, LABEL_FLYTE_RUN, TaskActionSpec,
};
use longshore_proto::flyteidl2::core::{
    Container, Identifier, KeyValuePair, ResourceType, Resources, RetryStrategy, TaskMetadata,
    TaskTemplate, TypedInterface,
    resources::{ResourceEntry, ResourceName},
    task_metadata::InterruptibleValue,
    task_template::Target,
};
use prost::Message;
use serde_json::{Value, json};

use crate::{TASK_ACTION, proto_json::struct_from_json};

const PROJECT: &str = "default";
const DOMAIN: &str = "development";
/// Longest `shortName`.
const MAX_SHORT_NAME: usize = 63;
/// The resources of a container that Flyte has names for.
const RESOURCES: [(&str, ResourceName); 4] = [
    ("cpu", ResourceName::Cpu),
    ("memory", ResourceName::Memory),
    ("gpu", ResourceName::Gpu),
    ("ephemeral-storage", ResourceName::EphemeralStorage),
];

/// The content of a new TaskAction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    /// The namespace of the TaskAction.
    pub namespace: String,
    /// The run, 1 to 30 characters.
    pub run: String,
    /// The action, 1 to 30 characters, unique in its run.
    pub action: String,
    /// Whether the run is this action.
    pub is_root: bool,
    /// Selects the plugin.
    pub task_type: String,
    /// For people; cut to 63 characters.
    pub short_name: String,
    /// The name in the template's id.
    pub task_name: String,
    /// What runs; `None` where the plugin knows from `config` and `custom`.
    pub container: Option<OrderedContainer>,
    /// Settings of the plugin that are texts.
    pub config: BTreeMap<String, String>,
    /// Settings of the plugin that are an object.
    pub custom: Option<Value>,
    /// Further attempts after a failure.
    pub retries: u32,
    /// Whether it may run on machines that go away; `None` leaves that to the plugin's configuration.
    pub interruptible: Option<bool>,
    /// URL below which inputs and outputs are.
    pub output_base: String,
}

/// The container of an [`Order`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrderedContainer {
    /// Its image.
    pub image: String,
    /// Its entrypoint.
    pub command: Vec<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables, in order.
    pub env: Vec<(String, String)>,
    /// What it needs, by the words of [`Order::resources`].
    pub requests: BTreeMap<String, String>,
    /// What it gets at most, by the same words.
    pub limits: BTreeMap<String, String>,
}

impl Order {
    /// The words for what a container can ask for.
    pub fn resources() -> impl Iterator<Item = &'static str> {
        RESOURCES.into_iter().map(|(word, _)| word)
    }

    /// The name of the TaskAction.
    pub fn name(&self) -> String {
        format!("{}-{}", self.run, self.action)
    }

    /// The TaskAction. No outputs are declared: the action ends with its resource, and no store is needed.
    pub fn build(&self) -> Value {
        let base = self.output_base.trim_end_matches('/');
        let spec = TaskActionSpec {
            run_name: self.run.clone(),
            project: PROJECT.to_owned(),
            domain: DOMAIN.to_owned(),
            action_name: self.action.clone(),
            task_type: self.task_type.clone(),
            short_name: self.short_name.chars().take(MAX_SHORT_NAME).collect(),
            input_uri: format!("{base}/{}/inputs", self.run),
            run_output_base: format!("{base}/{}/", self.run),
            task_template: self.template().encode_to_vec(),
            ..TaskActionSpec::default()
        };
        json!({
            "apiVersion": TASK_ACTION.api_version(),
            "kind": flyte::KIND,
            "metadata": {
                "name": self.name(),
                "namespace": self.namespace,
                "labels": {
                    (LABEL_FLYTE_PROJECT): PROJECT,
                    (LABEL_FLYTE_DOMAIN): DOMAIN,
                    (LABEL_FLYTE_RUN): self.run,
                    (LABEL_FLYTE_ACTION): self.action,
                    (LABEL_FLYTE_ACTION_TYPE): ACTION_TYPE_TASK,
                    (LABEL_FLYTE_IS_ROOT): self.is_root.to_string(),
                },
            },
            "spec": spec,
        })
    }

    fn template(&self) -> TaskTemplate {
        TaskTemplate {
            id: Some(Identifier {
                resource_type: ResourceType::Task.into(),
                project: PROJECT.to_owned(),
                domain: DOMAIN.to_owned(),
                name: self.task_name.clone(),
                version: self.run.clone(),
                org: String::new(),
            }),
            r#type: self.task_type.clone(),
            metadata: Some(TaskMetadata {
                retries: Some(RetryStrategy {
                    retries: self.retries,
                    ..RetryStrategy::default()
                }),
                interruptible_value: self.interruptible.map(InterruptibleValue::Interruptible),
                ..TaskMetadata::default()
            }),
            interface: Some(TypedInterface::default()),
            custom: self.custom.as_ref().map(struct_from_json),
            config: self.config.clone().into_iter().collect(),
            target: self
                .container
                .as_ref()
                .map(|it| Target::Container(it.to_proto())),
            ..TaskTemplate::default()
        }
    }
}

impl OrderedContainer {
    fn to_proto(&self) -> Container {
        let env = self.env.iter().map(|(key, value)| KeyValuePair {
            key: key.clone(),
            value: value.clone(),
        });
        Container {
            image: self.image.clone(),
            command: self.command.clone(),
            args: self.args.clone(),
            env: env.collect(),
            resources: Some(Resources {
                requests: amounts(&self.requests),
                limits: amounts(&self.limits),
            }),
            ..Container::default()
        }
    }
}

/// The amounts of what Flyte has a name for.
fn amounts(wanted: &BTreeMap<String, String>) -> Vec<ResourceEntry> {
    let known = RESOURCES.into_iter().filter_map(|(word, name)| {
        let value = wanted.get(word)?.clone();
        Some(ResourceEntry {
            name: name.into(),
            value,
        })
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use longshore_api::flyte::TaskActionSpec;

    use super::*;

    fn order() -> Order {
        Order {
            namespace: "flyte".to_owned(),
            run: "hello".to_owned(),
            action: "a0".to_owned(),
            is_root: true,
            task_type: "raw-container".to_owned(),
            short_name: "echo".repeat(20),
            task_name: "longshore.echo".to_owned(),
            container: Some(OrderedContainer {
                image: "busybox".to_owned(),
                command: vec!["/bin/echo".to_owned(), "hi".to_owned()],
                env: vec![("A".to_owned(), "b".to_owned())],
                requests: BTreeMap::from([("cpu".to_owned(), "100m".to_owned())]),
                ..OrderedContainer::default()
            }),
            config: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            custom: Some(json!({"executorPath": "python", "n": [1, 2.5, null]})),
            retries: 2,
            interruptible: Some(false),
            output_base: "file:///tmp/x/".to_owned(),
        }
    }

    #[test]
    fn an_order_becomes_an_action_with_everything_that_is_required() {
        let object = order().build();
        assert_eq!(object["metadata"]["name"], "hello-a0");
        assert_eq!(object["metadata"]["namespace"], "flyte");
        assert_eq!(object["metadata"]["labels"]["flyte.org/is-root"], "true");
        let spec = TaskActionSpec::of(&object).unwrap();
        assert_eq!(spec.short_name.len(), MAX_SHORT_NAME);
        assert_eq!(spec.run_output_base, "file:///tmp/x/hello/");
        assert_eq!(spec.input_uri, "file:///tmp/x/hello/inputs");
        let template = TaskTemplate::decode(spec.task_template.as_slice()).unwrap();
        assert_eq!(template, order().template());
        let metadata = template.metadata.unwrap();
        assert_eq!(metadata.retries.unwrap().retries, 2);
        assert_eq!(template.config["a"], "b");
        let custom = crate::proto_json::to_json(&template.custom.unwrap());
        assert_eq!(custom, order().custom.unwrap());
        let Some(Target::Container(container)) = template.target else {
            panic!("expected a container");
        };
        assert_eq!(container.command, ["/bin/echo", "hi"]);
        assert_eq!(container.env[0].value, "b");
        assert_eq!(container.resources.unwrap().requests.len(), 1);
    }
}
