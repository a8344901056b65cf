//! One file per command.

use clap::Subcommand;

use crate::{
    cli::{Cli, Command},
    error::CliError,
    exit::Exit,
};

pub(crate) mod completion;
pub(crate) mod dags_lint;
pub(crate) mod explain;
pub(crate) mod run;
pub(crate) mod shim;
pub(crate) mod version;

/// Work with DAG files
#[derive(Debug, Subcommand)]
pub(crate) enum Dags {
    Lint(dags_lint::LintArgs),
}

/// Runs one command.
pub(crate) fn dispatch(cli: Cli) -> Result<Exit, CliError> {
    let globals = &cli.globals;
    match &cli.command {
        Command::Run(args) => run::run(args, globals),
        Command::Dags(Dags::Lint(args)) => dags_lint::lint(args, globals),
        Command::Explain(args) => explain::explain(args),
        Command::Completion(args) => completion::print(args),
        Command::Version(_) => version::print(globals),
        Command::Shim(args) => shim::run(args),
    }
}
