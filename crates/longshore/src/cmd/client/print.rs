//! Objects in every format, and how they look for people. All but the two functions that print are pure.

use jiff::Timestamp;
use longshore_console::{
    RunName, TaskName,
    objects::{Dag, ImportError, List, Run, Task},
};
use longshore_dags::scheduler::run_state::REASON_INTERRUPTED;
use serde::Serialize;

use super::table::{NONE, Table, instant, or_none, since, took};
use crate::{
    cli::{Format, Globals},
    output,
    printable::one_line,
    progress::{age, lines::task_name},
};

/// How much a table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    Short,
    Full,
}

/// Prints a list.
pub(super) fn list<T: Serialize>(
    list: &List<T>,
    name: fn(&T) -> String,
    table: impl FnOnce(Detail) -> Table,
    globals: &Globals,
) {
    match globals.output {
        Format::Json => output::json(list),
        Format::Yaml => output::yaml(list),
        Format::Name => list.items.iter().for_each(|item| output::line(&name(item))),
        Format::Table | Format::Wide if globals.quiet => {}
        Format::Table => output::text(&table(Detail::Short).render()),
        Format::Wide => output::text(&table(Detail::Full).render()),
    }
}

/// Prints one object.
pub(super) fn object<T: Serialize>(
    object: &T,
    name: fn(&T) -> String,
    text: impl FnOnce(&T) -> String,
    globals: &Globals,
) {
    match globals.output {
        Format::Json => output::json(object),
        Format::Yaml => output::yaml(object),
        Format::Name => output::line(&name(object)),
        Format::Table | Format::Wide if globals.quiet => {}
        Format::Table | Format::Wide => output::text(&text(object)),
    }
}

pub(super) fn dag_name(dag: &Dag) -> String {
    dag.dag_id.clone()
}

/// A file that is no DAG, for people.
pub(super) fn import_error(error: &ImportError) -> String {
    let lines: Vec<&str> = error.message.lines().map(str::trim).collect();
    let why = one_line(&lines.join("; "));
    match &error.dag_id {
        None => format!("note: {} is no DAG: {why}", one_line(&error.file)),
        Some(dag_id) => format!(
            "note: {} is broken, and {dag_id} stays as it was: {why}",
            one_line(&error.file)
        ),
    }
}

pub(super) fn run_name(run: &Run) -> String {
    RunName {
        dag_id: run.dag_id.clone(),
        run_id: run.run_id.clone(),
    }
    .to_string()
}

pub(super) fn full_task_name(task: &Task) -> String {
    TaskName {
        run: RunName {
            dag_id: task.dag_id.clone(),
            run_id: task.run_id.clone(),
        },
        task_id: task.task_id.clone(),
        map_index: task.map_index,
    }
    .to_string()
}

pub(super) fn dags(dags: &[Dag], now: Timestamp, detail: Detail) -> Table {
    let short = ["DAG", "SCHEDULE", "PAUSED", "LAST RUN", "AGE"];
    let full = ["TASKS", "NEXT", "TAGS", "FILE"];
    let mut table = Table::new(&columns(&short, &full, detail));
    for dag in dags {
        let last = dag.last_run.as_ref();
        let short = [
            dag.dag_id.clone(),
            or_none(dag.schedule.as_deref()),
            yes_or_no(dag.is_paused),
            or_none(last.map(|run| run.state.as_str())),
            since(last.and_then(|run| run.queued_at), now),
        ];
        let full = [
            dag.task_count.to_string(),
            instant(dag.next_run_at),
            dag.tags.join(","),
            or_none(dag.file.as_deref()),
        ];
        table.row(columns(&short, &full, detail));
    }
    table
}

pub(super) fn runs(runs: &[Run], now: Timestamp, detail: Detail) -> Table {
    let short = ["RUN", "STATE", "TYPE", "AGE", "DURATION"];
    let full = ["LOGICAL DATE", "STARTED", "ENDED", "REASON"];
    let mut table = Table::new(&columns(&short, &full, detail));
    for run in runs {
        let short = [
            run_name(run),
            run_state(run),
            run.run_type.clone(),
            since(run.queued_at, now),
            took(run.started_at, run.ended_at, now),
        ];
        let full = [
            instant(run.logical_date),
            instant(run.started_at),
            instant(run.ended_at),
            or_none(run.reason.as_deref().or(run.blocked.as_deref())),
        ];
        table.row(columns(&short, &full, detail));
    }
    table
}

/// The state, and how long it stays so, where that is known.
fn run_state(run: &Run) -> String {
    match run.not_before {
        Some(at) => format!("{} until {at:.0}", run.state),
        None => run_word(run).to_owned(),
    }
}

/// A run that `longshore run` has left waits for its `--resume`: it is `queued` on record, as one that begins soon.
fn run_word(run: &Run) -> &str {
    if run.state == "queued" && run.reason.as_deref() == Some(REASON_INTERRUPTED) {
        REASON_INTERRUPTED
    } else {
        &run.state
    }
}

