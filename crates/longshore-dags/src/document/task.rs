//! The fields of a task, and their defaults.

use std::time::Duration;

use longshore_store::DEFAULT_POOL;
use serde_json::{Map, Value, json};

use super::{
    node::{Key, Kind, Node, Span},
    plugin::{self, PluginFields},
    pod_override,
    problem::Code,
    reader::{Located, Object, Reader},
    suggest::quoted,
};
use crate::model::{DEFAULT_RETRY_DELAY, Task, TriggerRule, WeightRule};

const FIELDS: [&str; 18] = [
    "image",
    "command",
    "args",
    "env",
    "depends_on",
    "retries",
    "retry_delay",
    "retry_exponential_backoff",
    "max_retry_delay",
    "execution_timeout",
    "trigger_rule",
    "pool",
    "pool_slots",
    "priority_weight",
    "weight_rule",
    "max_active_tis_per_dag",
    "executor_config",
    "plugin",
];

/// Words that people write out of habit, and what to write here.
const HABITS: [(&str, &str); 11] = [
    ("script", "write `command: [\"sh\", \"-c\", \"…\"]`"),
    ("bash_command", "write `command: [\"bash\", \"-c\", \"…\"]`"),
    ("cmds", "write `command`, a list"),
    ("arguments", "write `args`, a list"),
    ("upstream", "write `depends_on`"),
    ("needs", "write `depends_on`"),
    ("timeout", "write `execution_timeout`"),
    ("pod_override", "write it under `executor_config`"),
    ("config", "write it under `plugin`"),
    ("custom", "write it under `plugin`"),
    (
        "resources",
        "write it under `plugin`, or in the container of `executor_config.pod_override`",
    ),
];

const LIST_HELP: &str =
    "write a list, as `[\"python\", \"main.py\"]`; for a shell line `[\"sh\", \"-c\", \"…\"]`";

/// Longest id of a DAG or a task, as Airflow's database has it.
const LONGEST_ID: usize = 250;

/// A task as it is written; `None` is what the file does not say.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskFields {
    image: Option<String>,
    pub(super) command: Option<Vec<Located>>,
    pub(super) args: Option<Vec<Located>>,
    pub(super) env: Option<Vec<EnvVar>>,
    pub(super) depends_on: Option<Vec<Located>>,
    retries: Option<u32>,
    retry_delay: Option<Duration>,
    retry_exponential_backoff: Option<f64>,
    max_retry_delay: Option<Duration>,
    execution_timeout: Option<Duration>,
    trigger_rule: Option<TriggerRule>,
    pool: Option<String>,
    pool_slots: Option<u32>,
    priority_weight: Option<i64>,
    weight_rule: Option<WeightRule>,
    max_active_tis_per_dag: Option<u32>,
    pod_override: Option<Value>,
    pub(super) plugin: Option<PluginFields>,
}

/// An environment variable: the Kubernetes object, and its value where that is a text.
#[derive(Clone, Debug)]
pub(super) struct EnvVar {
    object: Value,
    pub(super) value: Option<Located>,
}

/// Reports an id that Airflow does not allow.
pub(super) fn check_id(reader: &mut Reader<'_>, what: &str, id: &str, span: Span) -> bool {
    let is_allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    let n_chars = id.chars().count();
    let mut help = format!("use letters, digits, `-`, `.` and `_`, at most {LONGEST_ID} of them");
    let why = if id.is_empty() {
        "is empty".to_owned()
    } else if matches!(id, "." | "..") {
        // Clients resolve it away in the paths of the HTTP API.
        "use a letter or a digit too".clone_into(&mut help);
        "is the path of a folder".to_owned()
    } else if n_chars > LONGEST_ID {
        format!("has {n_chars} characters")
    } else if let Some(c) = id.chars().find(|c| !is_allowed(*c)) {
        format!("contains `{}`", c.escape_debug())
    } else {
        return true;
    };
    let message = format!("{what} `{}` {why}", quoted(id));
    reader.report(Code::InvalidId, span, message, help);
    false
}

