//! `longshore actions run`.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use longshore_k8s::Quantity;
use longshore_plugins::Order;
use uuid::Uuid;

use super::{
    super::{block_on, print as printed},
    cluster::{Actions, ClusterArgs},
    order::Command,
    print,
    view::Action,
    watch,
};
use crate::{
    cli::{Globals, help_end},
    cmd::run::duration,
    error::CliError,
    exit::Exit,
    output,
};

/// Longest name of a run.
const MAX_RUN: usize = 30;
/// Where outputs would go, if the program wrote any.
const OUTPUT_BASE: &str = "file:///tmp/longshore/actions";

/// Run a program as a TaskAction and follow it to its end
#[derive(Args, Debug)]
#[command(
    override_usage = "longshore actions run [OPTIONS] --image <IMAGE> -- <CMD>...",
    after_help = help_end("longshore actions run --image busybox -- echo hello"),
)]
pub(crate) struct RunArgs {
    /// Image of the container
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Name of its run [default: a new one]
    #[arg(long, value_name = "RUN", value_parser = run_name)]
    name: Option<String>,
    /// A variable of the program
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// What it needs, as cpu=500m or memory=64Mi
    #[arg(long = "request", value_name = "NAME=AMOUNT", value_parser = request)]
    requests: Vec<(String, String)>,
    /// Further attempts after a failure
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Where outputs go
    // Hidden: nothing is written there by itself.
    #[arg(long, hide = true, value_name = "URL", default_value = OUTPUT_BASE)]
    output_base: String,
    /// Do not follow it
    #[arg(long, conflicts_with = "timeout")]
    detach: bool,
    /// Stop following after this long, as 90s or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    cluster: ClusterArgs,
    // Hidden: the usage says it, and the help has to fit the first screen.
    /// Command of the container, with its arguments
    #[arg(value_name = "CMD", required = true, last = true, hide = true)]
    command: Vec<String>,
}

pub(super) fn run(args: &RunArgs, globals: &Globals) -> Result<Exit, CliError> {
    let run = args.name.clone().unwrap_or_else(new_run_name);
    let command = Command {
        run,
        image: args.image.clone(),
        command: args.command.clone(),
        env: args.env.clone(),
        requests: args.requests.iter().cloned().collect::<BTreeMap<_, _>>(),
        retries: args.retries,
        output_base: args.output_base.clone(),
    };
    let (name, created) = block_on(async {
        let actions = Actions::connect(&args.cluster).await?;
        let order = command.into_order(actions.namespace());
        let created = actions.create(&order.build()).await?;
        Ok((order.name(), created))
    })?;
    let flags = args.cluster.flags();
    if !args.detach {
        if !globals.quiet {
            output::note(&format!("action {name} was created"));
        }
        return watch::to_the_end(&name, args.timeout, &args.cluster, globals);
    }
    let text = |_: &Action| format!("action {name} was created\n");
    printed::object(&Action::of(&created), print::name, text, globals);
    if !globals.quiet {
        output::note(&format!("watch it: longshore actions watch {name}{flags}"));
    }
    Ok(Exit::Success)
}

/// A letter, then what no other run has.
fn new_run_name() -> String {
    let unique = Uuid::new_v4().simple().to_string();
    format!("r{}", &unique[..19])
}

fn run_name(text: &str) -> Result<String, String> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = (1..=MAX_RUN).contains(&text.len())
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    is_name.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "expected 1 to {MAX_RUN} lower-case letters, digits and dashes inside, found {text:?}"
        )
    })
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("expected NAME=VALUE, found {text:?}")),
    }
}

fn request(text: &str) -> Result<(String, String), String> {
    let (name, amount) = text.split_once('=').unwrap_or((text, ""));
    if !Order::resources().any(|known| known == name) {
        let known: Vec<&str> = Order::resources().collect();
        return Err(format!(
            "expected one of {} and an amount, found {text:?}",
            known.join(", ")
        ));
    }
    match Quantity::parse(amount) {
        Some(_) => Ok((name.to_owned(), amount.to_owned())),
        None => Err(format!(
            "expected an amount as 500m or 64Mi, found {amount:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_amounts_of_what_pods_can_ask_for() {
        let cpu = Ok(("cpu".to_owned(), "500m".to_owned()));
        assert_eq!(request("cpu=500m"), cpu);
        for text in ["cpu", "cpu=", "cpu=many", "pods=1", "=1"] {
            assert!(request(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_runs_are_names_of_objects() {
        for (text, is_name) in [
            ("hello", true),
            ("a-1", true),
            (&"a".repeat(30), true),
            (&"a".repeat(31), false),
            ("", false),
            ("A", false),
            ("-a", false),
            ("a_b", false),
        ] {
            assert_eq!(run_name(text).is_ok(), is_name, "{text:?}");
        }
        let new = new_run_name();
        assert_eq!(run_name(&new), Ok(new.clone()));
        assert_eq!(new.len(), 20);
    }

    #[test]
    fn variables_have_a_name_and_may_have_an_empty_value() {
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(variable("A="), Ok(("A".to_owned(), String::new())));
        assert!(variable("A").is_err());
        assert!(variable("=b").is_err());
    }
}
