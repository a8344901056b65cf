//! The report of an ended run: how it ended, why, where its outputs and logs are, and how to resume it.

use std::{fmt::Write, path::Path};

use comfy_table::{Table, presets};
use longshore_store::{Failure, RunKey, RunState, TaskState};
use serde_json::{Value, json};

use crate::{
    cli::{Format, Globals},
    cmd::run::{follow::Outcome, resume, tail},
    data_dir::DataDirArgs,
    engine::{End, TaskEnd},
    error::{counted, render},
    exit::Exit,
    kubernetes::ClusterArgs,
    output::{self, DIM},
    printable::one_line,
    progress::{
        age,
        lines::{run_word, task_name, task_word},
    },
};

/// Lines of its log that a failed task shows.
pub(crate) const LOG_LINES: usize = 10;
/// Failed tasks that are shown in full; the rest is counted.
pub(crate) const MAX_FAILURES: usize = 10;
/// Runs with more tasks are summed up instead of listed, unless the output is wide.
const MAX_LISTED_TASKS: usize = 30;

/// A run at its end, and how it was started.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) end: &'a End,
    pub(crate) outcome: Outcome,
    pub(crate) file: &'a Path,
    pub(crate) data_dir: &'a DataDirArgs,
    pub(crate) cluster: &'a ClusterArgs,
}

