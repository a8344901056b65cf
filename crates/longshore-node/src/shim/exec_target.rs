//! The node's side of commands that run in a container.

use std::{ffi::OsString, process::Stdio, time::Duration};

use super::enter::ARG_ENTER;

/// The longest output that a failure shows.
const SHOWN: usize = 512;

/// A running container, as somewhere to run a command.
#[derive(Clone, Debug)]
pub(crate) struct ExecTarget {
    /// Our own binary and its hidden subcommand.
    pub(crate) shim_command: Vec<OsString>,
    /// The container's init, as the host sees it.
    pub(crate) init: i32,
}

impl ExecTarget {
    /// Runs a command to its end; the error says how it failed.
    ///
    /// *Cancellation:* ends the command.
    pub(crate) async fn run(&self, argv: Vec<String>, timeout: Duration) -> Result<(), String> {
        let (program, args) = self
            .shim_command
            .split_first()
            .ok_or("the node has no shim command")?;
        let output = tokio::process::Command::new(program)
            .args(args)
            .args([ARG_ENTER, &self.init.to_string()])
            .args(argv)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = match tokio::time::timeout(timeout, output).await {
            Ok(output) => output.map_err(|e| e.to_string())?,
            Err(_) => return Err(format!("command timed out after {}s", timeout.as_secs())),
        };
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said[..said.len().min(SHOWN)])
            .trim()
            .to_owned();
        Err(format!("command failed with {}: {said}", output.status))
    }
}
