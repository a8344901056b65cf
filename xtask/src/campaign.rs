//! Long measurements: too slow for every change, too important to be forgotten. Each writes a dated result under
//! `conformance/`, which is committed.

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

use crate::repository;

mod cluster_kill;
mod conformance;
mod controller_kill;
mod dags_scale;
mod dice;
mod drain;
mod kill_test;
mod laws;
mod node_kill;
#[expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    dead_code,
    reason = "a fixture that tests share: a campaign has no use for all of it, and ends where it breaks"
)]
#[path = "../../crates/longshore-store/tests/it/server.rs"]
mod postgres;
pub(crate) mod service;
mod silent_systems;
mod standalone_kill;
mod thousand;
mod traffic;

/// The options of a campaign. Not every option has a meaning for every campaign.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Keep runs in a Postgres server of the campaign's own
    #[arg(long)]
    postgres: bool,
    /// The seed of what is random; the first one where there are several
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, instead of the campaign's number; with 1, `--seed` repeats what it found
    #[arg(long)]
    seeds: Option<u64>,
    /// This program instead of one that is built for the campaign
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// How often is killed, instead of the campaign's number
    #[arg(long)]
    kills: Option<u64>,
    /// TaskActions, instead of the campaign's number
    #[arg(long)]
    actions: Option<u64>,
    /// Tasks of the DAG, instead of the campaign's number
    #[arg(long)]
    tasks: Option<u64>,
    /// How many items of the conformance suite run at the same time, instead of the campaign's number
    #[arg(long)]
    parallel: Option<usize>,
    /// Seconds that an item of the conformance suite may take, instead of the campaign's number
    #[arg(long)]
    limit: Option<u64>,
}

/// A campaign: its name, its purpose, and how it is run. `run` returns the results, and fails where
/// a claim does not hold.
struct Campaign {
    name: &'static str,
    purpose: &'static str,
    run: fn(&Options) -> Result<Value>,
}

const CAMPAIGNS: [Campaign; 11] = [
    Campaign {
        name: "cluster-kill",
        purpose: "100 times SIGKILL on an embedded cluster under load: no acknowledged write lost, no revision reused; tokens, networks, names and addresses stay, Jobs count once, exec streams end",
        run: cluster_kill::run,
    },
    Campaign {
        name: "conformance",
        purpose: "Kubernetes' own conformance suite on a standalone from nothing: nothing lost that has passed, and as many items as have to",
        run: conformance::run,
    },
    Campaign {
        name: "dags-scale",
        purpose: "1,000 parallel no-ops and a chain of 100 on the embedded cluster: time, and each task exactly once",
        run: |_| dags_scale::run(),
    },
    Campaign {
        name: "standalone-kill",
        purpose: "20 times SIGKILL on a standalone in the middle of a run of 200 tasks: each ran exactly once",
        run: standalone_kill::run,
    },
    Campaign {
        name: "controller-kill",
        purpose: "20 times SIGKILL on a controller, and on the leader of two, during 500 actions and a run of 200 tasks, on a real API server: each launch one pod, programs that are killed launched no more often than is counted",
        run: controller_kill::run,
    },
    Campaign {
        name: "laws",
        purpose: "2,000 seeds, each a fault and a second one during the recovery from it, in each scenario of the laws: the same end, each time",
        run: laws::run,
    },
    Campaign {
        name: "actions-thousand",
        purpose: "1,000 actions with cache, events and outputs on a real API server, undisturbed, with a late and a cut watch, and with 20 times SIGKILL: each launch one pod, programs that are killed launched 3 times at most, each change told, nothing left",
        run: thousand::run,
    },
    Campaign {
        name: "traffic",
        purpose: "500 requests per second to six servers that are updated, drained and deleted again and again: with the label none fails, and so many without it",
        run: traffic::run,
    },
    Campaign {
        name: "drain",
        purpose: "two nodes drained in turns by many at once, with replacements that take 12 s, while the controller is killed, on a real API server: no budget and no rule broken, every drain ends, dry runs change nothing",
        run: drain::run,
    },
    Campaign {
        name: "silent-systems",
        purpose: "a store, catalog, connector, events service and rule webhook that never answer 100 objects: others have their pods within twice their time alone, SIGTERM ends within 3 s",
        run: silent_systems::run,
    },
    Campaign {
        name: "node-kill",
        purpose: "120 times SIGKILL on a node under 50 pods: no exit lost, nothing started twice, no process left",
        run: |_| node_kill::run(),
    },
];

/// Prints the campaigns.
pub(crate) fn list() {
    for campaign in &CAMPAIGNS {
        println!("{:<16}  {}", campaign.name, campaign.purpose);
    }
}

/// Runs one and writes its results.
pub(crate) fn run(name: &str, options: &Options) -> Result<ExitCode> {
    let Some(campaign) = CAMPAIGNS.iter().find(|campaign| campaign.name == name) else {
        list();
        bail!("there is no campaign {name}");
    };
    let results = (campaign.run)(options)?;
    let path = write(campaign.name, options, &results)?;
    println!("{}", serde_json::to_string_pretty(&results)?);
    println!("written to {}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// The program as users run it, for campaigns that need it.
fn release_binary() -> Result<PathBuf> {
    built("release", "longshore", &[])
}

/// A program, built with a profile of `Cargo.toml`, with others beside it.
pub(crate) fn built(profile: &str, program: &str, beside: &[&str]) -> Result<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--profile", profile, "--message-format", "json"])
        .args(["-p", program])
        .args(beside.iter().flat_map(|program| ["-p", program]))
        .current_dir(repository::root())
        .output()
        .context("cargo build cannot be run")?;
    if !output.status.success() {
        bail!(
            "the {profile} build failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == program)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo build names no executable")
}

/// `conformance/campaigns/<name>/<date>.json`, with the name of the database where it is another one.
fn write(name: &str, options: &Options, results: &Value) -> Result<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a result is dated by the day on which it was made"
    )]
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let folder = repository::root().join("conformance/campaigns").join(name);
    fs::create_dir_all(&folder)?;
    let database = if options.postgres { "-postgres" } else { "" };
    let path = folder.join(format!("{today}{database}.json"));
    fs::write(&path, serde_json::to_string_pretty(results)? + "\n")?;
    Ok(path)
}
