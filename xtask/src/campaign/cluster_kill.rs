//! The kill test of the cluster, long enough to be believed. The test itself lives with the cluster and kills a few
//! times on every test run.

use anyhow::Result;
use serde_json::Value;

use super::kill_test::{KillTest, Server};

/// Processes that are killed, one after the other, on one directory.
const KILLS: &str = "100";

/// Runs the test and takes over its result.
pub(super) fn run() -> Result<Value> {
    KillTest {
        name: "kill::no_acknowledged_write_is_lost_by_kill_9",
        settings: vec![("LONGSHORE_TEST_KILLS", KILLS.to_owned())],
        server: Server::Embedded,
    }
    .run()
}
