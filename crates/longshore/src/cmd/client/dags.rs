//! `longshore dags list|show|trigger|pause|unpause`.

use clap::Args;
use jiff::Timestamp;
use longshore_console::objects::{DagPatch, List, Trigger};
use longshore_kit::{Clock, SystemClock};
use serde_json::Value;

use super::{ServerArgs, block_on, print, watch};
use crate::{
    cli::{Globals, help_end},
    cmd::run::param,
    error::CliError,
    exit::Exit,
    output,
};

/// List the DAGs of a service
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore dags list -o wide"))]
pub(crate) struct ListArgs {
    /// Print no header line
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Show a DAG with its parameters and tasks
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore dags show etl"))]
pub(crate) struct ShowArgs {
    /// The DAG
    dag: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Start a run of a DAG
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore dags trigger etl --param day=2026-11-21 --watch"))]
pub(crate) struct TriggerArgs {
    /// The DAG
    dag: String,
    /// Set a parameter; VALUE is JSON or text
    #[arg(short, long = "param", value_name = "NAME=VALUE", value_parser = param)]
    params: Vec<(String, Value)>,
    /// Name of the run [default: made from the time]
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// The instant that the run is about [default: now]
    #[arg(long, value_name = "TIME")]
    logical_date: Option<Timestamp>,
    /// Follow the run to its end
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Hold the schedules of DAGs: no new runs, those that run go on
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore dags pause etl"))]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    of: PauseOf,
}

/// Let the schedules of DAGs go on
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore dags unpause etl"))]
pub(crate) struct UnpauseArgs {
    #[command(flatten)]
    of: PauseOf,
}

#[derive(Args, Debug)]
struct PauseOf {
    /// The DAGs
    #[arg(required = true, value_name = "DAG")]
    dags: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn list(args: &ListArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.server.connect()?;
    let (dags, broken) =
        block_on(async { Ok((client.dags().await?, client.import_errors().await?)) })?;
    let table = |detail| {
        let table = print::dags(&dags.items, SystemClock.now(), detail);
        if args.no_headers {
            table.without_headers()
        } else {
            table
        }
    };
    print::list(&dags, print::dag_name, table, globals);
    if !globals.quiet {
        for error in &broken.items {
            output::note(&print::import_error(error));
        }
    }
    Ok(Exit::Success)
}

pub(crate) fn show(args: &ShowArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.server.connect()?;
    let dag = block_on(async { Ok(client.dag(&args.dag).await?) })?;
    print::object(&dag, print::dag_name, print::dag, globals);
    Ok(Exit::Success)
}

pub(crate) fn trigger(args: &TriggerArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.server.connect()?;
    let order = Trigger {
        run_id: args.run_id.clone(),
        params: args.params.iter().cloned().collect(),
        logical_date: args.logical_date,
    };
    let run = block_on(async { Ok(client.trigger(&args.dag, &order).await?) })?;
    let name = longshore_console::RunName {
        dag_id: run.dag_id.clone(),
        run_id: run.run_id.clone(),
    };
    if args.watch {
        return watch::to_the_end(&client, name, None, &args.server, globals);
    }
    let text = |_: &_| format!("run {name} {}\n", run.state);
    print::object(&run, print::run_name, text, globals);
    if !globals.quiet {
        let flags = args.server.flags();
        output::note(&format!("watch it: longshore runs watch {name}{flags}"));
    }
    Ok(Exit::Success)
}

pub(crate) fn pause(args: &PauseArgs, globals: &Globals) -> Result<Exit, CliError> {
    set_paused(&args.of, true, globals)
}

pub(crate) fn unpause(args: &UnpauseArgs, globals: &Globals) -> Result<Exit, CliError> {
    set_paused(&args.of, false, globals)
}

fn set_paused(of: &PauseOf, is_paused: bool, globals: &Globals) -> Result<Exit, CliError> {
    let client = of.server.connect()?;
    let patch = DagPatch {
        is_paused: Some(is_paused),
    };
    let dags = block_on(async {
        let mut dags = Vec::new();
        // All or none: a name that is no DAG is found before anything changes.
        for dag_id in &of.dags {
            client.dag(dag_id).await?;
        }
        for dag_id in &of.dags {
            dags.push(client.patch_dag(dag_id, &patch).await?);
        }
        Ok(List::of(dags))
    })?;
    let table = |detail| print::dags(&dags.items, SystemClock.now(), detail);
    print::list(&dags, print::dag_name, table, globals);
    Ok(Exit::Success)
}