/// Reads `default_args`: any field of a task except what it waits for.
pub(super) fn read_defaults(reader: &mut Reader<'_>, node: &Node) -> Option<TaskFields> {
    let known: Vec<&str> = FIELDS
        .into_iter()
        .filter(|name| *name != "depends_on")
        .collect();
    let extra = [(
        "depends_on",
        "write it at each task: no task can wait for all",
    )];
    let object = reader.object("`default_args`".to_owned(), node, &known, &extra)?;
    Some(read_fields(reader, &object))
}

/// Reads a task. What it does not say comes from the defaults.
pub(super) fn read(
    reader: &mut Reader<'_>,
    key: &Key,
    node: &Node,
    defaults: &TaskFields,
) -> TaskFields {
    let place = format!("task `{}`", quoted(&key.text));
    if node.is_null() {
        let fields = defaults.clone();
        require_something_to_run(reader, &place, key.span, &fields);
        return fields;
    }
    let Some(object) = reader.object(place, node, &FIELDS, &HABITS) else {
        return TaskFields::default();
    };
    let mut fields = read_fields(reader, &object);
    fields.depends_on = object.read("depends_on", |what, node| {
        read_depends_on(reader, what, node)
    });
    if let (Some(_), Some(config)) = (&fields.plugin, object.get("executor_config")) {
        let message = format!("{} has both `plugin` and `executor_config`", object.place);
        let help = "remove one of them: a plugin makes its own pods, and reads `plugin.custom`";
        reader.report(Code::InvalidValue, config.span, message, help);
    }
    let fields = fields.or(defaults);
    if fields.plugin.is_some() && fields.env.iter().flatten().any(|it| it.value.is_none()) {
        let span = object.get("env").map_or(key.span, |node| node.span);
        let message = format!(
            "`env` of {} has a variable without a plain value",
            object.place
        );
        let help = "write `NAME: value`: the container of a plugin takes no `valueFrom`";
        reader.report(Code::InvalidValue, span, message, help);
    }
    // A field that is there but wrong is reported already.
    if !["image", "command", "executor_config", "plugin"]
        .iter()
        .any(|name| object.get(name).is_some())
        || fields.plugin.is_some()
    {
        require_something_to_run(reader, &object.place, key.span, &fields);
    }
    fields
}

fn require_something_to_run(reader: &mut Reader<'_>, place: &str, span: Span, fields: &TaskFields) {
    if fields.image.is_some() || fields.command.is_some() {
        return;
    }
    let help = match &fields.plugin {
        Some(plugin) if plugin.task.custom.is_some() || !plugin.task.config.is_empty() => return,
        Some(_) => "write `image` and `command`, or what its plugin wants in `plugin.custom`",
        None if fields.pod_override.is_some() => return,
        None => "write `command` (it runs on this machine), `image`, or both",
    };
    let message = format!("{place} says nothing to run");
    reader.report(Code::MissingField, span, message, help);
}

fn read_fields(reader: &mut Reader<'_>, object: &Object<'_>) -> TaskFields {
    let trigger_rules = TriggerRule::ALL.map(|rule| (rule.as_str(), rule));
    let weight_rules = WeightRule::ALL.map(|rule| (rule.as_str(), rule));
    let weights = i64::from(i32::MIN)..=i64::from(i32::MAX);
    let from_0 = || 0..=i64::from(i32::MAX);
    let from_1 = || 1..=i64::from(i32::MAX);
    TaskFields {
        image: object.read("image", |what, node| read_name(reader, what, node)),
        command: object.read("command", |what, node| {
            reader.scalars(what, node, LIST_HELP)
        }),
        args: object.read("args", |what, node| reader.scalars(what, node, LIST_HELP)),
        env: object.read("env", |what, node| read_env(reader, what, node)),
        depends_on: None,
        retries: object.read("retries", |what, node| reader.whole(what, node, from_0())),
        retry_delay: object.read("retry_delay", |what, node| reader.duration(what, node)),
        retry_exponential_backoff: object.read("retry_exponential_backoff", |what, node| {
            read_multiplier(reader, what, node)
        }),
        max_retry_delay: object.read("max_retry_delay", |what, node| reader.timeout(what, node)),
        execution_timeout: object
            .read("execution_timeout", |what, node| reader.timeout(what, node)),
        trigger_rule: object.read("trigger_rule", |what, node| {
            reader.word(what, node, &trigger_rules)
        }),
        pool: object.read("pool", |what, node| read_name(reader, what, node)),
        pool_slots: object.read("pool_slots", |what, node| {
            reader.whole(what, node, from_1())
        }),
        priority_weight: object.read("priority_weight", |what, node| {
            reader.whole(what, node, weights)
        }),
        weight_rule: object.read("weight_rule", |what, node| {
            reader.word(what, node, &weight_rules)
        }),
        max_active_tis_per_dag: object.read("max_active_tis_per_dag", |what, node| {
            reader.whole(what, node, from_1())
        }),
        pod_override: object.read("executor_config", |what, node| {
            pod_override::read(reader, what, node)
        }),
        plugin: object.read("plugin", |what, node| plugin::read(reader, what, node)),
    }
}

