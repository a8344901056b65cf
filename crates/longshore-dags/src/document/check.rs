//! What only shows in the whole document: unknown tasks, cycles, templates that can never be filled in.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    dag::ReadTasks,
    node::Span,
    problem::Code,
    reader::{Located, Reader},
    suggest,
    task::TaskFields,
};
use crate::{
    model::{Upstream, ancestors, find_cycles},
    pods::template::{Expression, SyntaxErrorKind, Template, VARIABLES, split_name},
};

/// Checks tasks against each other and against the parameters.
pub(super) fn check(reader: &mut Reader<'_>, tasks: &ReadTasks, params: &BTreeMap<String, Value>) {
    let upstream = check_upstream(reader, tasks);
    for cycle in find_cycles(&upstream) {
        report_cycle(reader, tasks, &cycle);
    }
    let check = Templates {
        tasks,
        upstream: &upstream,
        params,
    };
    for (task_id, (_, fields)) in tasks {
        check.check_task(reader, task_id, fields);
    }
}

/// Reports unknown upstream tasks; returns the graph of the known ones.
fn check_upstream<'a>(reader: &mut Reader<'_>, tasks: &'a ReadTasks) -> Upstream<'a> {
    let names: Vec<&str> = tasks.keys().map(String::as_str).collect();
    let mut graph = Upstream::new();
    for (task_id, (_, fields)) in tasks {
        let mut known = BTreeSet::new();
        for upstream in fields.depends_on.iter().flatten() {
            match tasks.get_key_value(&upstream.text) {
                Some((id, _)) => {
                    known.insert(id.as_str());
                }
                None => {
                    let message = format!(
                        "task `{}` depends on `{}`, which is no task of this DAG",
                        suggest::quoted(task_id),
                        suggest::quoted(&upstream.text)
                    );
                    let help = suggest::help(&upstream.text, &names, "tasks");
                    reader.report(Code::UnknownTask, upstream.span, message, help);
                }
            }
        }
        graph.insert(task_id, known);
    }
    graph
}

/// Reports a cycle at the first of its dependencies in the text.
fn report_cycle(reader: &mut Reader<'_>, tasks: &ReadTasks, cycle: &[&str]) {
    const SHOWN: usize = 12;
    let links = cycle.windows(2).filter_map(|link| {
        let (span, fields) = tasks.get(link[1])?;
        let mut depends_on = fields.depends_on.iter().flatten();
        let place = depends_on.find(|upstream| upstream.text == link[0]);
        Some(place.map_or(*span, |upstream| upstream.span))
    });
    let span = links.min_by_key(|span| span.offset).unwrap_or_default();
    let mut names: Vec<String> = cycle.iter().map(|id| suggest::quoted(id)).collect();
    if names.len() > SHOWN {
        names.splice(SHOWN / 2..names.len() - SHOWN / 2, ["…".to_owned()]);
    }
    let message = format!("tasks wait for each other: {}", names.join(" -> "));
    let help = "remove one of these from the `depends_on` of the next";
    reader.report(Code::Cycle, span, message, help);
}

struct Templates<'a> {
    tasks: &'a ReadTasks,
    upstream: &'a Upstream<'a>,
    params: &'a BTreeMap<String, Value>,
}

impl<'a> Templates<'a> {
    fn check_task(&self, reader: &mut Reader<'_>, task_id: &str, fields: &TaskFields) {
        let command = fields.command.iter().flatten();
        let args = fields.args.iter().flatten();
        let env = fields
            .env
            .iter()
            .flatten()
            .filter_map(|variable| variable.value.as_ref());
        let plugin = fields.plugin.iter().flat_map(|plugin| &plugin.texts);
        // A walk over the graph: only for results of tasks that the task does not directly wait for.
        let mut reach = None;
        for text in command
            .chain(args)
            .chain(env)
            .chain(plugin)
            .filter(|text| text.text.contains("{{"))
        {
            let template = match Template::parse(&text.text) {
                Ok(template) => template,
                Err(error) => {
                    let span = reader.span_in(text, &error.range);
                    let help = help_for(&error.kind);
                    let message = format!("{error} (task `{}`)", suggest::quoted(task_id));
                    reader.report(Code::Template, span, suggest::line(&message), help);
                    continue;
                }
            };
            for (expression, range) in template.expressions() {
                let found = match expression {
                    Expression::Variable(_) => Ok(()),
                    Expression::Param(path) => self.check_param(path),
                    Expression::XCom(path) => self.check_xcom(task_id, path, &mut reach),
                };
                if let Err((message, help)) = found {
                    let span = reader.span_in(text, &range);
                    reader.report(Code::Template, span, message, help);
                }
            }
        }
    }

