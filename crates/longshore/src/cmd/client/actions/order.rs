//! The TaskAction of `longshore actions run`.

use std::collections::BTreeMap;

use longshore_plugins::{Order, OrderedContainer};

/// The only action of its run, named as the actions service names the root.
const ACTION: &str = "a0";
/// Tasks of this type end with their pod.
const TASK_TYPE: &str = "raw-container";

/// The arguments of `actions create`.
#[derive(Clone, Debug)]
pub(super) struct Command {
    /// The run, which has this action only.
    pub(super) run: String,
    pub(super) image: String,
    /// Program and arguments.
    pub(super) command: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) requests: BTreeMap<String, String>,
    pub(super) retries: u32,
    pub(super) output_base: String,
}

impl Command {
    /// The TaskAction that this command creates.
    pub(super) fn into_order(self, namespace: &str) -> Order {
        let program = self.command.first().map_or("", String::as_str);
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        Order {
            namespace: namespace.to_owned(),
            run: self.run,
            action: ACTION.to_owned(),
            is_root: true,
            task_type: TASK_TYPE.to_owned(),
            task_name: format!("longshore.{program}"),
            short_name: program,
            container: Some(OrderedContainer {
                image: self.image,
                command: self.command,
                env: self.env,
                requests: self.requests,
                ..OrderedContainer::default()
            }),
            retries: self.retries,
            output_base: self.output_base,
            ..Order::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::flyte::TaskActionSpec;
    use longshore_proto::flyteidl2::core::{TaskTemplate, TypedInterface, task_template::Target};
    use prost::Message;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_action_is_called_after_its_program() {
        let command = Command {
            run: "hello".to_owned(),
            image: "busybox".to_owned(),
            command: vec!["/bin/echo".to_owned(), "hi".to_owned()],
            env: Vec::new(),
            requests: BTreeMap::new(),
            retries: 2,
            output_base: "file:///tmp/x".to_owned(),
        };
        let order = command.into_order("flyte");
        assert_eq!(order.name(), "hello-a0");
        assert_eq!(order.short_name, "echo");
        assert_eq!(order.task_name, "longshore.echo");
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
