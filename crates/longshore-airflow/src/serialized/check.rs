//! Whether what a DAG refers to is there. Upstream fails at such a document only when somebody uses it.

use std::collections::BTreeSet;

use super::{
    dag::Dag,
    error::{Problem, Unreadable},
    group::{Child, TaskGroup},
    operator::Operator,
    xcom::ExpandInput,
};
use crate::pointer::Place;

/// What a DAG has.
struct Known<'a> {
    tasks: BTreeSet<&'a str>,
    groups: BTreeSet<&'a str>,
}

/// Sees that every task and group that is named is there, and every task in one group at most.
pub(super) fn references(dag: &Dag, at: &Place<'_>) -> Result<(), Unreadable> {
    let tasks = at.member("tasks");
    let mut known = Known {
        tasks: dag.tasks.iter().map(|task| task.task_id.as_str()).collect(),
        groups: BTreeSet::new(),
    };
    for (index, task) in dag.tasks.iter().enumerate() {
        known.task(task, &tasks.item(index).member("__var"))?;
    }
    if let Some(root) = &dag.task_group {
        let root_at = at.member("task_group");
        let mut seen = BTreeSet::new();
        collect(root, &root_at, &mut known.groups, &mut seen)?;
        known.group(root, &root_at)?;
    }
    Ok(())
}

/// Notes the ids of groups, and sees that no id is there twice.
fn collect<'a>(
    group: &'a TaskGroup,
    at: &Place<'_>,
    groups: &mut BTreeSet<&'a str>,
    seen: &mut BTreeSet<&'a str>,
) -> Result<(), Unreadable> {
    let children_at = at.member("children");
    for (id, child) in &group.children {
        let child_at = children_at.member(id);
        let is_new = match child {
            Child::Task(task) => seen.insert(task),
            Child::Group(group) => {
                collect(group, &child_at.item(1), groups, seen)?;
                groups.insert(id)
            }
        };
        if !is_new {
            let found = id.clone();
            return Err(Unreadable::new(&child_at, Problem::Twice { found }));
        }
    }
    Ok(())
}

impl Known<'_> {
    fn task(&self, task: &Operator, at: &Place<'_>) -> Result<(), Unreadable> {
        let downstream = at.member("downstream_task_ids");
        for (index, id) in task.downstream().enumerate() {
            self.is_task(id, &downstream.item(index))?;
        }
        for (member, input) in [
            ("expand_input", &task.expand_input),
            ("op_kwargs_expand_input", &task.op_kwargs_expand_input),
        ] {
            self.expansion(input.as_ref(), &at.member(member))?;
        }
        if task.is_mapped != Some(true) || task.expansion().is_some() {
            return Ok(());
        }
        let member = match task.expand_input_attr.as_deref() {
            Some("op_kwargs_expand_input") => "op_kwargs_expand_input",
            _ => "expand_input",
        };
        Err(Unreadable::new(at, Problem::Missing { member }))
    }

    fn group(&self, group: &TaskGroup, at: &Place<'_>) -> Result<(), Unreadable> {
        for (member, ids) in [
            ("upstream_task_ids", &group.upstream_task_ids),
            ("downstream_task_ids", &group.downstream_task_ids),
        ] {
            let place = at.member(member);
            for (index, id) in ids.iter().flatten().enumerate() {
                self.is_task(id, &place.item(index))?;
            }
        }
        for (member, ids) in [
            ("upstream_group_ids", &group.upstream_group_ids),
            ("downstream_group_ids", &group.downstream_group_ids),
        ] {
            let place = at.member(member);
            for (index, id) in ids.iter().flatten().enumerate() {
                if !self.groups.contains(id.as_str()) {
                    let found = id.clone();
                    return Err(Unreadable::new(
                        &place.item(index),
                        Problem::NoSuchGroup { found },
                    ));
                }
            }
        }
        self.expansion(group.expand_input.as_ref(), &at.member("expand_input"))?;
        if group.is_mapped == Some(true) && group.expand_input.is_none() {
            let member = "expand_input";
            return Err(Unreadable::new(at, Problem::Missing { member }));
        }
        let children = at.member("children");
        for (id, child) in &group.children {
            let child_at = children.member(id);
            match child {
                Child::Task(task) => self.is_task(task, &child_at.item(1))?,
                Child::Group(group) => self.group(group, &child_at.item(1))?,
            }
        }
        Ok(())
    }

    fn expansion(&self, input: Option<&ExpandInput>, at: &Place<'_>) -> Result<(), Unreadable> {
        let mut sources = input.map(ExpandInput::sources).unwrap_or_default();
        sources.retain(|source| !self.tasks.contains(source.task_id.as_str()));
        match sources.first() {
            Some(source) => self.is_task(&source.task_id, at),
            None => Ok(()),
        }
    }

    fn is_task(&self, id: &str, at: &Place<'_>) -> Result<(), Unreadable> {
        if self.tasks.contains(id) {
            return Ok(());
        }
        let found = id.to_owned();
        Err(Unreadable::new(at, Problem::NoSuchTask { found }))
    }
}
