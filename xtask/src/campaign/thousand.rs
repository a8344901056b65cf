//! Many TaskActions with everything that there is around them, on a real API server. The test itself lives with the
//! binary and plays a few on every test run.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    Options,
    kill_test::{KillTest, Server},
};

const KILLS: u64 = 20;
const ACTIONS: u64 = 1_000;

/// Runs the test and takes over its result.
pub(super) fn run(options: &Options) -> Result<Value> {
    let longshore = match &options.binary {
        Some(binary) => binary.canonicalize()?,
        None => super::release_binary()?,
    };
    let binary = longshore
        .to_str()
        .context("the path of the program is no UTF-8")?;
    let test = KillTest {
        name: "controller::thousand::many_actions_end_right_with_one_pod_per_launch_whatever_is_in_the_way",
        settings: vec![
            (
                "LONGSHORE_TEST_KILLS",
                options.kills.unwrap_or(KILLS).to_string(),
            ),
            (
                "LONGSHORE_TEST_ACTIONS",
                options.actions.unwrap_or(ACTIONS).to_string(),
            ),
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
