//! The node's side of commands that run in a container.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
};

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
        let end = self.end_of(argv);
        let (status, said) = match tokio::time::timeout(timeout, end).await {
            Ok(end) => end.map_err(|e| e.to_string())?,
            Err(_) => return Err(format!("command timed out after {}s", timeout.as_secs())),
        };
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said[..said.len().min(SHOWN)])
            .trim()
            .to_owned();
        Err(format!("command failed with {status}: {said}"))
    }

    /// How a command ended, and the beginning of what it wrote.
    async fn end_of(&self, argv: Vec<String>) -> io::Result<(ExitStatus, Vec<u8>)> {
        let mut child = self
            .command(ARG_ENTER, argv)?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr, status) =
            tokio::try_join!(beginning(stdout), beginning(stderr), child.wait())?;
        Ok((status, [stdout, stderr].concat()))
    }
}

/// The beginning of what a command writes. The node reads all of it and keeps only this: a command that writes much must
/// neither fill the memory of the node nor stand still because nobody reads.
async fn beginning(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    if let Some(mut stream) = stream {
        let shown = u64::try_from(SHOWN).unwrap_or(u64::MAX);
        (&mut stream)
            .take(shown)
            .read_to_end(&mut beginning)
            .await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(beginning)
}

/// The exit code; 128 + n after signal n.
fn code(status: ExitStatus) -> i32 {
    let signal = status.signal().unwrap_or_default();
    status.code().unwrap_or(128 + signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A command that is a script, whatever it is to enter.
    async fn run(script: &str) -> Result<(), String> {
        let target = ExecTarget {
            shim_command: ["sh", "-c", script].map(OsString::from).to_vec(),
            init: 0,
        };
        target.run(Vec::new(), PATIENCE).await
    }

    /// The most memory that this process has used, in bytes.
    fn peak_memory() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.unwrap().trim().trim_end_matches("kB").trim();
        kib.parse::<u64>().unwrap() * 1024
    }

    #[tokio::test]
    async fn a_command_that_fails_is_told_with_the_beginning_of_what_it_wrote() {
        assert_eq!(run("echo fine").await, Ok(()));
        let failed = run("echo out; echo wrong >&2; exit 3").await;
        assert_eq!(
            failed,
            Err("command failed with exit status: 3: out\nwrong".into())
        );
    }

    #[tokio::test]
    async fn what_a_command_writes_is_read_to_its_end_and_not_kept() {
        let before = peak_memory();
        let failed = run("head -c 400000000 /dev/zero | tr '\\0' x; exit 1").await;
        let shown = failed.unwrap_err();
        assert!(shown.ends_with(&"x".repeat(SHOWN)), "{shown}");
        assert!(shown.len() < SHOWN + 100, "{shown}");
        assert!(peak_memory() - before < 200_000_000);
    }
}
