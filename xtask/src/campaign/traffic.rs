//! A Deployment under load, with the label of PodOpsLifecycle and without it. The test itself lives
//! with the binary; an ordinary test run sends fewer requests.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{
    Options,
    kill_test::{KillTest, Server},
};

const RATE: u64 = 500;
const ROUNDS: u64 = 3;
const DELETES: u64 = 6;

/// Runs the test and takes over its result.
pub(super) fn run(options: &Options) -> Result<Value> {
    let test = KillTest {
        name: "availability::with_the_label_no_request_fails_whatever_is_done_to_the_pods",
        settings: vec![
            ("LONGSHORE_TEST_RATE", RATE.to_string()),
            ("LONGSHORE_TEST_ROUNDS", ROUNDS.to_string()),
            ("LONGSHORE_TEST_DELETES", DELETES.to_string()),
            ("LONGSHORE_TEST_SEED", options.seed.to_string()),
        ],
        server: Server::Embedded,
    };
    let mut result = test.run()?;
    ensure!(
        result["labelled"]["late"] == 0,
        "the machine was too busy: {result}"
    );
    ensure!(
        result["plain"]["failed"].as_u64() > Some(0),
        "without the label no request failed either: {result}"
    );
    result["rounds"] = json!(ROUNDS);
    result["deletes"] = json!(ROUNDS * DELETES);
    result["seed"] = json!(options.seed);
    result["server"] = json!("embedded");
    Ok(result)
}
