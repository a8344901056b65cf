//! Task groups: how the tasks of a DAG are nested.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    error::Unreadable,
    record::{Json, pair, record},
    xcom::ExpandInput,
};
use crate::pointer::Place;

record! {
    /// A group of tasks and groups.
    pub struct TaskGroup {
        /// The last part of its id; none for the root, which holds the whole DAG.
        "_group_id" may group_id: String,
        /// What the page shows for the id.
        "group_display_name" may display_name: String,
        /// Whether the ids of its children begin with its own.
        "prefix_group_id" may prefix_group_id: bool,
        /// What is in it, by whole id.
        "children" needs children: BTreeMap<String, Child>,
        /// For the page.
        "tooltip" may tooltip: String,
        /// Documentation, as Markdown.
        "doc_md" may doc_md: String,
        /// Colour of the page.
        "ui_color" may ui_color: String,
        /// Colour of text on the page.
        "ui_fgcolor" may ui_fgcolor: String,
        /// Groups directly before it.
        "upstream_group_ids" may upstream_group_ids: Vec<String>,
        /// Groups directly after it.
        "downstream_group_ids" may downstream_group_ids: Vec<String>,
        /// Tasks directly before it.
        "upstream_task_ids" may upstream_task_ids: Vec<String>,
        /// Tasks directly after it.
        "downstream_task_ids" may downstream_task_ids: Vec<String>,
        /// Whether it is mapped.
        "is_mapped" may is_mapped: bool,
        /// What it is mapped over.
        "expand_input" may expand_input: ExpandInput,
    }
}

impl TaskGroup {
    /// What it is mapped over; `None` where it is not mapped.
    #[must_use]
    pub fn expansion(&self) -> Option<&ExpandInput> {
        self.expand_input
            .as_ref()
            .filter(|_| self.is_mapped == Some(true))
    }

    /// The groups from this one down to the one that the task is in; `None` where it is not in this one.
    pub(super) fn path(&self, task_id: &str) -> Option<Vec<&Self>> {
        let is_direct = self.children.get(task_id).is_some_and(Child::is_task);
        let below = || {
            let groups = self.children.values().filter_map(Child::group);
            let mut paths = groups.filter_map(|group| group.path(task_id));
            paths.next()
        };
        let mut path = if is_direct { Vec::new() } else { below()? };
        path.insert(0, self);
        Some(path)
    }
}

/// What is in a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Child {
    /// A task, by its id.
    Task(String),
    /// Another group.
    Group(Box<TaskGroup>),
}

impl Child {
    pub(super) fn group(&self) -> Option<&TaskGroup> {
        match self {
            Self::Group(group) => Some(group),
            Self::Task(_) => None,
        }
    }

    fn is_task(&self) -> bool {
        self.group().is_none()
    }
}

impl Json for Child {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let expected = "[\"operator\", id] or [\"taskgroup\", group]";
        let [kind, content] = pair(value, expected, at)?;
        match kind.as_str() {
            Some("operator") => String::read(content, &at.item(1)).map(Self::Task),
            Some("taskgroup") => Json::read(content, &at.item(1)).map(Self::Group),
            _ => Err(Unreadable::form(&at.item(0), expected, &kind)),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Task(id) => json!(["operator", id]),
            Self::Group(group) => json!(["taskgroup", group.write()]),
        }
    }
}
