//! The kill test of the controller on a real API server, long enough to be believed. The test itself lives with the
//! binary and kills a few times on every test run.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    Options,
    kill_test::{KillTest, Server},
};

/// Kills of each part: of one controller and of the leader of two, during actions and during a run.
const KILLS: u64 = 20;
const ACTIONS: u64 = 500;
const TASKS: u64 = 200;

/// Runs the test and takes over its result.
pub(super) fn run(options: &Options) -> Result<Value> {
    let longshore = match &options.binary {
        Some(binary) => binary.canonicalize()?,
        None => super::release_binary()?,
    };
    let binary = longshore
        .to_str()
        .context("the path of the program is no UTF-8")?;
    let number = |told: Option<u64>, default: u64| told.unwrap_or(default).to_string();
    let test = KillTest {
        name: "controller::kills::nothing_is_lost_or_runs_twice_when_the_controller_is_killed_again_and_again",
        settings: vec![
            ("LONGSHORE_TEST_KILLS", number(options.kills, KILLS)),
            ("LONGSHORE_TEST_ACTIONS", number(options.actions, ACTIONS)),
            ("LONGSHORE_TEST_TASKS", number(options.tasks, TASKS)),
            ("LONGSHORE_TEST_SEED", options.seed.to_string()),
            ("LONGSHORE_TEST_BINARY", binary.to_owned()),
        ],
        server: Server::Real,
    };
    let mut result = test.run()?;
    result["server"] = json!("kube-apiserver");
    result["build"] = json!(if options.binary.is_some() {
        "given"
    } else {
        "release"
    });
    Ok(result)
}
