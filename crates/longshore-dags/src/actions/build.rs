//! The TaskAction of a launch of a task instance: a function of the rows and the DAG that the run is pinned to.

use std::collections::BTreeMap;

use longshore_api::dags;
use longshore_plugins::{Order, OrderedContainer};
use serde_json::{Map, Value, json};

use crate::{
    airflow::names,
    model::PluginTask,
    pods::{
        build::{
            BuildError, BuildInput, annotations, context, params, render, render_all, task_labels,
        },
        template::Context,
    },
    scheduler::identity::{action_name, action_run},
};

/// The word for a pod of one container.
const TYPE_POD: &str = "pod";
/// What Flyte calls a task that is one container and ends with its pod.
const TYPE_RAW_CONTAINER: &str = "raw-container";
/// Where inputs and outputs would be: no outputs are declared, so nothing is read or written there.
const OUTPUT_BASE: &str = "file:///tmp/longshore/actions";

/// The TaskAction of the current launch of a task instance.
///
/// # Errors
/// A template of the task cannot be filled in.
pub fn build_action(input: &BuildInput<'_>, plugin: &PluginTask) -> Result<Value, BuildError> {
    let (task, row) = (input.task, input.task_instance);
    let params = params(input);
    let context = context(input, &params);
    let task_type = match plugin.task_type.as_str() {
        TYPE_POD => TYPE_RAW_CONTAINER,
        other => other,
    };
    let order = Order {
        namespace: input.config.namespace.clone(),
        run: action_run(&row.key.run),
        action: action_name(&row.id, row.launch),
        is_root: false,
        task_type: task_type.to_owned(),
        short_name: task.task_id.clone(),
        task_name: format!("{}.{}", row.key.run.dag_id, task.task_id),
        container: container(input, plugin, &context)?,
        config: render_map(&plugin.config, &context, "config")?,
        custom: match &plugin.custom {
            Some(custom) => Some(render_json(custom, &context)?),
            None => None,
        },
        retries: plugin.retries,
        interruptible: plugin.interruptible,
        output_base: OUTPUT_BASE.to_owned(),
    };
    let mut action = order.build();
    let metadata = &mut action["metadata"];
    metadata["annotations"] = json!(annotations(input));
    for (key, value) in task_labels(input) {
        metadata["labels"][key] = value.into();
    }
    metadata["labels"][dags::LABEL_SCHEDULER] =
        names::label_value(&input.config.scheduler_id).into();
    Ok(action)
}

/// `None` where the task says nothing of one: then the plugin knows from its own settings.
fn container(
    input: &BuildInput<'_>,
    plugin: &PluginTask,
    context: &Context<'_>,
) -> Result<Option<OrderedContainer>, BuildError> {
    let task = input.task;
    if task.image.is_none() && task.command.is_empty() && task.args.is_empty() {
        return Ok(None);
    }
    let image = task.image.as_ref().unwrap_or(&input.config.image);
    Ok(Some(OrderedContainer {
        image: image.clone(),
        command: render_all(&task.command, context, "command")?,
        args: render_all(&task.args, context, "args")?,
        env: env(input, context)?,
        requests: plugin.requests.clone(),
        limits: plugin.limits.clone(),
    }))
}

/// Ours first: where names meet, the last one counts.
fn env(input: &BuildInput<'_>, context: &Context<'_>) -> Result<Vec<(String, String)>, BuildError> {
    let try_number = context.try_number.to_string();
    let ours = [
        (dags::ENV_DAG_ID, context.dag_id),
        (dags::ENV_RUN_ID, context.run_id),
        (dags::ENV_TASK_ID, context.task_id),
        (dags::ENV_TRY_NUMBER, &try_number),
    ];
    let mut env: Vec<_> = ours
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    for variable in &input.task.env {
        let text = |field: &str| variable.get(field).and_then(Value::as_str);
        let (name, value) = (text("name").unwrap_or_default(), text("value"));
        let value = render(value.unwrap_or_default(), context, || {
            format!("variable `{name}`")
        })?;
        env.push((name.to_owned(), value));
    }
    Ok(env)
}

fn render_map(
    texts: &BTreeMap<String, String>,
    context: &Context<'_>,
    field: &str,
) -> Result<BTreeMap<String, String>, BuildError> {
    let rendered = texts.iter().map(|(key, text)| {
        let text = render(text, context, || format!("`{key}` in `{field}`"))?;
        Ok((key.clone(), text))
    });
    rendered.collect()
}

/// All texts in an object.
fn render_json(value: &Value, context: &Context<'_>) -> Result<Value, BuildError> {
    Ok(match value {
        Value::String(text) => render(text, context, || "`custom`".to_owned())?.into(),
        Value::Array(items) => {
            let items = items.iter().map(|item| render_json(item, context));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| Ok((key.clone(), render_json(value, context)?)));
            Value::Object(fields.collect::<Result<Map<_, _>, BuildError>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

#[cfg(test)]
mod tests;