    fn check_param(&self, path: &str) -> Result<(), (String, String)> {
        if split_name(path, |name| self.params.contains_key(name)).is_some() {
            return Ok(());
        }
        let known: Vec<&str> = self.params.keys().map(String::as_str).collect();
        let name = path.split('.').next().unwrap_or(path);
        let help = if known.is_empty() {
            format!(
                "declare it: `params: {{{}: …}}` at the top of the file",
                suggest::quoted(name)
            )
        } else {
            suggest::help(name, &known, "parameters")
        };
        Err((
            format!("parameter `{}` is not declared", suggest::quoted(path)),
            help,
        ))
    }

    fn check_xcom(
        &self,
        task_id: &str,
        path: &str,
        reach: &mut Option<BTreeSet<&'a str>>,
    ) -> Result<(), (String, String)> {
        let direct = self.upstream.get(task_id);
        let mut waits_for = |from: &str| {
            direct.is_some_and(|direct| direct.contains(from))
                || reach
                    .get_or_insert_with(|| ancestors(self.upstream, task_id))
                    .contains(from)
        };
        let quoted = suggest::quoted(task_id);
        let Some((from, _)) = split_name(path, |name| self.tasks.contains_key(name)) else {
            let names: Vec<&str> = self.tasks.keys().map(String::as_str).collect();
            let name = path.split('.').next().unwrap_or(path);
            let message = format!(
                "task `{quoted}` reads the result of `{}`, which is no task",
                suggest::quoted(name)
            );
            return Err((message, suggest::help(name, &names, "tasks")));
        };
        let has_plugin = |(_, fields): &(Span, TaskFields)| fields.plugin.is_some();
        if self.tasks.get(from).is_some_and(has_plugin) {
            let from = suggest::quoted(from);
            let message = format!(
                "task `{quoted}` reads the result of `{from}`, which has a plugin and leaves none"
            );
            let help = "let an ordinary task leave the result";
            return Err((message, help.to_owned()));
        }
        if waits_for(from) {
            return Ok(());
        }
        let from = suggest::quoted(from);
        let message =
            format!("task `{quoted}` reads the result of `{from}`, but does not wait for it");
        Err((
            message,
            format!("add `{from}` to `depends_on` of task `{quoted}`"),
        ))
    }
}

fn help_for(kind: &SyntaxErrorKind) -> String {
    const ESCAPE: &str = "for braces that are no template write `{{ '{{' }}`";
    match kind {
        SyntaxErrorKind::Unclosed => format!("close it with `}}}}`; {ESCAPE}"),
        SyntaxErrorKind::Empty | SyntaxErrorKind::NotAName(_) => {
            format!(
                "write one of {}, `params.NAME`, `xcom.TASK.FIELD`; {ESCAPE}",
                variables()
            )
        }
        SyntaxErrorKind::UnknownVariable(name) => match suggest::closest(name, &VARIABLES) {
            Some(close) => format!("did you mean `{close}`?"),
            None => {
                format!(
                    "there are {}, `params.NAME` and `xcom.TASK.FIELD`; {ESCAPE}",
                    variables()
                )
            }
        },
    }
}

fn variables() -> String {
    VARIABLES.map(|name| format!("`{name}`")).join(", ")
}

impl Reader<'_> {
    /// The place of a part of a text that was read: exact where the file has it letter by letter, else the whole.
    pub(super) fn span_in(&self, text: &Located, range: &std::ops::Range<usize>) -> Span {
        let part = &text.text[range.clone()];
        let n_before = text.text[..range.start].matches(part).count();
        self.find_in(text.span, part, n_before).unwrap_or(text.span)
    }
}