impl Report<'_> {
    /// How the process is to end.
    pub(crate) fn exit(&self) -> Exit {
        match (self.outcome, self.end.run.state) {
            (Outcome::Interrupted, _) => Exit::Interrupted,
            (Outcome::TimedOut, _) => Exit::TimedOut,
            (Outcome::Ended, RunState::Success) => Exit::Success,
            (Outcome::Ended, RunState::Failed | RunState::Queued | RunState::Running) => {
                Exit::RunFailed
            }
        }
    }

    /// Prints the result to stdout and, for people, the errors to stderr.
    pub(crate) fn print(&self, globals: &Globals) {
        match globals.output {
            Format::Json => return output::json(&self.object()),
            Format::Yaml => output::yaml(&self.object()),
            Format::Name => output::line(&format!("run/{}", self.end.run.key.run_id)),
            Format::Table if globals.quiet => {}
            Format::Table => output::text(&self.text(Detail::Short)),
            Format::Wide => output::text(&self.text(Detail::Full)),
        }
        if let Some(trouble) = self.trouble() {
            output::note(&trouble);
        }
    }

    /// The result for a program. Field names are an interface.
    fn object(&self) -> Value {
        let run = &self.end.run;
        json!({
            "kind": "RunResult",
            "dagId": run.key.dag_id,
            "runId": run.key.run_id,
            "state": run.state,
            "reason": run.reason,
            "code": self.code(),
            "exitCode": self.exit().code(),
            "queuedAt": run.queued_at,
            "startedAt": run.start_date,
            "endedAt": run.end_date,
            "workspace": self.end.workspace.as_ref().map(ToString::to_string),
            "logs": self.end.logs,
            "resume": self.resume_command(),
            "tasks": self.end.tasks.iter().map(task_object).collect::<Vec<_>>(),
        })
    }

    /// The result for a person.
    fn text(&self, detail: Detail) -> String {
        let run = &self.end.run;
        let took = match (run.start_date, run.end_date) {
            (Some(from), Some(to)) => format!(" in {}", age::between(from, to)),
            _ => String::new(),
        };
        let mut text = format!(
            "{}  run {}  {}{took}  {}\n",
            run.key.dag_id,
            run.key.run_id,
            self.word(),
            self.counts()
        );
        if detail == Detail::Full || self.end.tasks.len() <= MAX_LISTED_TASKS {
            let _ = write!(text, "\n{}\n\n", self.table(detail));
        }
        if let Some(workspace) = &self.end.workspace {
            let _ = writeln!(text, "outputs  {workspace}");
        }
        let _ = writeln!(text, "logs     {}", self.end.logs.display());
        if self.data_dir.ephemeral {
            text.push_str("         (--ephemeral: both are removed now)\n");
        }
        text
    }

    /// The state, for a person: a run that waits for `--resume` is `queued` on record, as one that begins soon.
    fn word(&self) -> &'static str {
        match self.outcome {
            Outcome::Ended => run_word(self.end.run.state),
            Outcome::Interrupted | Outcome::TimedOut => "interrupted",
        }
    }

    /// `8 tasks: 7 success, 1 failed`
    fn counts(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for task in &self.end.tasks {
            let word = task_word(task.task_instance.state);
            match counts.iter_mut().find(|(known, _)| *known == word) {
                Some((_, n)) => *n += 1,
                None => counts.push((word, 1)),
            }
        }
        let counts: Vec<String> = counts
            .iter()
            .map(|(word, n)| format!("{n} {word}"))
            .collect();
        format!(
            "{}: {}",
            counted(self.end.tasks.len(), "task"),
            counts.join(", ")
        )
    }

    fn table(&self, detail: Detail) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut header = vec!["TASK", "STATE", "TRY", "TOOK"];
        if detail == Detail::Full {
            header.extend(["POD", "LOG"]);
        }
        table.set_header(header);
        for task in &self.end.tasks {
            table.add_row(table_row(task, detail));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let lines: Vec<String> = table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        lines.join("\n")
    }

    /// What went wrong and what to do, for a person; `None` when all is well.
    fn trouble(&self) -> Option<String> {
        let mut text = String::new();
        match self.outcome {
            Outcome::Ended if self.end.run.state == RunState::Success => return None,
            Outcome::Ended => self.write_failures(&mut text),
            Outcome::Interrupted => text.push_str("stopped; nothing is lost"),
            Outcome::TimedOut => {
                let message = format!("run {} did not end in time", self.end.run.key);
                text.push_str(&render::headline("LS1381", &message));
            }
        }
        let _ = write!(text, "\n{DIM}help:{DIM:#} {}", one_line(&self.help()));
        Some(text)
    }

    fn write_failures(&self, text: &mut String) {
        let is_failed = |task: &&TaskEnd| task.task_instance.state == Some(TaskState::Failed);
        let failed: Vec<&TaskEnd> = self.end.tasks.iter().filter(is_failed).collect();
        let shown: Vec<FailedTask<'_>> = failed
            .iter()
            .take(MAX_FAILURES)
            .map(|task| failed_task(task))
            .collect();
        write_failures(text, &shown, failed.len());
        let run = &self.end.run;
        let why = run
            .reason
            .as_deref()
            .map(|why| format!(" ({why})"))
            .unwrap_or_default();
        let message = format!("run {} failed{why}: {}", run.key, self.counts());
        text.push_str(&render::headline("LS1380", &message));
    }

    fn help(&self) -> String {
        match (self.outcome, self.resume_command()) {
            (Outcome::Interrupted | Outcome::TimedOut, Some(command)) => {
                format!("go on with: {command}")
            }
            (Outcome::Interrupted | Outcome::TimedOut, None) => {
                "with --ephemeral there is nothing to go on with; start again without it".to_owned()
            }
            (Outcome::Ended, _) => format!(
                "correct the cause, then start again: {}",
                resume::again(self.file, self.data_dir, self.cluster)
            ),
        }
    }

    /// How to go on, where there is something left to do.
    fn resume_command(&self) -> Option<String> {
        if self.outcome == Outcome::Ended {
            return None;
        }
        resume::command(self.file, self.data_dir, self.cluster, &self.end.run.key)
    }

    fn code(&self) -> Option<&'static str> {
        match self.exit() {
            Exit::RunFailed => Some("LS1380"),
            Exit::TimedOut => Some("LS1381"),
            Exit::Success
            | Exit::Failure
            | Exit::Usage
            | Exit::NotFoundOrUnsupported
            | Exit::NotAuthorised
            | Exit::Interrupted => None,
        }
    }
}

/// Prints how to resume a run, when a second interrupt ends the process before the run has stopped.
pub(crate) fn abandoned(run: &RunKey, resume: Option<&str>, globals: &Globals) {
    if globals.output == Format::Json {
        output::json(&json!({
            "kind": "RunAbandoned",
            "dagId": run.dag_id,
            "runId": run.run_id,
            "exitCode": Exit::Interrupted.code(),
            "resume": resume,
        }));
    }
    let how = resume.map_or_else(
        || "with --ephemeral there is nothing to go on with".to_owned(),
        |resume| format!("go on with: {resume}"),
    );
    output::note(&format!(
        "left at once; nothing is lost\n{DIM}help:{DIM:#} {how}"
    ));
}

