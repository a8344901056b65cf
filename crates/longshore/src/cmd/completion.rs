//! `longshore completion SHELL`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{
    cli::{Cli, help_end},
    error::CliError,
    exit::Exit,
    output,
};

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = help_end("source <(longshore completion bash)"))]
pub(crate) struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn print(args: &CompletionArgs) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "longshore", &mut script);
    output::text(&String::from_utf8_lossy(&script));
    Ok(Exit::Success)
}
