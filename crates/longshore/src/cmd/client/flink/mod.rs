//! `longshore flink …`: the Flink jobs and session clusters of a cluster, and what an upgrade waits for.

use clap::{Args, Subcommand};
use longshore_console::objects::List;
use longshore_kit::{Clock, SystemClock};
use serde_json::json;

use self::{
    cluster::{Place, Resources},
    view::FlinkView,
};
use super::{actions::ClusterArgs, block_on, print as printed};
use crate::{
    cli::{Format, Globals, help_end},
    controller::{namespaces::namespace, rbac},
    error::CliError,
    exit::Exit,
    output, service,
};

mod cluster;
mod print;
mod view;

/// See Flink's jobs and session clusters, and what their upgrades wait for
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(ListArgs),
    Get(GetArgs),
    Account(AccountArgs),
}

/// List FlinkDeployments and FlinkSessionJobs
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore flink list -A"))]
pub(crate) struct ListArgs {
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Print no header line
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Show a FlinkDeployment or FlinkSessionJob, its state, and what it waits for
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore flink get basic-example"))]
pub(crate) struct GetArgs {
    /// Name of the FlinkDeployment, or else of the FlinkSessionJob
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Print the service account of JobManagers, with the rights that they need in a namespace
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore flink account -n team | kubectl apply -f -"))]
pub(crate) struct AccountArgs {
    /// Namespace of the FlinkDeployments
    #[arg(
        short,
        long,
        value_name = "NAMESPACE",
        default_value = "default",
        value_parser = namespace
    )]
    namespace: String,
}

/// Runs one of the commands.
pub(crate) fn dispatch(command: &Command, globals: &Globals) -> Result<Exit, CliError> {
    match command {
        Command::List(args) => list(args, globals),
        Command::Get(args) => get(args, globals),
        Command::Account(args) => {
            account(args, globals);
            Ok(Exit::Success)
        }
    }
}

fn list(args: &ListArgs, globals: &Globals) -> Result<Exit, CliError> {
    let place = if args.all_namespaces {
        Place::Everywhere
    } else {
        Place::Here
    };
    let found = block_on(async { Resources::connect(&args.cluster).await?.list(place).await })?;
    let found = List::of(found);
    let table = |detail| {
        let table = print::table(&found.items, SystemClock.now(), detail);
        if args.no_headers {
            table.without_headers()
        } else {
            table
        }
    };
    printed::list(&found, print::name, table, globals);
    Ok(Exit::Success)
}

fn get(args: &GetArgs, globals: &Globals) -> Result<Exit, CliError> {
    let found: FlinkView = block_on(async {
        let resources = Resources::connect(&args.cluster).await?;
        resources.get(&args.name).await
    })?;
    let text = |found: &_| print::text(found, SystemClock.now());
    printed::object(&found, print::name, text, globals);
    Ok(Exit::Success)
}

fn account(args: &AccountArgs, globals: &Globals) {
    let account = service::flink::account(&args.namespace);
    let objects = account.map(|(_, object)| object);
    match globals.output {
        Format::Json => {
            output::json(&json!({"apiVersion": "v1", "kind": "List", "items": objects}));
        }
        Format::Table | Format::Wide | Format::Yaml | Format::Name => {
            output::text(&rbac::yaml(&objects));
        }
    }
}
