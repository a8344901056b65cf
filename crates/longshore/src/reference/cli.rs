//! `docs/reference/cli.md`: every command with its arguments, as clap has them.

use clap::{Arg, Command, CommandFactory};

use super::{
    head, is_in_the_repository,
    markdown::{code, table},
};
use crate::{cli::Cli, exit};

/// Variables that no flag names, and what they do.
const VARIABLES: [(&str, &str); 6] = [
    (
        "LONGSHORE_LOG",
        "What is logged, as directives of `tracing`, for example `warn,longshore_tasks=debug`. Wins over `-v`.",
    ),
    (
        "KUBECONFIG",
        "The kubeconfig files of `--context` and `--namespace`, as for kubectl, where no `--kubeconfig` is given.",
    ),
    (
        "HOME",
        "Where the data directory is, where neither `--data-dir` nor its variable names one.",
    ),
    (
        "POD_NAMESPACE",
        "The namespace of the executor of TaskActions, whose PodTemplates serve all other namespaces.",
    ),
    (
        "AWS_*, GOOGLE_*, AZURE_*, IDENTITY_ENDPOINT",
        "Credentials of object stores, where the configuration of the storage has none.",
    ),
    (
        "RUST_BACKTRACE",
        "With any value but `0`, an internal error shows where it happened.",
    ),
];

#[test]
fn the_reference_of_commands_is_what_clap_has() {
    is_in_the_repository("docs/reference/cli.md", &page());
}

#[test]
fn every_command_and_every_argument_says_what_it_is_for() {
    let mut silent = Vec::new();
    visit(&root(), &mut |path, command| {
        if command.get_about().is_none() {
            silent.push(path.to_owned());
        }
        let arguments = command.get_arguments();
        silent.extend(
            arguments
                .filter(|arg| help(arg).is_empty())
                .map(|arg| format!("{path} {}", arg.get_id())),
        );
    });
    assert_eq!(silent, [] as [String; 0]);
}

fn page() -> String {
    let mut page = head(
        "Commands and flags",
        "Every command of `longshore`, with its arguments, their defaults and their environment variables. \
         A flag wins over its variable, and the variable over the default. `longshore COMMAND --help` shows those that \
         are used most.",
    );
    let root = root();
    page += "\n## Flags of every command\n\n";
    page += &arguments(root.get_arguments().filter(|arg| is_shown(arg)));
    visit(&root, &mut |path, command| {
        if path != root.get_name() {
            page += &section(path, command);
        }
    });
    page += "\n## Exit codes\n\n";
    page += exit::HELP.trim_start_matches("Exit codes: ");
    page += ".\n\n## Environment variables without a flag\n\n";
    let rows = VARIABLES.map(|(name, what)| [code(name), what.to_owned()]);
    page += &table(["Variable", "What it does"], rows);
    page
}

/// With what clap adds itself, as the names of commands in usages.
fn root() -> Command {
    let mut root = Cli::command();
    root.build();
    root
}

/// Each command after its parent, in the order of the source.
fn visit(root: &Command, see: &mut impl FnMut(&str, &Command)) {
    fn each(path: &str, command: &Command, see: &mut impl FnMut(&str, &Command)) {
        see(path, command);
        for child in command.get_subcommands() {
            each(&format!("{path} {}", child.get_name()), child, see);
        }
    }
    each(root.get_name(), root, see);
}

fn section(path: &str, command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string);
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let mut section = format!(
        "\n## `{path}`\n\n{}.\n\n```\n{usage}\n```\n",
        about.unwrap_or_default()
    );
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| is_shown(arg) && !arg.is_global_set())
        .collect();
    if !own.is_empty() {
        section += "\n";
        section += &arguments(own);
    }
    let end = command.get_after_help().map(ToString::to_string);
    let end = end.unwrap_or_default();
    let example = end.lines().find_map(|line| line.strip_prefix("  "));
    if let Some(example) = example {
        section += &format!("\nExample: `{example}`\n");
    }
    section
}

/// Whether this program declares the argument: clap adds `help` and `version`.
fn is_shown(arg: &Arg) -> bool {
    !["help", "version"].contains(&arg.get_id().as_str())
}

fn arguments<'a>(arguments: impl IntoIterator<Item = &'a Arg>) -> String {
    let rows = arguments.into_iter().map(|arg| {
        let (meaning, in_text) = meaning(arg);
        let env = arg
            .get_env()
            .map(|name| name.to_string_lossy().into_owned());
        [
            names(arg),
            meaning,
            default(arg, in_text),
            code(&env.unwrap_or_default()),
        ]
    });
    table(["Argument", "Meaning", "Default", "Variable"], rows)
}

/// The names of an argument, as `-o`, `--output FORMAT`.
fn names(arg: &Arg) -> String {
    let value = arg.get_value_names().unwrap_or_default().first();
    let value = value.map(ToString::to_string).unwrap_or_default();
    if arg.is_positional() {
        return code(&value);
    }
    let is_optional = arg.get_num_args().is_some_and(|n| n.min_values() == 0);
    let value = match (arg.get_action().takes_values(), is_optional) {
        (false, _) => String::new(),
        (true, false) => format!(" {value}"),
        (true, true) => format!("[={value}]"),
    };
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names = arg.get_short().map(|short| format!("-{short}"));
    let mut names: Vec<String> = names.into_iter().chain(long).collect();
    if let Some(last) = names.last_mut() {
        last.push_str(&value);
    }
    let names: Vec<String> = names.iter().map(|name| code(name)).collect();
    names.join(", ")
}

fn help(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    help.map(ToString::to_string).unwrap_or_default()
}

/// Its help as a sentence, its values, and the default that its help names in brackets.
fn meaning(arg: &Arg) -> (String, Option<String>) {
    let help = help(arg);
    let (text, default) = match help.split_once("[default: ") {
        Some((text, default)) => (text, default.split(']').next()),
        None => (help.as_str(), None),
    };
    let mut meaning = format!("{}.", text.trim().trim_end_matches('.'));
    let takes_values = arg.get_action().takes_values();
    let values = arg.get_possible_values();
    let values: Vec<String> = values
        .iter()
        .filter(|value| takes_values && !value.is_hide_set())
        .map(|value| code(value.get_name()))
        .collect();
    // Some texts list them in their own words.
    let are_new = values
        .iter()
        .any(|value| !text.contains(value.trim_matches('`')));
    if are_new && !values.is_empty() {
        meaning += &format!(" One of {}.", values.join(", "));
    }
    (meaning, default.map(str::to_owned))
}

fn default(arg: &Arg, in_text: Option<String>) -> String {
    if arg.is_required_set() {
        return "required".to_owned();
    }
    if let Some(words) = in_text {
        return words;
    }
    if !arg.get_action().takes_values() {
        return String::new();
    }
    let values = arg.get_default_values().iter();
    let values: Vec<String> = values.map(|value| code(&value.to_string_lossy())).collect();
    values.join(", ")
}
