//! One file per command.

use clap::Subcommand;

use crate::{
    cli::{Cli, Command, Globals},
    error::CliError,
    exit::Exit,
};

pub(crate) mod client;
pub(crate) mod completion;
pub(crate) mod controller;
pub(crate) mod dags_lint;
pub(crate) mod explain;
pub(crate) mod run;
pub(crate) mod shim;
pub(crate) mod standalone;
pub(crate) mod uninstall;
pub(crate) mod version;

/// Work with DAGs and DAG files
#[derive(Debug, Subcommand)]
pub(crate) enum Dags {
    Lint(dags_lint::LintArgs),
    List(client::dags::ListArgs),
    Show(client::dags::ShowArgs),
    Trigger(client::dags::TriggerArgs),
    Pause(client::dags::PauseArgs),
    Unpause(client::dags::UnpauseArgs),
}

/// Work with runs of a service
#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    List(client::runs::ListArgs),
    Get(client::runs::GetArgs),
    Watch(client::runs::WatchArgs),
    Cancel(client::runs::CancelArgs),
    Retry(client::runs::RetryArgs),
}

/// Work with the tasks of a run
#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    List(client::tasks::ListArgs),
    Get(client::tasks::GetArgs),
    Clear(client::tasks::ClearArgs),
}

/// Runs one command.
pub(crate) fn dispatch(cli: &Cli) -> Result<Exit, CliError> {
    let globals = &cli.globals;
    match &cli.command {
        Command::Run(args) => run::run(args, globals),
        Command::Standalone(args) => standalone::standalone(args, globals),
        Command::Controller(args) => controller::controller(args, globals),
        Command::Uninstall(args) => uninstall::uninstall(args, globals),
        Command::Dags(dags) => dispatch_dags(dags, globals),
        Command::Runs(Runs::List(args)) => client::runs::list(args, globals),
        Command::Runs(Runs::Get(args)) => client::runs::get(args, globals),
        Command::Runs(Runs::Watch(args)) => client::runs::watch(args, globals),
        Command::Runs(Runs::Cancel(args)) => client::runs::cancel(args, globals),
        Command::Runs(Runs::Retry(args)) => client::runs::retry(args, globals),
        Command::Tasks(Tasks::List(args)) => client::tasks::list(args, globals),
        Command::Tasks(Tasks::Get(args)) => client::tasks::get(args, globals),
        Command::Tasks(Tasks::Clear(args)) => client::tasks::clear(args, globals),
        Command::Pools(command) => client::pools::dispatch(command, globals),
        Command::Actions(command) => client::actions::dispatch(command, globals),
        Command::Pods(command) => client::pods::dispatch(command, globals),
        Command::Flink(command) => client::flink::dispatch(command, globals),
        Command::Images(args) => client::images::list(args, globals),
        Command::Logs(args) => client::logs::logs(args, globals),
        Command::Explain(args) => explain::explain(args, globals),
        Command::Completion(args) => completion::print(args),
        Command::Version(_) => version::print(globals),
    }
}

fn dispatch_dags(dags: &Dags, globals: &Globals) -> Result<Exit, CliError> {
    match dags {
        Dags::Lint(args) => dags_lint::lint(args, globals),
        Dags::List(args) => client::dags::list(args, globals),
        Dags::Show(args) => client::dags::show(args, globals),
        Dags::Trigger(args) => client::dags::trigger(args, globals),
        Dags::Pause(args) => client::dags::pause(args, globals),
        Dags::Unpause(args) => client::dags::unpause(args, globals),
    }
}
