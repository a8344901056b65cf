//! A kill test of one of our crates, run with other numbers than on every test run.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{guarded::THIS_PROGRAM, repository};

/// A test that prints `result {…}` where it holds.
pub(super) struct KillTest {
    /// Its path in the integration tests of its crate, which no other crate has.
    pub(super) name: &'static str,
    /// Its numbers, by environment variable.
    pub(super) settings: Vec<(&'static str, String)>,
    /// Which API server it runs against.
    pub(super) server: Server,
}

/// An API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// The one that the test brings along.
    Embedded,
    /// That of `cargo xtask real-cluster`.
    Real,
    /// The same with `--kcm`: controllers of workloads, and a scheduler.
    RealWithControllers,
}

impl KillTest {
    /// Runs it and takes over its result.
    pub(super) fn run(&self) -> Result<Value> {
        // The whole workspace is named, as everywhere: a crate alone has other features, and would be built again.
        let output = self
            .cargo()
            .args(["test", "--workspace", "--test", "it", "--"])
            .args(["--exact", self.name])
            .arg("--nocapture")
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
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

    fn cargo(&self) -> Command {
        let arguments: &[&str] = match self.server {
            Server::Embedded => return Command::new(env!("CARGO")),
            Server::Real => &["real-cluster", "--", env!("CARGO")],
            Server::RealWithControllers => &["real-cluster", "--kcm", "--", env!("CARGO")],
        };
        let mut command = Command::new(THIS_PROGRAM);
        command.args(arguments);
        command
    }
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
