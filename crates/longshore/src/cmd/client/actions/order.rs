//! The TaskAction of a command: made here as the actions service makes those of the SDK. Pure.

use base64::{Engine, engine::general_purpose::STANDARD};
use longshore_api::flyte::{
    self, ACTION_TYPE_TASK, LABEL_FLYTE_ACTION, LABEL_FLYTE_ACTION_TYPE, LABEL_FLYTE_DOMAIN,
    LABEL_FLYTE_IS_ROOT, LABEL_FLYTE_PROJECT, LABEL_FLYTE_RUN,
};
use longshore_core::Resource;
use longshore_proto::flyteidl2::core::{
    Container, Identifier, KeyValuePair, ResourceType, Resources, RetryStrategy, TaskMetadata,
    TaskTemplate, TypedInterface,
    resources::{ResourceEntry, ResourceName},
    task_template::Target,
};
use prost::Message;
use serde_json::{Value, json};

/// The only action of its run, named as the actions service names the root.
const ACTION: &str = "a0";
const PROJECT: &str = "default";
const DOMAIN: &str = "development";
/// Tasks of this type end with their pod.
const TASK_TYPE: &str = "raw-container";
/// Longest `shortName`.
const MAX_SHORT_NAME: usize = 63;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// The run, which has this action only.
    pub(super) run: String,
    pub(super) image: String,
    /// Program and arguments.
    pub(super) command: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) requests: Vec<(ResourceName, String)>,
    pub(super) retries: u32,
    pub(super) output_base: String,
}

/// The name of the TaskAction.
pub(super) fn name(run: &str) -> String {
    format!("{run}-{ACTION}")
}

/// The TaskAction.
pub(super) fn build(order: &Order, namespace: &str) -> Value {
    let program = order.command.first().map_or("", String::as_str);
    let program = program.rsplit('/').next().unwrap_or_default();
    let short_name: String = program.chars().take(MAX_SHORT_NAME).collect();
    let base = order.output_base.trim_end_matches('/');
    let run = &order.run;
    json!({
        "apiVersion": Resource::TASK_ACTION.api_version(),
        "kind": flyte::KIND,
        "metadata": {
            "name": name(run),
            "namespace": namespace,
            "labels": {
                (LABEL_FLYTE_PROJECT): PROJECT,
                (LABEL_FLYTE_DOMAIN): DOMAIN,
                (LABEL_FLYTE_RUN): run,
                (LABEL_FLYTE_ACTION): ACTION,
                (LABEL_FLYTE_ACTION_TYPE): ACTION_TYPE_TASK,
                (LABEL_FLYTE_IS_ROOT): flyte::TRUE,
            },
        },
        "spec": {
            "runName": run,
            "project": PROJECT,
            "domain": DOMAIN,
            "actionName": ACTION,
            "taskType": TASK_TYPE,
            "shortName": short_name,
            "inputUri": format!("{base}/{run}/inputs"),
            "runOutputBase": format!("{base}/{run}/"),
            "taskTemplate": STANDARD.encode(template(order, &short_name).encode_to_vec()),
        },
    })
}

/// No outputs are declared: the action ends with its pod, and no store is needed.
fn template(order: &Order, short_name: &str) -> TaskTemplate {
    let requests = order.requests.iter().map(|(name, value)| ResourceEntry {
        name: (*name).into(),
        value: value.clone(),
    });
    let env = order.env.iter().map(|(key, value)| KeyValuePair {
        key: key.clone(),
        value: value.clone(),
    });
    TaskTemplate {
        id: Some(Identifier {
            resource_type: ResourceType::Task.into(),
            project: PROJECT.to_owned(),
            domain: DOMAIN.to_owned(),
            name: format!("longshore.{short_name}"),
            version: order.run.clone(),
            org: String::new(),
        }),
        r#type: TASK_TYPE.to_owned(),
        metadata: Some(TaskMetadata {
            retries: Some(RetryStrategy {
                retries: order.retries,
                ..RetryStrategy::default()
            }),
            ..TaskMetadata::default()
        }),
        interface: Some(TypedInterface::default()),
        target: Some(Target::Container(Container {
            image: order.image.clone(),
            command: order.command.clone(),
            env: env.collect(),
            resources: Some(Resources {
                requests: requests.collect(),
                limits: Vec::new(),
            }),
            ..Container::default()
        })),
        ..TaskTemplate::default()
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::flyte::TaskActionSpec;

    use super::*;

    fn order() -> Order {
        Order {
            run: "hello".to_owned(),
            image: "busybox".to_owned(),
            command: vec!["/bin/echo".to_owned(), "hi".to_owned()],
            env: vec![("A".to_owned(), "b".to_owned())],
            requests: vec![(ResourceName::Cpu, "100m".to_owned())],
            retries: 2,
            output_base: "file:///tmp/x/".to_owned(),
        }
    }

    #[test]
    fn an_order_becomes_an_action_with_everything_that_is_required() {
        let object = build(&order(), "flyte");
        assert_eq!(object["metadata"]["name"], "hello-a0");
        assert_eq!(object["metadata"]["namespace"], "flyte");
        assert_eq!(object["metadata"]["labels"]["flyte.org/is-root"], "true");
        let spec = TaskActionSpec::of(&object).unwrap();
        assert_eq!(spec.short_name, "echo");
        assert_eq!(spec.run_output_base, "file:///tmp/x/hello/");
        assert_eq!(spec.input_uri, "file:///tmp/x/hello/inputs");
        let template = TaskTemplate::decode(spec.task_template.as_slice()).unwrap();
        assert_eq!(template.metadata.unwrap().retries.unwrap().retries, 2);
        let Some(Target::Container(container)) = template.target else {
            panic!("expected a container");
        };
        assert_eq!(container.command, ["/bin/echo", "hi"]);
        assert_eq!(container.env[0].value, "b");
        assert_eq!(container.resources.unwrap().requests.len(), 1);
    }

    /// The template of the example, which its comment shows in clear.
    #[test]
    fn the_example_has_the_template_that_its_comment_says() {
        let text = include_str!("../../../../../../examples/taskaction.yaml");
        let object: Value = serde_saphyr::from_str(text).unwrap();
        let spec = TaskActionSpec::of(&object).unwrap();
        let template = TaskTemplate::decode(spec.task_template.as_slice()).unwrap();
        assert_eq!(template.r#type, spec.task_type);
        let Some(Target::Container(container)) = &template.target else {
            panic!("expected a container");
        };
        let image = format!("#     image: {}", container.image);
        assert!(text.contains(&image), "{image}");
        let command = json!(container.command)
            .to_string()
            .replace("\",\"", "\", \"");
        assert!(
            text.contains(&format!("#     command: {command}")),
            "{command}"
        );
        let name = template.id.unwrap().name;
        assert!(text.contains(&format!("name: {name}")), "{name}");
        assert_eq!(template.interface, Some(TypedInterface::default()));
    }
}
