//! The kill test of the cluster, long enough to be believed. The test itself lives with the cluster and kills a few
//! times on every test run.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::repository;

/// Processes that are killed, one after the other, on one directory.
const KILLS: &str = "100";

/// Runs the test and takes over its result.
pub(super) fn run() -> Result<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "-p", "longshore-cluster", "--test", "it", "--"])
        .args(["--exact", "kill::no_acknowledged_write_is_lost_by_kill_9"])
        .arg("--nocapture")
        .env("LONGSHORE_TEST_KILLS", KILLS)
        .current_dir(repository::root())
        .stderr(Stdio::inherit())
        .output()
        .context("cargo test cannot be run")?;
    let stdout = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        bail!("the kill test failed:\n{stdout}");
    }
    result(&stdout).context("the kill test printed no result")
}

/// The result is a line of its own, or stands behind the name of the test.
fn result(stdout: &str) -> Option<Value> {
    stdout
        .lines()
        .filter_map(|line| line.split_once("result {"))
        .find_map(|(_, rest)| serde_json::from_str(&format!("{{{rest}")).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_found_between_the_lines_of_the_test_runner() {
        let stdout = "running 1 test\ntest kill::x ... result {\"kills\":3}\nok\n\ntest result: ok. 1 passed\n";
        assert_eq!(result(stdout).unwrap()["kills"], 3);
        assert!(result("test result: FAILED").is_none());
    }
}