pub(super) fn tasks(tasks: &[Task], now: Timestamp, detail: Detail) -> Table {
    let short = ["TASK", "STATE", "TRY", "DURATION", "FAILURE"];
    let full = ["POD", "POOL", "STARTED", "ENDED"];
    let mut table = Table::new(&columns(&short, &full, detail));
    for task in tasks {
        let short = [
            task_name(&task.task_id, task.map_index),
            state(task),
            format!("{}/{}", task.try_number, task.max_tries),
            task_took(task, now),
            or_none(
                task.failure
                    .as_ref()
                    .map(|failure| failure.message.as_str()),
            ),
        ];
        let full = [
            or_none(task.pod.as_deref()),
            task.pool.clone(),
            instant(task.started_at),
            instant(task.ended_at),
        ];
        table.row(columns(&short, &full, detail));
    }
    table
}

/// A DAG with its parameters and tasks.
pub(super) fn dag(dag: &Dag) -> String {
    let params: Vec<String> = dag
        .params
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut text = fields(&[
        ("DAG", dag.dag_id.clone()),
        ("Description", or_none(dag.description.as_deref())),
        ("Schedule", or_none(dag.schedule.as_deref())),
        ("Paused", yes_or_no(dag.is_paused)),
        ("Next run", instant(dag.next_run_at)),
        ("Active runs", format!("at most {}", dag.max_active_runs)),
        ("Parameters", params.join(" ")),
        ("Tags", dag.tags.join(" ")),
        ("File", or_none(dag.file.as_deref())),
        (
            "Last run",
            dag.last_run.as_ref().map_or(NONE.to_owned(), |run| {
                format!("{} {}", run_name(run), run.state)
            }),
        ),
    ]);
    if let Some(error) = &dag.error {
        text.push_str("\nIts file has problems; what it said before stays:\n");
        for problem in error.lines() {
            text.push_str(&format!("  {}\n", one_line(problem)));
        }
    }
    let mut table = Table::new(&["TASK", "AFTER", "RETRIES", "TRIGGER RULE"]);
    for task in dag.tasks.iter().flatten() {
        table.row([
            task.task_id.clone(),
            task.upstream.join(","),
            task.retries.to_string(),
            task.trigger_rule.clone(),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render());
    text
}

/// A run.
pub(super) fn run(run: &Run, now: Timestamp) -> String {
    let params = run.params.as_object().filter(|params| !params.is_empty());
    let mut lines = vec![("Run", run_name(run)), ("State", run_word(run).to_owned())];
    if let Some(why) = &run.blocked {
        lines.push(("Waits", one_line(why)));
    }
    lines.extend([
        ("Reason", or_none(run.reason.as_deref())),
        ("Type", run.run_type.clone()),
        ("Logical date", instant(run.logical_date)),
        ("Created", instant(run.queued_at)),
        ("Started", instant(run.started_at)),
        ("Ended", instant(run.ended_at)),
        ("Duration", took(run.started_at, run.ended_at, now)),
        (
            "Parameters",
            params.map_or(NONE.to_owned(), |params| {
                serde_json::Value::from(params.clone()).to_string()
            }),
        ),
    ]);
    fields(&lines)
}

/// A task with its tries.
pub(super) fn task(task: &Task, now: Timestamp) -> String {
    let mut lines = vec![("Task", full_task_name(task)), ("State", state(task))];
    if task.next_try_at.is_some() {
        lines.push(("Next try", instant(task.next_try_at)));
    }
    let result = match (&task.result, &task.result_note) {
        (Some(result), _) => result.to_string(),
        (None, Some(why)) => one_line(&format!("none was taken: {why}")),
        (None, None) => NONE.to_owned(),
    };
    lines.push(("Pool", task.pool.clone()));
    if let Some(why) = &task.blocked {
        lines.push(("Blocked", one_line(why)));
    }
    lines.extend([("Pod", or_none(task.pod.as_deref())), ("Result", result)]);
    let mut text = fields(&lines);
    let mut table = Table::new(&["TRY", "STATE", "STARTED", "DURATION", "FAILURE"]);
    for earlier in &task.earlier_tries {
        table.row([
            earlier.try_number.to_string(),
            or_none(earlier.state.as_deref()),
            instant(earlier.started_at),
            took(earlier.started_at, earlier.ended_at, now),
            or_none(
                earlier
                    .failure
                    .as_ref()
                    .map(|failure| failure.message.as_str()),
            ),
        ]);
    }
    // Until the next try has its number, the task has that of the one before.
    let last = task.earlier_tries.last();
    if last.is_none_or(|earlier| earlier.try_number < task.try_number) {
        table.row([
            task.try_number.to_string(),
            state(task),
            instant(task.started_at),
            task_took(task, now),
            or_none(
                task.failure
                    .as_ref()
                    .map(|failure| failure.message.as_str()),
            ),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render());
    text
}

pub(super) fn fields(fields: &[(&str, String)]) -> String {
    let mut table = Table::new(&["", ""]).without_headers();
    for (name, value) in fields {
        table.row([format!("{name}:"), value.clone()]);
    }
    table.render()
}

pub(super) fn columns<T: Clone>(short: &[T], full: &[T], detail: Detail) -> Vec<T> {
    match detail {
        Detail::Short => short.to_vec(),
        Detail::Full => [short, full].concat(),
    }
}

/// The time that the current try took, or takes.
fn task_took(task: &Task, now: Timestamp) -> String {
    match (task.started_at, task.ended_at) {
        (Some(from), Some(to)) => age::of_task(task.queued_at, from, to),
        (from, to) => took(from, to, now),
    }
}

fn state(task: &Task) -> String {
    task.state.as_deref().unwrap_or("waiting").to_owned()
}

fn yes_or_no(is_it: bool) -> String {
    if is_it { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests;
