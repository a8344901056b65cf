//! The fields of a DAG.

use std::{collections::BTreeMap, io, time::Duration};

use longshore_k8s::Quantity;
use serde_json::Value;

use super::{
    check, files,
    node::{Kind, Node},
    problem::Code,
    reader::{Object, Reader},
    schedule,
    task::{self, TaskFields},
};
use crate::{
    model::{
        DEFAULT_MAX_ACTIVE_RUNS, DEFAULT_MAX_ACTIVE_TASKS, DEFAULT_WORKSPACE_ACCESS_MODE,
        DEFAULT_WORKSPACE_MOUNT_PATH, DEFAULT_WORKSPACE_SIZE, Dag, Workspace,
    },
    timetable::Timetable,
};

const FIELDS: [&str; 17] = [
    "dag_id",
    "description",
    "schedule",
    "timezone",
    "start_date",
    "end_date",
    "catchup",
    "is_paused_upon_creation",
    "params",
    "default_args",
    "max_active_runs",
    "max_active_tasks",
    "dagrun_timeout",
    "tags",
    "files",
    "workspace",
    "tasks",
];

const WORKSPACE_FIELDS: [&str; 4] = ["size", "mount_path", "storage_class_name", "access_modes"];

const ACCESS_MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "ReadWriteOnce"),
    ("ReadOnlyMany", "ReadOnlyMany"),
    ("ReadWriteMany", "ReadWriteMany"),
    ("ReadWriteOncePod", "ReadWriteOncePod"),
];

/// Reads a whole document. What is wrong is reported; a DAG may be answered all the same.
pub(super) fn read(
    reader: &mut Reader<'_>,
    root: &Node,
    read_file: &mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
) -> Option<Dag> {
    if !reader.is_mapping("the DAG", root) {
        return None;
    }
    let dag = reader.object("the DAG".to_owned(), root, &FIELDS, &[])?;
    let dag_id = read_dag_id(reader, root, &dag);
    let defaults = dag
        .get("default_args")
        .and_then(|node| task::read_defaults(reader, node))
        .unwrap_or_default();
    let tasks = read_tasks(reader, root, &dag, &defaults);
    let params = dag.read("params", |what, node| read_params(reader, what, node));
    let params = params.unwrap_or_default();
    check::check(reader, &tasks, &params);

    let schedule = schedule::read(reader, &dag);
    let mut read = Dag {
        dag_id: dag_id.unwrap_or_default(),
        description: dag.read("description", |what, node| reader.text(what, node)),
        schedule: schedule.written,
        start_date: schedule.restriction.earliest,
        end_date: schedule.restriction.latest,
        catchup: schedule.restriction.catchup,
        is_paused_upon_creation: dag
            .read("is_paused_upon_creation", |what, node| {
                reader.boolean(what, node)
            })
            .unwrap_or_default(),
        params,
        max_active_runs: read_max_active_runs(reader, &dag, &schedule.timetable),
        timetable: schedule.timetable,
        max_active_tasks: read_count(reader, &dag, "max_active_tasks")
            .unwrap_or(DEFAULT_MAX_ACTIVE_TASKS),
        dagrun_timeout: read_timeout(reader, &dag),
        tags: read_tags(reader, &dag),
        files: dag
            .read("files", |what, node| {
                files::read(reader, what, node, read_file)
            })
            .unwrap_or_default(),
        workspace: dag
            .get("workspace")
            .and_then(|node| read_workspace(reader, node)),
        tasks: tasks
            .into_iter()
            .map(|(id, (_, fields))| (id.clone(), fields.into_task(id)))
            .collect(),
        python: None,
    };
    read.link();
    Some(read)
}

fn read_dag_id(reader: &mut Reader<'_>, root: &Node, dag: &Object<'_>) -> Option<String> {
    let Some(node) = dag.get("dag_id") else {
        let help = "write `dag_id: my_dag` at the top";
        reader.report(
            Code::MissingField,
            root.span,
            "the DAG has no `dag_id`",
            help,
        );
        return None;
    };
    let id = reader.text("`dag_id` of the DAG", node)?;
    task::check_id(reader, "dag_id", &id, node.span).then_some(id)
}

/// The tasks by id, each with the place of its key and with the defaults applied.
pub(super) type ReadTasks = BTreeMap<String, (super::node::Span, TaskFields)>;

fn read_tasks(
    reader: &mut Reader<'_>,
    root: &Node,
    dag: &Object<'_>,
    defaults: &TaskFields,
) -> ReadTasks {
    const HELP: &str = "write `tasks:` with at least one task id and its fields under it";
    let Some(node) = dag.get("tasks") else {
        reader.report(Code::NoTasks, root.span, "the DAG has no `tasks`", HELP);
        return BTreeMap::new();
    };
    let entries = reader
        .entries("`tasks` of the DAG", node)
        .unwrap_or_default();
    if entries.is_empty() && matches!(node.kind, Kind::Map(_)) {
        reader.report(
            Code::NoTasks,
            node.span,
            "`tasks` of the DAG is empty",
            HELP,
        );
    }
    let mut tasks = BTreeMap::new();
    for (key, node) in entries {
        task::check_id(reader, "task id", &key.text, key.span);
        let fields = task::read(reader, key, node, defaults);
        tasks.insert(key.text.clone(), (key.span, fields));
    }
    tasks
}

