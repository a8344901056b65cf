//! kubectl as a child process against a served cluster.

use std::{
    path::PathBuf,
    process::{Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use longshore_cluster::{Cluster, Limits};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::PATIENCE;
use crate::wire::{Served, served_with};

/// A cluster, and a kubectl that knows it and nothing else.
pub(super) struct Script {
    name: &'static str,
    served: Served,
    kubectl: PathBuf,
    n_commands: AtomicUsize,
    _controllers: DropGuard,
}

/// What a command has said.
pub(super) struct Said(String);

impl Said {
    /// Fails unless it said this among other things.
    pub(super) fn says(&self, expected: &str) -> &Said {
        assert!(
            self.0.contains(expected),
            "expected {expected:?}, found {}",
            self.0
        );
        self
    }
}

impl Said {
    /// The first text between two others.
    pub(super) fn between(&self, before: &str, after: &str) -> &str {
        let rest = self.0.split_once(before).map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split_once(after)).unwrap().0
    }
}

impl Script {
    /// `None`, with the reason on the screen, when there is no kubectl.
    #[expect(clippy::print_stdout, reason = "a skipped test must say so")]
    pub(super) fn start(name: &'static str) -> Option<Script> {
        let Some(kubectl) = find_kubectl() else {
            println!(
                "kubectl: {name}: skipped, LONGSHORE_TEST_KUBECTL names none (`cargo xtask kubectl` builds one)"
            );
            return None;
        };
        let served = served_with(Limits::default());
        let shutdown = CancellationToken::new();
        tokio::spawn(longshore_cluster::controllers::run(
            served.cluster.client(),
            shutdown.clone(),
        ));
        Some(Script {
            name,
            served,
            kubectl,
            n_commands: AtomicUsize::new(0),
            _controllers: shutdown.drop_guard(),
        })
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.served.cluster
    }

    /// Arguments are parted by spaces; `_` in one of them stands for a space.
    fn command(&self, arguments: &str) -> Command {
        self.n_commands.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new(&self.kubectl);
        command
            .args(arguments.split(' ').map(|it| it.replace('_', " ")))
            .env_clear()
            // For `diff` and `edit`, which call other programs.
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("EDITOR", "sed -i s/blue/edited/")
            .env("KUBECONFIG", self.served.serving.kubeconfig())
            .env("HOME", self.served.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &str, input: &str) -> (bool, Said) {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that does not read its input closes it.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let ended = timeout(PATIENCE, child.wait_with_output()).await;
        assert!(ended.is_ok(), "kubectl {arguments}: does not end");
        let output = ended.unwrap().unwrap();
        (output.status.success(), said(arguments, &output))
    }

    /// Runs a command that must succeed and say this.
    pub(super) async fn expect(&self, arguments: &str, expected: &str) {
        self.feed(arguments, "").await.says(expected);
    }

    /// Runs a command that must fail and say this.
    pub(super) async fn refuse(&self, arguments: &str, expected: &str) {
        self.feed_refused(arguments, "").await.says(expected);
    }

    /// Runs a command with this input; it must succeed.
    pub(super) async fn feed(&self, arguments: &str, input: &str) -> Said {
        let (is_ok, said) = self.run(arguments, input).await;
        assert!(is_ok, "{}", said.0);
        said
    }

    /// Runs a command with this input; it must fail.
    pub(super) async fn feed_refused(&self, arguments: &str, input: &str) -> Said {
        let (is_ok, said) = self.run(arguments, input).await;
        assert!(!is_ok, "{}", said.0);
        said
    }

    /// Starts a command that goes on.
    pub(super) fn spawn(&self, arguments: &str) -> Running {
        let mut child = self.command(arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Running {
            arguments: arguments.to_owned(),
            child,
            lines,
        }
    }
}

impl Drop for Script {
    #[expect(clippy::print_stdout, reason = "what was run is part of the result")]
    fn drop(&mut self) {
        let n_commands = self.n_commands.load(Ordering::Relaxed);
        println!("kubectl: {}: {n_commands} commands", self.name);
    }
}

fn said(arguments: &str, output: &Output) -> Said {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    Said(format!(
        "kubectl {arguments}: {}\n{out}{err}",
        output.status
    ))
}

/// A command that has not ended. Killed when dropped.
pub(super) struct Running {
    arguments: String,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Reads until a line with this text.
    pub(super) async fn line_with(&mut self, expected: &str) {
        let read = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(expected) {
                    return true;
                }
            }
            false
        };
        let found = timeout(PATIENCE, read).await;
        assert_eq!(
            found,
            Ok(true),
            "kubectl {}: expected {expected:?}",
            self.arguments
        );
    }

    /// Waits for its end, which must be a success.
    pub(super) async fn end(mut self) -> Said {
        let rest = async {
            let mut rest = String::new();
            while let Some(line) = self.lines.next_line().await.unwrap() {
                rest += &line;
                rest.push('\n');
            }
            rest
        };
        let rest = timeout(PATIENCE, rest).await.unwrap();
        let output = self.child.wait_with_output().await.unwrap();
        assert!(
            output.status.success(),
            "{}",
            said(&self.arguments, &output).0
        );
        Said(rest)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the user of the tests says which kubectl"
)]
fn find_kubectl() -> Option<PathBuf> {
    std::env::var_os("LONGSHORE_TEST_KUBECTL")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}
