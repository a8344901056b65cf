//! The node's end of a pod's shim: starting it, finding a running one, talking to it.

use std::{
    fs::{self, OpenOptions},
    io,
    os::{
        fd::OwnedFd,
        unix::{
            fs::OpenOptionsExt,
            net::{UnixListener, UnixStream as StdStream},
        },
    },
    path::Path,
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::{Child, Command as Process},
};

use super::directory::with_socket;
use crate::{
    config::{NodeConfig, PodsLifetime},
    shim::{
        ARG_DIE, ARG_IN_NETWORK, ARG_STAY,
        protocol::{Command, Report},
        record::SOCKET,
    },
};

/// A connected shim.
#[derive(Debug)]
pub(crate) struct ShimLink {
    reports: Lines<BufReader<OwnedReadHalf>>,
    commands: OwnedWriteHalf,
    /// `Some` for a shim that this process started; a shim that was found running is no child of this process.
    child: Option<Child>,
}

impl ShimLink {
    /// Starts the pod's shim. The connection is made before, so that neither side waits for the other.
    /// `network` is the namespace of the pod's network, where it has one.
    pub(crate) fn start(
        config: &NodeConfig,
        dir: &Path,
        grace: Duration,
        network: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let (program, args) = config
            .shim_command
            .split_first()
            .ok_or_else(|| io::Error::other("the node has no shim command"))?;
        drop(fs::remove_file(dir.join(SOCKET)));
        let listener = with_socket(dir, UnixListener::bind)?;
        let stream = with_socket(dir, StdStream::connect)?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(dir.join("shim.log"))?;
        let on_loss = match config.lifetime {
            PodsLifetime::DieWithNode => ARG_DIE,
            PodsLifetime::OutliveNode => ARG_STAY,
        };
        let child = Process::new(program)
            .args(args)
            .arg(dir)
            .arg(on_loss)
            .arg(grace.as_secs().to_string())
            .args(network.as_ref().map(|_| ARG_IN_NETWORK))
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(network.map_or_else(Stdio::null, Stdio::from))
            .stderr(log)
            // A Ctrl-C in the node's terminal is not meant for the pods.
            .process_group(0)
            .spawn()?;
        Self::new(stream, Some(child))
    }

    /// Connects to a shim that outlived its node; `None` when there is none.
    pub(crate) fn find(dir: &Path) -> io::Result<Option<Self>> {
        match with_socket(dir, StdStream::connect) {
            Ok(stream) => Self::new(stream, None).map(Some),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn new(stream: StdStream, child: Option<Child>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (read, commands) = UnixStream::from_std(stream)?.into_split();
        Ok(Self {
            reports: BufReader::new(read).lines(),
            commands,
            child,
        })
    }

    /// The next report; `None` when the shim is gone. Can be cancelled.
    pub(crate) async fn next(&mut self) -> Option<Report> {
        loop {
            match self.reports.next_line().await {
                Ok(Some(line)) => match serde_json::from_str(&line) {
                    Ok(report) => return Some(report),
                    Err(error) => tracing::warn!(%error, "a shim of another version"),
                },
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Sends a command. A shim that is gone shows at the next report.
    pub(crate) async fn send(&mut self, command: &Command) {
        let mut line = serde_json::to_vec(command).unwrap_or_default();
        line.push(b'\n');
        if let Err(error) = self.commands.write_all(&line).await {
            tracing::debug!(%error, "the shim did not take a command");
        }
    }

    /// Lets go of the shim; waits for its end where that follows from the node's.
    pub(crate) async fn let_go(self) {
        let Self {
            reports,
            commands,
            child,
        } = self;
        drop((reports, commands));
        if let Some(mut child) = child {
            drop(child.wait().await);
        }
    }
}