/// Airflow's defaults: a value, or an object with `default` beside what describes it.
fn read_params(
    reader: &mut Reader<'_>,
    what: &str,
    node: &Node,
) -> Option<BTreeMap<String, Value>> {
    let entries = reader.entries(what, node)?;
    let default = |value: Value| value.get("default").cloned().unwrap_or(value);
    let named =
        |(key, node): &(super::node::Key, Node)| (key.text.clone(), default(node.to_json()));
    Some(entries.iter().map(named).collect())
}

fn read_count(reader: &mut Reader<'_>, dag: &Object<'_>, name: &str) -> Option<u32> {
    dag.read(name, |what, node| {
        reader.whole(what, node, 1..=i64::from(i32::MAX))
    })
}

/// Airflow allows a continuous DAG one run at a time.
fn read_max_active_runs(reader: &mut Reader<'_>, dag: &Object<'_>, timetable: &Timetable) -> u32 {
    const NAME: &str = "max_active_runs";
    let most = timetable.max_active_runs();
    let read = read_count(reader, dag, NAME);
    if let (Some(most), Some(read), Some(node)) = (most, read, dag.get(NAME))
        && read > most
    {
        let message = format!(
            "`{NAME}` of {} must be at most {most}, as its schedule is `@continuous`",
            dag.place
        );
        reader.report(
            Code::OutOfRange,
            node.span,
            message,
            format!("write {most}, or remove it"),
        );
    }
    read.or(most).unwrap_or(DEFAULT_MAX_ACTIVE_RUNS)
}

fn read_timeout(reader: &mut Reader<'_>, dag: &Object<'_>) -> Option<Duration> {
    dag.read("dagrun_timeout", |what, node| reader.timeout(what, node))
}

fn read_tags(reader: &mut Reader<'_>, dag: &Object<'_>) -> Vec<String> {
    let tags = dag.read("tags", |what, node| {
        reader.texts(what, node, "write `[a, b]`")
    });
    tags.unwrap_or_default()
        .into_iter()
        .map(|tag| tag.text)
        .collect()
}

fn read_workspace(reader: &mut Reader<'_>, node: &Node) -> Option<Workspace> {
    let default = Workspace {
        size: DEFAULT_WORKSPACE_SIZE.to_owned(),
        mount_path: DEFAULT_WORKSPACE_MOUNT_PATH.to_owned(),
        storage_class_name: None,
        access_modes: vec![DEFAULT_WORKSPACE_ACCESS_MODE.to_owned()],
    };
    if let Kind::Bool(wanted) = node.kind {
        return wanted.then_some(default);
    }
    let fields = reader.object("`workspace`".to_owned(), node, &WORKSPACE_FIELDS, &[])?;
    let size = fields.read("size", |what, node| read_size(reader, what, node));
    let mount_path = fields.read("mount_path", |what, node| {
        read_mount_path(reader, what, node)
    });
    let class = fields.read("storage_class_name", |what, node| reader.text(what, node));
    let modes = fields.read("access_modes", |what, node| {
        read_access_modes(reader, what, node)
    });
    Some(Workspace {
        size: size.unwrap_or(default.size),
        mount_path: mount_path.unwrap_or(default.mount_path),
        storage_class_name: class,
        access_modes: modes.unwrap_or(default.access_modes),
    })
}

/// A Kubernetes quantity above zero.
fn read_size(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<String> {
    let text = reader.scalar(what, node)?.text;
    if Quantity::parse(&text).is_some_and(Quantity::is_positive) {
        return Some(text);
    }
    let message = format!("{what} must be a size, but is {}", node.describe());
    let help = "write a Kubernetes quantity, as `1Gi` or `500Mi`";
    reader.report(Code::InvalidValue, node.span, message, help);
    None
}

fn read_mount_path(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<String> {
    let path = reader.text(what, node)?;
    // A colon separates paths in the command line of container runtimes; the API server refuses it.
    if path.starts_with('/') && path.len() > 1 && !path.contains([':', '\0']) {
        return Some(path);
    }
    let message = format!(
        "{what} must be an absolute path, but is {}",
        node.describe()
    );
    let help = "write a directory below `/`, as `/workspace`, without `:`";
    reader.report(Code::InvalidValue, node.span, message, help);
    None
}

fn read_access_modes(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<Vec<String>> {
    let items = reader.list(what, node, "write `[ReadWriteOnce]`")?;
    let each = format!("each item in {what}");
    let modes: Vec<Option<&str>> = items
        .iter()
        .map(|item| reader.word(&each, item, &ACCESS_MODES))
        .collect();
    if items.is_empty() {
        let help = "write `[ReadWriteOnce]`, or remove the field";
        reader.report(
            Code::InvalidValue,
            node.span,
            format!("{what} is empty"),
            help,
        );
        return None;
    }
    modes
        .into_iter()
        .map(|mode| mode.map(str::to_owned))
        .collect()
}
