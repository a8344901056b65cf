//! `longshore tasks list|get|clear`.

use clap::Args;
use longshore_console::objects::Clear;
use longshore_kit::{Clock, SystemClock};

use super::{RunTarget, ServerArgs, TaskTarget, block_on, confirm, print};
use crate::{
    cli::{Globals, help_end},
    error::CliError,
    exit::Exit,
};

/// List the tasks of a run
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore tasks list etl/latest --state failed"))]
pub(crate) struct ListArgs {
    /// DAG/RUN; DAG alone or DAG/latest is its newest run
    #[arg(value_name = "RUN")]
    run: RunTarget,
    /// Only in these states, as running,failed
    #[arg(
        long,
        value_name = "STATE,...",
        default_value = "",
        hide_default_value = true
    )]
    state: String,
    /// Print no header line
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Show a task of a run with its tries
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore tasks get etl/latest/extract"))]
pub(crate) struct GetArgs {
    /// DAG/RUN/TASK; RUN may be latest
    #[arg(value_name = "TASK")]
    task: TaskTarget,
    #[command(flatten)]
    server: ServerArgs,
}

/// Let a task of a run run again
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore tasks clear etl/latest/extract --downstream --yes"))]
pub(crate) struct ClearArgs {
    /// DAG/RUN/TASK; RUN may be latest
    #[arg(value_name = "TASK")]
    task: TaskTarget,
    /// The tasks that wait for it too
    #[arg(short, long)]
    downstream: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn list(args: &ListArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.server.connect()?;
    let tasks = block_on(async {
        let run = args.run.resolve(&client).await?;
        Ok(client.tasks(&run, &args.state).await?)
    })?;
    let table = |detail| {
        let table = print::tasks(&tasks.items, SystemClock.now(), detail);
        if args.no_headers {
            table.without_headers()
        } else {
            table
        }
    };
    print::list(&tasks, print::full_task_name, table, globals);
    Ok(Exit::Success)
}

pub(crate) fn get(args: &GetArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.server.connect()?;
    let task = block_on(async {
        let task = args.task.resolve(&client).await?;
        Ok(client.task(&task).await?)
    })?;
    let text = |task: &_| print::task(task, SystemClock.now());
    print::object(&task, print::full_task_name, text, globals);
    Ok(Exit::Success)
}

pub(crate) fn clear(args: &ClearArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.server.connect()?;
    let clear = Clear {
        downstream: args.downstream,
    };
    let tasks = block_on(async {
        let task = args.task.resolve(&client).await?;
        confirm(&format!("clear task {task}"), args.yes.into())?;
        Ok(client.clear(&task, &clear).await?)
    })?;
    let table = |detail| print::tasks(&tasks.items, SystemClock.now(), detail);
    print::list(&tasks, print::full_task_name, table, globals);
    Ok(Exit::Success)
}