/// How much a table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    Short,
    Full,
}

fn table_row(task: &TaskEnd, detail: Detail) -> Vec<String> {
    let row = &task.task_instance;
    let took = match (row.start_date, row.end_date) {
        (Some(from), Some(to)) => age::of_task(row.queued_at, from, to),
        _ => String::new(),
    };
    let try_number = if row.try_number == 0 {
        String::new()
    } else {
        row.try_number.to_string()
    };
    let mut cells = vec![
        task_name(&row.key.task_id, row.key.map_index),
        task_word(row.state).to_owned(),
        try_number,
        took,
    ];
    if detail == Detail::Full {
        cells.push(row.pod_name.clone().unwrap_or_default());
        cells.push(
            task.log
                .as_ref()
                .map(|log| log.display().to_string())
                .unwrap_or_default(),
        );
    }
    cells
}

/// A task that failed, for people.
#[derive(Debug)]
pub(crate) struct FailedTask<'a> {
    pub(crate) name: String,
    pub(crate) try_number: u32,
    pub(crate) failure: Option<&'a Failure>,
    /// Where the log is, or the command that prints it, and its last lines.
    pub(crate) log: Option<(String, Result<Vec<String>, String>)>,
}

fn failed_task(task: &TaskEnd) -> FailedTask<'_> {
    let row = &task.task_instance;
    let log = task.log.as_ref().map(|log| {
        let lines = tail::tail(log, LOG_LINES).map_err(|why| why.to_string());
        (log.display().to_string(), lines)
    });
    FailedTask {
        name: task_name(&row.key.task_id, row.key.map_index),
        try_number: row.try_number,
        failure: row.failure.as_ref(),
        log,
    }
}

/// Which tasks failed, why, where their logs are, and the ends of these. `n_failed` counts those that are not shown, too.
pub(crate) fn write_failures(text: &mut String, shown: &[FailedTask<'_>], n_failed: usize) {
    for task in shown {
        write_failure(text, task);
    }
    if n_failed > shown.len() {
        let n_more = n_failed - shown.len();
        let _ = writeln!(text, "… and {n_more} more failed tasks");
    }
}

fn write_failure(text: &mut String, task: &FailedTask<'_>) {
    let why = task
        .failure
        .map_or("for an unknown reason", |failure| &failure.message);
    let (name, try_number) = (&task.name, task.try_number);
    let message = format!("task {name} failed in try {try_number}: {why}");
    let code = task.failure.map_or("LS1202", failure_code);
    let _ = writeln!(text, "{}", render::headline(code, &message));
    let Some((place, lines)) = &task.log else {
        return;
    };
    let _ = writeln!(text, "  {DIM}log:{DIM:#} {}", one_line(place));
    match lines {
        Ok(lines) => {
            for line in lines {
                let _ = writeln!(text, "  {DIM}|{DIM:#} {line}");
            }
        }
        Err(why) => {
            let why = one_line(why);
            let _ = writeln!(text, "  {DIM}|{DIM:#} (the log cannot be read: {why})");
        }
    }
}

/// The error code for the end of a pod.
fn failure_code(failure: &Failure) -> &'static str {
    match (failure.reason.as_deref(), failure.exit_code) {
        (Some("StartError" | "ContainerCannotRun"), _) | (_, Some(126..=128)) => "LS1203",
        (Some("OOMKilled"), _) => "LS1204",
        (Some("DeadlineExceeded"), _) => "LS1205",
        (Some("LaunchBuildFailed"), _) => "LS1206",
        (_, Some(_)) => "LS1201",
        (_, None) => "LS1202",
    }
}

fn task_object(task: &TaskEnd) -> Value {
    let row = &task.task_instance;
    json!({
        "taskId": row.key.task_id,
        "mapIndex": row.key.map_index,
        "state": row.state,
        "tryNumber": row.try_number,
        "startedAt": row.start_date,
        "endedAt": row.end_date,
        "pod": row.pod_name,
        "result": row.result,
        "resultNote": row.result_note,
        "log": task.log,
        "failure": row.failure.as_ref().map(|failure| json!({
            "code": failure_code(failure),
            "message": failure.message,
            "reason": failure.reason,
            "exitCode": failure.exit_code,
            "container": failure.container,
        })),
    })
}

#[cfg(test)]
mod tests;
