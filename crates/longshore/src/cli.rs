//! The command line: what all commands share, and which command it is.

use std::{
    ffi::{OsStr, OsString},
    process::ExitCode,
};

use clap::{ArgAction, Args, ColorChoice, Parser, Subcommand, ValueEnum};

use crate::{
    cmd,
    controller::config_file::with_peers_flags,
    error::CliError,
    exit::{self, Exit},
    output,
};

/// One crash-safe control plane for the work that people run on Kubernetes.
#[derive(Debug, Parser)]
#[command(
    name = "longshore",
    version,
    propagate_version = false,
    disable_help_subcommand = true,
    max_term_width = 100,
    // As clap's, with fewer empty lines: it has to fit the first screen.
    help_template = "{about-with-newline}{usage-heading} {usage}\nCommands:\n{subcommands}\nOptions:\n{options}{after-help}",
    after_help = help_end("longshore run examples/quickstart/dag.yaml")
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Arguments of every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Globals {
    /// Output: table, wide, json, yaml, name
    #[arg(
        short,
        long,
        global = true,
        display_order = 101,
        hide_possible_values = true,
        hide_default_value = true,
        value_name = "FORMAT",
        env = "LONGSHORE_OUTPUT",
        hide_env = true,
        default_value = "table"
    )]
    pub(crate) output: Format,
    /// Print no progress and no result
    #[arg(short, long, global = true, display_order = 102)]
    pub(crate) quiet: bool,
    /// Log more (-vv: everything)
    #[arg(short, long, global = true, display_order = 103, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Colours: auto, always, never
    // Hidden: the help has to fit the first screen, and `auto` is almost always right.
    #[arg(
        long,
        global = true,
        hide = true,
        value_name = "WHEN",
        env = "LONGSHORE_COLOR",
        hide_env = true,
        default_value = "auto"
    )]
    pub(crate) color: ColorChoice,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(cmd::run::RunArgs),
    Standalone(cmd::standalone::StandaloneArgs),
    Controller(Box<cmd::controller::ControllerArgs>),
    Uninstall(cmd::uninstall::UninstallArgs),
    #[command(subcommand, after_help = help_end("longshore dags lint dags/"))]
    Dags(cmd::Dags),
    #[command(subcommand, after_help = help_end("longshore runs watch etl"))]
    Runs(cmd::Runs),
    #[command(subcommand, after_help = help_end("longshore tasks list etl/latest"))]
    Tasks(cmd::Tasks),
    // Hidden: the help has to fit the first screen, and a task that waits for a pool names the command.
    #[command(subcommand, hide = true, after_help = help_end("longshore pools list"))]
    Pools(cmd::client::pools::Command),
    #[command(subcommand, after_help = help_end("longshore actions list"))]
    Actions(cmd::client::actions::Command),
    #[command(subcommand, after_help = help_end("longshore pods list -A"))]
    Pods(cmd::client::pods::Command),
    // Hidden: the help has to fit the first screen, and docs/flink.md names the command.
    #[command(subcommand, hide = true, after_help = help_end("longshore flink list -A"))]
    Flink(cmd::client::flink::Command),
    // Hidden: the help has to fit the first screen, and what is said about an image without an entry names the command.
    #[command(hide = true)]
    Images(cmd::client::images::ImagesArgs),
    Logs(cmd::client::logs::LogsArgs),
    Explain(cmd::explain::ExplainArgs),
    // Hidden: the help has to fit the first screen, and users who need completion look for it.
    #[command(hide = true)]
    Completion(cmd::completion::CompletionArgs),
    // Hidden: `-V` is listed, and says the same.
    #[command(hide = true)]
    Version(cmd::version::VersionArgs),
}

/// The end of a command's help: an example and the exit codes.
pub(crate) fn help_end(example: &str) -> String {
    format!("Example:\n  {example}\n{}", exit::HELP)
}

/// Whether a value comes from this flag, and not from a variable of the environment: other users see command lines.
pub(crate) fn is_on_command_line(
    flag: &str,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> bool {
    args.into_iter().any(|arg| {
        let arg = arg.as_ref().to_string_lossy();
        let rest = arg.strip_prefix(flag);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

/// Whether a command line that cannot be parsed asks for JSON.
fn wants_json(args: &[OsString], default: String) -> bool {
    let mut format = default;
    let mut args = args.iter().map(|arg| arg.to_string_lossy());
    while let Some(arg) = args.next().filter(|arg| arg != "--") {
        let rest = arg
            .strip_prefix("--output")
            .or_else(|| arg.strip_prefix("-o"));
        match rest {
            None => {}
            Some("") => format = args.next().unwrap_or_default().into_owned(),
            Some(value) => value.trim_start_matches('=').clone_into(&mut format),
        }
    }
    format == "json"
}

/// Runs the command that the arguments name, and says how the process is to end.
pub(crate) fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = with_peers_flags(args);
    #[expect(clippy::disallowed_methods, reason = "this is the binary")]
    let default = std::env::var("LONGSHORE_OUTPUT").unwrap_or_default();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(usage) => return ended(output::usage(&usage, wants_json(&args, default))),
    };
    output::set(&cli.globals);
    ended(match cmd::dispatch(&cli) {
        Ok(exit) => exit,
        Err(error) => {
            output::error(&error);
            error.exit()
        }
    })
}

/// A command whose output got lost has not succeeded, whatever else it did.
fn ended(exit: Exit) -> ExitCode {
    let Some(source) = output::loss() else {
        return exit.into();
    };
    let error = CliError::NotPrinted { source };
    output::error(&error);
    if exit == Exit::Success {
        return error.exit().into();
    }
    exit.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_on_the_command_line_is_found_and_no_longer_one() {
        const FLAG: &str = "--database-url";
        assert!(is_on_command_line(FLAG, ["a", "--database-url=x"]));
        assert!(is_on_command_line(FLAG, ["a", "--database-url", "x"]));
        assert!(!is_on_command_line(FLAG, ["a", "--database-url-file", "x"]));
    }

    #[test]
    fn a_wrong_command_line_says_whether_it_asks_for_json() {
        let wants_json = |line: &str| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            super::wants_json(&args, String::new())
        };
        for line in [
            "rum -o json",
            "rum -ojson",
            "rum --output json",
            "--output=json rum",
        ] {
            assert!(wants_json(line), "{line}");
        }
        for line in [
            "rum",
            "rum -o yaml",
            "rum -o",
            "rum -o json -o table",
            "rum -- -o json",
        ] {
            assert!(!wants_json(line), "{line}");
        }
    }
}
