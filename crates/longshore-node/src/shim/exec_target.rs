//! The node's side of commands that run in a container.

use std::{ffi::OsString, io, os::unix::process::ExitStatusExt, process::Stdio, time::Duration};

use tokio::process::Command;

use super::{
    enter::{ARG_ENTER, ARG_ENTER_TERMINAL},
    terminal::{self, Terminal},
};
use crate::{
    streams::{Process, StreamSet},
    terminal_end::TerminalEnd,
};

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
    /// Starts a command that somebody talks to. Dropping what waits for its end kills it.
    pub(crate) fn start(&self, argv: Vec<String>, streams: StreamSet) -> io::Result<Process> {
        if streams.tty {
            return self.start_in_terminal(argv, streams);
        }
        let piped = |is_wanted| match is_wanted {
            true => Stdio::piped(),
            false => Stdio::null(),
        };
        let mut child = self
            .command(ARG_ENTER, argv)?
            .stdin(piped(streams.stdin))
            .stdout(piped(streams.stdout))
            .stderr(piped(streams.stderr))
            .spawn()?;
        Ok(Process {
            stdin: child.stdin.take().map(|it| Box::new(it) as _),
            stdout: child.stdout.take().map(|it| Box::new(it) as _),
            stderr: child.stderr.take().map(|it| Box::new(it) as _),
            resize: None,
            exit: Box::pin(async move { child.wait().await.map(code) }),
        })
    }

    fn start_in_terminal(&self, argv: Vec<String>, streams: StreamSet) -> io::Result<Process> {
        let Terminal { ours, programs } = Terminal::open()?;
        let mut child = self
            .command(ARG_ENTER_TERMINAL, argv)?
            .stdin(programs.try_clone()?)
            .stdout(programs.try_clone()?)
            .stderr(programs)
            .spawn()?;
        let size = ours.try_clone()?;
        let ours = TerminalEnd::new(ours)?;
        Ok(Process {
            stdin: streams.stdin.then(|| Box::new(ours.clone()) as _),
            stdout: streams.stdout.then(|| Box::new(ours) as _),
            stderr: None,
            resize: Some(Box::new(move |width, height| {
                terminal::resize(&size, width, height);
            })),
            exit: Box::pin(async move { child.wait().await.map(code) }),
        })
    }

    fn command(&self, how: &str, argv: Vec<String>) -> io::Result<Command> {
        let (program, args) = self
            .shim_command
            .split_first()
            .ok_or_else(|| io::Error::other("the node has no shim command"))?;
        let mut command = Command::new(program);
        command
            .args(args)
            .args([how, &self.init.to_string()])
            .args(argv)
            .kill_on_drop(true);
        Ok(command)
    }

    /// Runs a command to its end; the error says how it failed.
    ///
    /// *Cancellation:* ends the command.
    pub(crate) async fn run(&self, argv: Vec<String>, timeout: Duration) -> Result<(), String> {
        let mut command = self.command(ARG_ENTER, argv).map_err(|e| e.to_string())?;
        let output = command.stdin(Stdio::null()).output();
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

/// The exit code; 128 + n after signal n.
fn code(status: std::process::ExitStatus) -> i32 {
    let signal = status.signal().unwrap_or_default();
    status.code().unwrap_or(128 + signal)
}
