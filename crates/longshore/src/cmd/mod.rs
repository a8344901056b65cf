//! One file per command.

use std::process::ExitCode;

use clap::Subcommand;

use crate::{
    cli::{Cli, Command},
    error::CliError,
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
pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode, CliError> {
    let globals = &cli.globals;
    let exit = match &cli.command {
        Command::Shim(args) => return Ok(shim::run(args)),
        Command::Run(args) => run::run(args, globals),
        Command::Dags(Dags::Lint(args)) => dags_lint::lint(args, globals),
        Command::Explain(args) => explain::explain(args),
        Command::Completion(args) => completion::print(args),
        Command::Version(_) => version::print(globals),
    }?;
    Ok(exit.into())
}
