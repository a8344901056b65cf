//! `longshore pods …`: the phases of pods under PodOpsLifecycle, and what holds them there.

use clap::{Args, Subcommand};
use longshore_console::objects::List;
use longshore_kit::{Clock, SystemClock};

use self::{cluster::Pods, view::PodView};
use super::{actions::ClusterArgs, block_on, print as printed};
use crate::{
    cli::{Globals, help_end},
    error::CliError,
    exit::Exit,
};

mod cluster;
mod explain;
mod print;
mod view;

pub(super) use self::cluster::refused;

/// See what pods under PodOpsLifecycle wait for
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(ListArgs),
    Get(GetArgs),
    Explain(ExplainArgs),
}

/// List pods with their phase and what holds them
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore pods list -A --held"))]
pub(crate) struct ListArgs {
    /// Only pods whose operation or deletion is held
    #[arg(long)]
    held: bool,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Print no header line
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Show a pod with its operations and everything that holds it
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore pods get web-0"))]
pub(crate) struct GetArgs {
    /// Name of the pod
    #[arg(value_name = "POD")]
    name: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Say why a pod does not go on, and what to do about it
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore pods explain web-0"))]
pub(crate) struct ExplainArgs {
    /// Name of the pod
    #[arg(value_name = "POD")]
    name: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs one of the commands.
pub(crate) fn dispatch(command: &Command, globals: &Globals) -> Result<Exit, CliError> {
    match command {
        Command::List(args) => list(args, globals),
        Command::Get(args) => {
            let pod = find(&args.name, &args.cluster)?;
            let text = |pod: &_| print::text(pod, SystemClock.now());
            printed::object(&pod, print::name, text, globals);
            Ok(Exit::Success)
        }
        Command::Explain(args) => {
            let pod = find(&args.name, &args.cluster)?;
            let text = |pod: &_| explain::text(pod, SystemClock.now());
            printed::object(&pod, print::name, text, globals);
            Ok(Exit::Success)
        }
    }
}

fn list(args: &ListArgs, globals: &Globals) -> Result<Exit, CliError> {
    let mut pods = block_on(async {
        let pods = Pods::connect(&args.cluster).await?;
        pods.list(args.all_namespaces.into()).await
    })?;
    pods.retain(|pod| !args.held || !pod.standing.blockers.is_empty());
    let pods = List::of(pods);
    let table = |detail| {
        let table = print::table(&pods.items, SystemClock.now(), detail);
        if args.no_headers {
            table.without_headers()
        } else {
            table
        }
    };
    printed::list(&pods, print::name, table, globals);
    Ok(Exit::Success)
}

fn find(name: &str, cluster: &ClusterArgs) -> Result<PodView, CliError> {
    block_on(async { Pods::connect(cluster).await?.get(name).await })
}
