//! `longshore actions …`: TaskActions of a cluster, through its Kubernetes API.

use std::time::Duration;

use clap::{Args, Subcommand};
use longshore_console::objects::List;
use longshore_kit::{Clock, SystemClock};

pub(super) use self::cluster::ClusterArgs;
use self::{cluster::Actions, view::Action};
use super::{block_on, confirm, print as printed};
use crate::{
    cli::{Globals, help_end},
    cmd::run::duration,
    error::CliError,
    exit::Exit,
};

mod cluster;
mod order;
mod print;
mod run;
mod view;
mod waiting;
mod watch;

/// Work with TaskActions of a cluster
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(ListArgs),
    Get(GetArgs),
    Watch(WatchArgs),
    Abort(AbortArgs),
    Run(run::RunArgs),
}

/// List TaskActions, newest first
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore actions list --run r262bp7cwq8cdd24fh4f"))]
pub(crate) struct ListArgs {
    /// Only actions of this run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Print no header line
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Show a TaskAction with its history
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore actions get hello-a0"))]
pub(crate) struct GetArgs {
    /// Name of the TaskAction
    #[arg(value_name = "ACTION")]
    name: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Follow a TaskAction to its end; Ctrl-C leaves it running
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore actions watch hello-a0"))]
pub(crate) struct WatchArgs {
    /// Name of the TaskAction
    #[arg(value_name = "ACTION")]
    name: String,
    /// Stop following after this long, as 90s or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// End a TaskAction and remove it, with what it made
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore actions abort hello-a0 --yes"))]
pub(crate) struct AbortArgs {
    /// Name of the TaskAction
    #[arg(value_name = "ACTION")]
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs one of the commands.
pub(crate) fn dispatch(command: &Command, globals: &Globals) -> Result<Exit, CliError> {
    match command {
        Command::List(args) => list(args, globals),
        Command::Get(args) => get(args, globals),
        Command::Watch(args) => watch::to_the_end(&args.name, args.timeout, &args.cluster, globals),
        Command::Abort(args) => abort(args, globals),
        Command::Run(args) => run::run(args, globals),
    }
}

fn list(args: &ListArgs, globals: &Globals) -> Result<Exit, CliError> {
    let objects = block_on(async {
        let actions = Actions::connect(&args.cluster).await?;
        if args.all_namespaces {
            actions.list_everywhere().await
        } else {
            actions.list().await
        }
    })?;
    let mut items: Vec<Action> = objects.iter().map(Action::of).collect();
    items.retain(|action| args.run.as_ref().is_none_or(|run| action.run == *run));
    items.sort_by(|a, b| (b.created_at, &a.name).cmp(&(a.created_at, &b.name)));
    let actions = List::of(items);
    let table = |detail| {
        let table = print::table(&actions.items, SystemClock.now(), detail);
        if args.no_headers {
            table.without_headers()
        } else {
            table
        }
    };
    printed::list(&actions, print::name, table, globals);
    Ok(Exit::Success)
}

fn get(args: &GetArgs, globals: &Globals) -> Result<Exit, CliError> {
    let action = block_on(async {
        let actions = Actions::connect(&args.cluster).await?;
        let object = actions.get(&args.name).await?;
        let mut action = Action::of(&object);
        if !action.is_over || action.is_deleting {
            let around = actions
                .around(&action.name, &action.run, &action.action)
                .await;
            action.waits_for = waiting::why(&object, &action, &around);
        }
        action.events = args.cluster.events(&action.run, &action.action);
        Ok(action)
    })?;
    let text = |action: &_| print::text(action, SystemClock.now());
    printed::object(&action, print::name, text, globals);
    Ok(Exit::Success)
}

fn abort(args: &AbortArgs, globals: &Globals) -> Result<Exit, CliError> {
    let action = block_on(async {
        let actions = Actions::connect(&args.cluster).await?;
        let object = actions.get(&args.name).await?;
        let action = Action::of(&object);
        if action.is_over {
            return Ok(action);
        }
        confirm(&format!("abort action {}", args.name), args.yes.into())?;
        actions.delete(&args.name, &object).await?;
        Ok(action)
    })?;
    let text = |action: &Action| match &action.phase {
        Some(phase) if action.is_over => {
            format!("action {} has ended already: {phase}\n", args.name)
        }
        _ => format!("action {} is being aborted\n", args.name),
    };
    printed::object(&action, print::name, text, globals);
    Ok(Exit::Success)
}
