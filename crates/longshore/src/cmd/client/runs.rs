//! `longshore runs list|get|watch|cancel|retry`.

use std::time::Duration;

use clap::Args;
use longshore_console::objects::{Run, Task};
use longshore_kit::{Clock, SystemClock};
use serde::Serialize;

use super::{RunTarget, ServerArgs, block_on, confirm, print, watch};
use crate::{
    cli::{Format, Globals, help_end},
    cmd::run::duration,
    error::CliError,
    exit::Exit,
    output,
};

/// List runs, newest first
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore runs list etl --state running,failed"))]
pub(crate) struct ListArgs {
    /// Only runs of this DAG
    dag: Option<String>,
    /// Only in these states: queued, running, success, failed
    #[arg(long, value_name = "STATE,...")]
    state: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Go on where the page before ended
    #[arg(long = "continue", value_name = "TOKEN")]
    next: Option<String>,
    /// Print no header line
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Show a run with its tasks
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore runs get etl/latest"))]
pub(crate) struct GetArgs {
    #[command(flatten)]
    of: Of,
}

/// Follow a run to its end; Ctrl-C leaves it running
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore runs watch etl"))]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    of: Of,
    /// Stop following after this long, as 90s or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
}

/// End a run: its pods are stopped within their grace
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore runs cancel etl/latest --yes"))]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    of: Of,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Run again what did not get done in a run
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore runs retry etl/latest --watch"))]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    of: Of,
    /// Follow the run to its end
    #[arg(short, long)]
    watch: bool,
}

#[derive(Args, Debug)]
struct Of {
    /// DAG/RUN; DAG alone or DAG/latest is its newest run
    #[arg(value_name = "RUN")]
    run: RunTarget,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn list(args: &ListArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.server.connect()?;
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(args.dag.iter().map(|dag| ("dagId", dag.clone())));
    query.extend(args.state.iter().map(|state| ("state", state.clone())));
    query.extend(args.next.iter().map(|next| ("continue", next.clone())));
    let runs = block_on(async { Ok(client.runs(&query).await?) })?;
    let table = |detail| {
        let table = print::runs(&runs.items, SystemClock.now(), detail);
        if args.no_headers {
            table.without_headers()
        } else {
            table
        }
    };
    print::list(&runs, print::run_name, table, globals);
    if let Some(next) = &runs.next
        && matches!(globals.output, Format::Table | Format::Wide)
    {
        output::note(&format!("there are more: add --continue {next}"));
    }
    Ok(Exit::Success)
}

/// A run as a program gets it.
#[derive(Serialize)]
struct WithTasks {
    #[serde(flatten)]
    run: Run,
    tasks: Vec<Task>,
}

pub(crate) fn get(args: &GetArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.of.server.connect()?;
    let run = block_on(async {
        let name = args.of.run.resolve(&client).await?;
        Ok(WithTasks {
            run: client.run(&name).await?,
            tasks: client.tasks(&name, "").await?.items,
        })
    })?;
    let now = SystemClock.now();
    let text = |run: &WithTasks| {
        let detail = match globals.output {
            Format::Wide => print::Detail::Full,
            Format::Table | Format::Json | Format::Yaml | Format::Name => print::Detail::Short,
        };
        let tasks = print::tasks(&run.tasks, now, detail).render();
        format!("{}\n{tasks}", print::run(&run.run, now))
    };
    print::object(&run, |run| print::run_name(&run.run), text, globals);
    Ok(Exit::Success)
}

pub(crate) fn watch(args: &WatchArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.of.server.connect()?;
    let name = block_on(args.of.run.resolve(&client))?;
    watch::to_the_end(&client, name, args.timeout, &args.of.server, globals)
}

pub(crate) fn cancel(args: &CancelArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.of.server.connect()?;
    let run = block_on(async {
        let name = args.of.run.resolve(&client).await?;
        confirm(&format!("cancel run {name}"), args.yes.into())?;
        Ok(client.cancel(&name).await?)
    })?;
    let text = |run: &_| format!("run {} is being cancelled\n", print::run_name(run));
    print::object(&run, print::run_name, text, globals);
    Ok(Exit::Success)
}

pub(crate) fn retry(args: &RetryArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.of.server.connect()?;
    let (name, tasks) = block_on(async {
        let name = args.of.run.resolve(&client).await?;
        let tasks = client.retry(&name).await?;
        Ok((name, tasks))
    })?;
    if args.watch {
        return watch::to_the_end(&client, name, None, &args.of.server, globals);
    }
    let table = |detail| print::tasks(&tasks.items, SystemClock.now(), detail);
    print::list(&tasks, print::full_task_name, table, globals);
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_for_a_program_has_its_tasks() {
        let run = WithTasks {
            run: Run {
                run_id: "r1".to_owned(),
                ..Run::default()
            },
            tasks: vec![Task {
                task_id: "a".to_owned(),
                ..Task::default()
            }],
        };
        let object = serde_json::to_value(run).unwrap();
        assert_eq!(
            (&object["kind"], &object["runId"]),
            (&"Run".into(), &"r1".into())
        );
        assert_eq!(object["tasks"][0]["taskId"], "a");
    }
}
