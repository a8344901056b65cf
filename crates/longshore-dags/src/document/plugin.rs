//! `plugin` of a task: a word, or what Flyte's `TaskTemplate` has besides its container.

use std::collections::BTreeMap;

use longshore_k8s::Quantity;
use longshore_plugins::Order;

use super::{
    node::{Kind, Node},
    problem::Code,
    reader::{Located, Object, Reader},
    suggest::{self, quoted},
};
use crate::model::PluginTask;

const FIELDS: [&str; 6] = [
    "type",
    "config",
    "custom",
    "resources",
    "retries",
    "interruptible",
];

/// Words that people write out of habit, and what to write here.
const HABITS: [(&str, &str); 7] = [
    ("task_type", "write `type`"),
    ("name", "write `type`"),
    ("image", "write it at the task, beside `plugin`"),
    ("command", "write it at the task, beside `plugin`"),
    ("args", "write it at the task, beside `plugin`"),
    ("env", "write it at the task, beside `plugin`"),
    (
        "container",
        "write `image`, `command` and `args` at the task",
    ),
];

/// Task types of Flyte's own plugins. An executor may know others, so that only what is nearly one of them is taken for
/// a slip.
const TYPES: [&str; 14] = [
    "pod",
    "container",
    "raw-container",
    "python",
    "sidecar",
    "spark",
    "ray",
    "dask",
    "pytorch",
    "tensorflow",
    "mpi",
    "flink",
    "clustered-task",
    "core-sleep",
];

/// Longest task type.
const LONGEST_TYPE: usize = 63;

/// `plugin` as it is written, with the texts in it that may be templates.
#[derive(Clone, Debug)]
pub(super) struct PluginFields {
    pub(super) task: PluginTask,
    pub(super) texts: Vec<Located>,
}

/// Reads `plugin`.
pub(super) fn read(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<PluginFields> {
    if let Kind::Text(_) = &node.kind {
        let task = PluginTask {
            task_type: read_type(reader, what, node)?,
            ..PluginTask::default()
        };
        return Some(PluginFields {
            task,
            texts: Vec::new(),
        });
    }
    if !matches!(node.kind, Kind::Map(_)) {
        let message = format!(
            "{what} must be a text or a mapping, but is {}",
            node.describe()
        );
        let help = "write `plugin: spark`, or `type`, `config`, `custom` and so on below it";
        reader.report(Code::WrongType, node.span, message, help);
        return None;
    }
    let object = reader.object(what.to_owned(), node, &FIELDS, &HABITS)?;
    if object.get("type").is_none() {
        let message = format!("{what} has no `type`");
        let help = "write which plugin it is: `type: spark`";
        reader.report(Code::MissingField, node.span, message, help);
    }
    read_object(reader, &object)
}

fn read_object(reader: &mut Reader<'_>, object: &Object<'_>) -> Option<PluginFields> {
    let attempts = 0..=i64::from(i32::MAX);
    let task_type = object.read("type", |what, node| read_type(reader, what, node));
    let config = object.read("config", |what, node| read_texts(reader, what, node));
    let custom = object.read("custom", |what, node| {
        reader.entries(what, node).map(|_| node)
    });
    let resources = object.read("resources", |what, node| read_resources(reader, what, node));
    let (requests, limits) = resources.unwrap_or_default();
    let mut texts = Vec::new();
    if let Some(custom) = custom {
        collect_texts(custom, &mut texts);
    }
    texts.extend(config.iter().flatten().map(|(_, text)| text.clone()));
    let config = config.unwrap_or_default().into_iter();
    let task = PluginTask {
        config: config.map(|(key, text)| (key, text.text)).collect(),
        custom: custom.map(Node::to_json),
        requests,
        limits,
        retries: object
            .read("retries", |what, node| reader.whole(what, node, attempts))
            .unwrap_or(0),
        interruptible: object.read("interruptible", |what, node| reader.boolean(what, node)),
        task_type: task_type?,
    };
    Some(PluginFields { task, texts })
}

fn read_type(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<String> {
    let text = reader.text(what, node)?;
    let n_chars = text.chars().count();
    if text.trim().is_empty() || n_chars > LONGEST_TYPE {
        let message = format!("{what} must have 1 to {LONGEST_TYPE} characters, but has {n_chars}");
        let help = suggest::help("", &TYPES, "plugins");
        reader.report(Code::InvalidValue, node.span, message, help);
        return None;
    }
    if !TYPES.contains(&text.as_str())
        && let Some(close) = suggest::closest(&text, &TYPES)
    {
        let message = format!("{what} cannot be `{}`", quoted(&text));
        let help = format!("did you mean `{close}`?");
        reader.report(Code::UnknownWord, node.span, message, help);
        return None;
    }
    Some(text)
}

/// A mapping of names to texts.
fn read_texts(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<Vec<(String, Located)>> {
    let entries = reader.entries(what, node)?;
    let read: Vec<_> = entries
        .iter()
        .map(|(key, node)| {
            let what = format!("`{}` in {what}", quoted(&key.text));
            Some((key.text.clone(), reader.scalar(&what, node)?))
        })
        .collect();
    read.into_iter().collect()
}

type Amounts = BTreeMap<String, String>;

fn read_resources(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<(Amounts, Amounts)> {
    let object = reader.object(what.to_owned(), node, &["requests", "limits"], &[])?;
    let requests = object.read("requests", |what, node| read_amounts(reader, what, node));
    let limits = object.read("limits", |what, node| read_amounts(reader, what, node));
    Some((requests.unwrap_or_default(), limits.unwrap_or_default()))
}

fn read_amounts(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<Amounts> {
    let known: Vec<&str> = Order::resources().collect();
    let object = reader.object(what.to_owned(), node, &known, &[])?;
    let mut amounts = Amounts::new();
    for name in known {
        let amount = object.read(name, |what, node| {
            let amount = reader.scalar(what, node)?.text;
            if Quantity::parse(&amount).is_none() {
                let message = format!("{what} must be an amount, but is `{}`", quoted(&amount));
                let help = "write it as `500m`, `2` or `64Mi`";
                reader.report(Code::InvalidValue, node.span, message, help);
            }
            Some(amount)
        });
        amounts.extend(amount.map(|amount| (name.to_owned(), amount)));
    }
    Some(amounts)
}

fn collect_texts(node: &Node, texts: &mut Vec<Located>) {
    match &node.kind {
        Kind::Text(text) => texts.push(Located {
            text: text.clone(),
            span: node.span,
        }),
        Kind::List(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Kind::Map(entries) => {
            for (_, value) in entries {
                collect_texts(value, texts);
            }
        }
        Kind::Null | Kind::Bool(_) | Kind::Number(_) => {}
    }
}

#[cfg(test)]
mod tests;
