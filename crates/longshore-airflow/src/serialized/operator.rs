//! A task as its DAG file describes it: an operator.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    error::Unreadable,
    params::Params,
    record::{Json, record},
    settings::{Settings, SettingsAndMore},
    value::Var,
    xcom::ExpandInput,
};
use crate::pointer::Place;

record! {
    /// Members of a task.
    pub struct Operator {
        /// Its id, with those of its groups before it: `group.task`.
        "task_id" needs task_id: String,
        /// The Python class.
        "task_type" needs task_type: String,
        /// The Python module of the class.
        "_task_module" needs task_module: String,
        /// What the page shows for the class, where it is not its name: `@task`.
        "_operator_name" may operator_name: String,
        /// What the page shows for the id.
        "_task_display_name" may display_name: String,
        /// Colour of the page.
        "ui_color" may ui_color: String,
        /// Colour of text on the page.
        "ui_fgcolor" may ui_fgcolor: String,
        /// Members that are templates. They are kept as they are, in `rest`.
        "template_fields" may template_fields: Vec<String>,
        /// Ends of names of files that are templates.
        "template_ext" may template_ext: Vec<Value>,
        /// How the page shows templates.
        "template_fields_renderers" may template_fields_renderers: BTreeMap<String, Value>,
        /// Tasks directly after this one, sorted.
        "downstream_task_ids" may downstream_task_ids: Vec<String>,
        /// Parameters: those of the DAG too.
        "params" may params: Params,
        /// Links of the page: names and the keys of XCom values.
        "_operator_extra_links" may extra_links: Value,
        /// Name of the logger.
        "_logger_name" may logger_name: String,
        /// Whether it is in a mapped task group.
        "_needs_expansion" may needs_expansion: bool,
        /// Whether it is mapped itself.
        "_is_mapped" may is_mapped: bool,
        /// Whether it waits for something.
        "_is_sensor" may is_sensor: bool,
        /// For sensors: whether it gives its slot back between two looks.
        "reschedule" may reschedule: bool,
        /// Whether it does nothing, so that it needs no worker.
        "_is_empty" may is_empty: bool,
        /// Whether it may skip tasks after it.
        "_can_skip_downstream" may can_skip_downstream: bool,
        /// Name of the Python function.
        "python_callable_name" may python_callable_name: String,
        /// For mapped tasks: the arguments that are the same for all instances.
        "partial_kwargs" may partial_kwargs: SettingsAndMore,
        /// For mapped tasks: whether an argument must not be in both `partial_kwargs` and what is mapped over.
        "_disallow_kwargs_override" may disallow_kwargs_override: bool,
        /// For mapped tasks: which of the next two members is used.
        "_expand_input_attr" may expand_input_attr: String,
        /// What a mapped task of a classic operator is mapped over.
        "expand_input" may expand_input: ExpandInput,
        /// What a mapped task of a decorated function is mapped over.
        "op_kwargs_expand_input" may op_kwargs_expand_input: ExpandInput,
        /// Whether it waits for its trigger before its worker is started.
        "start_from_trigger" may start_from_trigger: bool,
        /// That trigger.
        "start_trigger_args" may start_trigger_args: StartTriggerArgs,
        flat {
            /// What every task may have.
            settings: Settings,
        }
    }
}

record! {
    /// The trigger that a task waits for before it has a worker.
    pub struct StartTriggerArgs {
        /// Import path of its class.
        "trigger_cls" needs trigger_cls: String,
        /// Its arguments: a `dict`.
        "trigger_kwargs" may trigger_kwargs: Var,
        /// The method of the operator that goes on.
        "next_method" needs next_method: String,
        /// Arguments of that method: a `dict`.
        "next_kwargs" may next_kwargs: Var,
        /// How long it waits.
        "timeout" may timeout: super::time::Seconds,
    }
}

impl Operator {
    /// What it is mapped over; `None` where it is not mapped itself.
    #[must_use]
    pub fn expansion(&self) -> Option<&ExpandInput> {
        if self.is_mapped != Some(true) {
            return None;
        }
        match self.expand_input_attr.as_deref() {
            Some("op_kwargs_expand_input") => self.op_kwargs_expand_input.as_ref(),
            _ => self.expand_input.as_ref(),
        }
    }

    /// The tasks directly after it.
    pub fn downstream(&self) -> impl Iterator<Item = &str> {
        self.downstream_task_ids
            .iter()
            .flatten()
            .map(String::as_str)
    }
}

/// An item of `tasks`: `{"__type": "operator", "__var": {…}}`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task(pub(super) Operator);

impl Json for Task {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let is_operator = value["__type"] == "operator";
        let Value::Object(mut object) = value else {
            return Err(Unreadable::form(at, "a task", &value));
        };
        let content = object
            .remove("__var")
            .filter(|_| is_operator && object.len() == 1);
        let Some(mut content) = content else {
            let expected = "an object of `__type: operator` and `__var`";
            return Err(Unreadable::form(at, expected, &object.into()));
        };
        // A template of the operator's own may have the name of a member of ours, and any form.
        let templates = take_templates(&mut content);
        let mut operator = Operator::read(content, &at.member("__var"))?;
        operator.rest.extend(templates);
        Ok(Self(operator))
    }

    fn write(&self) -> Value {
        json!({"__type": "operator", "__var": self.0.write()})
    }
}

/// What an operator is known by, whatever else it uses it for.
const NEVER_TEMPLATES: [&str; 4] = ["task_id", "task_type", "_task_module", "template_fields"];

fn take_templates(operator: &mut Value) -> Map<String, Value> {
    let names = operator["template_fields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let Some(members) = operator.as_object_mut() else {
        return Map::new();
    };
    let names = names.iter().filter_map(Value::as_str);
    let names = names.filter(|name| !NEVER_TEMPLATES.contains(name));
    names
        .filter_map(|name| members.remove_entry(name))
        .collect()
}