/// A text that is not empty.
fn read_name(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<String> {
    let text = reader.text(what, node)?;
    if text.trim().is_empty() {
        let help = "write a name, or remove the field";
        reader.report(
            Code::InvalidValue,
            node.span,
            format!("{what} is empty"),
            help,
        );
        return None;
    }
    Some(text)
}

fn read_depends_on(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<Vec<Located>> {
    match &node.kind {
        Kind::List(_) => reader.scalars(what, node, "write `[a, b]`"),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) | Kind::Map(_) => {
            Some(vec![reader.scalar(what, node)?])
        }
    }
}

/// A multiplier; `true` is 1, which changes nothing (as upstream).
fn read_multiplier(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<f64> {
    if let Kind::Bool(wanted) = node.kind {
        return Some(f64::from(u8::from(wanted)));
    }
    let Kind::Number(number) = &node.kind else {
        let message = format!("{what} must be a number, but is {}", node.describe());
        let help = "write the multiplier of the delay by try, as `2`";
        reader.report(Code::WrongType, node.span, message, help);
        return None;
    };
    let multiplier = number.as_f64().filter(|multiplier| *multiplier >= 0.0);
    if multiplier.is_none() {
        let message = format!("{what} must not be negative, but is {number}");
        let help = "write the multiplier of the delay by try, as `2`; `0` is none";
        reader.report(Code::OutOfRange, node.span, message, help);
    }
    multiplier
}

/// A mapping of names to values, or Kubernetes' list of objects.
fn read_env(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<Vec<EnvVar>> {
    if let Kind::List(items) = &node.kind {
        let read: Vec<_> = items
            .iter()
            .map(|item| read_env_object(reader, what, item))
            .collect();
        return read.into_iter().collect();
    }
    let entries = reader.entries(what, node)?;
    let read: Vec<_> = entries
        .iter()
        .map(|(key, node)| {
            check_env_name(reader, what, &key.text, key.span);
            let value = reader.scalar(&format!("`{}` in {what}", quoted(&key.text)), node)?;
            let object = json!({"name": key.text, "value": value.text});
            Some(EnvVar {
                object,
                value: Some(value),
            })
        })
        .collect();
    read.into_iter().collect()
}

fn read_env_object(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<EnvVar> {
    let known = ["name", "value", "valueFrom"];
    let object = reader.object(format!("an item in {what}"), node, &known, &[])?;
    let Some(name_node) = object.get("name") else {
        let help = "write `- name: NAME` and `value` or `valueFrom`";
        let message = format!("an item in {what} has no `name`");
        reader.report(Code::MissingField, node.span, message, help);
        return None;
    };
    let name = reader.text(&format!("`name` in {what}"), name_node)?;
    check_env_name(reader, what, &name, name_node.span);
    let value = match object.get("value") {
        Some(node) => Some(reader.scalar(&format!("`{}` in {what}", quoted(&name)), node)?),
        None => None,
    };
    if let Some(node) = object.get("valueFrom") {
        reader.entries(&format!("`valueFrom` in {what}"), node)?;
    }
    let entries = object.entries().iter();
    let mut fields: Map<String, Value> = entries
        .map(|(key, node)| (key.text.clone(), node.to_json()))
        .collect();
    if let Some(value) = &value {
        fields.insert("value".to_owned(), value.text.clone().into());
    }
    Some(EnvVar {
        object: Value::Object(fields),
        value,
    })
}

fn check_env_name(reader: &mut Reader<'_>, what: &str, name: &str, span: Span) {
    let is_allowed = |c: char| c.is_ascii_graphic() && c != '=';
    if name.is_empty() || !name.chars().all(is_allowed) {
        let message = format!("`{}` in {what} is no name of a variable", quoted(name));
        let help = "use ASCII letters, digits and `_`";
        reader.report(Code::InvalidValue, span, message, help);
    }
}

impl EnvVar {
    fn into_object(self) -> Value {
        self.object
    }
}

impl TaskFields {
    /// What the file does not say is taken from the defaults.
    fn or(self, defaults: &Self) -> Self {
        let plugin = self.plugin.or_else(|| defaults.plugin.clone());
        let default_pod = defaults.pod_override.as_ref();
        Self {
            image: self.image.or_else(|| defaults.image.clone()),
            command: self.command.or_else(|| defaults.command.clone()),
            args: self.args.or_else(|| defaults.args.clone()),
            env: self.env.or_else(|| defaults.env.clone()),
            depends_on: self.depends_on,
            retries: self.retries.or(defaults.retries),
            retry_delay: self.retry_delay.or(defaults.retry_delay),
            retry_exponential_backoff: self
                .retry_exponential_backoff
                .or(defaults.retry_exponential_backoff),
            max_retry_delay: self.max_retry_delay.or(defaults.max_retry_delay),
            execution_timeout: self.execution_timeout.or(defaults.execution_timeout),
            trigger_rule: self.trigger_rule.or(defaults.trigger_rule),
            pool: self.pool.or_else(|| defaults.pool.clone()),
            pool_slots: self.pool_slots.or(defaults.pool_slots),
            priority_weight: self.priority_weight.or(defaults.priority_weight),
            weight_rule: self.weight_rule.or(defaults.weight_rule),
            max_active_tis_per_dag: self
                .max_active_tis_per_dag
                .or(defaults.max_active_tis_per_dag),
            // What all pods of ours are to have means nothing to a plugin.
            pod_override: self
                .pod_override
                .or_else(|| default_pod.filter(|_| plugin.is_none()).cloned()),
            plugin,
        }
    }

    /// The task, with Airflow's defaults for missing fields.
    pub(super) fn into_task(self, task_id: String) -> Task {
        let texts = |items: Option<Vec<Located>>| {
            items.unwrap_or_default().into_iter().map(|item| item.text)
        };
        Task {
            task_id,
            image: self.image,
            command: texts(self.command).collect(),
            args: texts(self.args).collect(),
            env: self
                .env
                .unwrap_or_default()
                .into_iter()
                .map(EnvVar::into_object)
                .collect(),
            upstream: texts(self.depends_on).collect(),
            downstream: std::collections::BTreeSet::new(),
            retries: self.retries.unwrap_or(0),
            retry_delay: self.retry_delay.unwrap_or(DEFAULT_RETRY_DELAY),
            retry_exponential_backoff: self.retry_exponential_backoff.unwrap_or(0.0),
            max_retry_delay: self.max_retry_delay,
            execution_timeout: self.execution_timeout,
            trigger_rule: self.trigger_rule.unwrap_or_default(),
            pool: self.pool.unwrap_or_else(|| DEFAULT_POOL.to_owned()),
            pool_slots: self.pool_slots.unwrap_or(1),
            priority_weight: self.priority_weight.unwrap_or(1),
            weight_rule: self.weight_rule.unwrap_or_default(),
            max_active_tis_per_dag: self.max_active_tis_per_dag,
            plugin: self.plugin.map(|plugin| plugin.task),
            is_setup: false,
            is_teardown: false,
            pod_override: self.pod_override,
            python: None,
        }
    }
}
