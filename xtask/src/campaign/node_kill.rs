//! The kill test of the process node, long enough to be believed. The test itself lives with the node and kills a few
//! times on every test run.

use anyhow::Result;
use serde_json::Value;

use super::kill_test::{KillTest, Server};

/// Lives of a node, one after the other, over the same pods.
const KILLS: &str = "120";
/// Pods at the same time.
const PODS: &str = "50";

/// Runs the test and takes over its result.
pub(super) fn run() -> Result<Value> {
    KillTest {
        name: "kill::nothing_is_lost_or_runs_twice_when_the_node_is_killed",
        settings: vec![
            ("LONGSHORE_TEST_KILLS", KILLS.to_owned()),
            ("LONGSHORE_TEST_PODS", PODS.to_owned()),
        ],
        server: Server::Embedded,
    }
    .run()
}
