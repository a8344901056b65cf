//! The node's end of a pod's shim: starting it, finding a running one, talking to it.

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream as StdStream},
    },
    path::Path,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
};

use super::{
    directory::{socket_dir, socket_dirs, with_socket},
    shim_forks::ShimForks,
};
use crate::{
    config::PodsLifetime,
    shim::{
        ARG_DIE, ARG_STAY,
        protocol::{Command, Report},
        record::{Record, SOCKET},
    },
};

/// The socket of a new shim, and a connection that waits at it.
fn connected(dir: &Path, lifetime: PodsLifetime) -> io::Result<(UnixListener, StdStream)> {
    let make = |place: &Path| -> io::Result<_> {
        let listener = with_socket(place, UnixListener::bind)?;
        Ok((listener, with_socket(place, StdStream::connect)?))
    };
    let place = socket_dir(dir, lifetime);
    let made = make(&place);
    if made.is_err() && place != dir {
        // The memory is full, or takes no sockets.
        return make(dir);
    }
    made
}

/// A connected shim.
#[derive(Debug)]
pub(crate) struct ShimLink {
    reports: Lines<BufReader<OwnedReadHalf>>,
    commands: OwnedWriteHalf,
    /// Ends with the last process of a shim that this node has started; `None` for a shim that was found running.
    end: Option<pipe::Receiver>,
}

impl ShimLink {
    /// Starts the pod's shim. The connection is made before, so that neither side waits for the other.
    /// `network` is the namespace of the pod's network, where it has one; there, the shim has these settings of the kernel.
    pub(crate) fn start(
        forks: &ShimForks,
        lifetime: PodsLifetime,
        dir: &Path,
        grace: Duration,
        network: Option<OwnedFd>,
        settings: Vec<String>,
    ) -> io::Result<Self> {
        for place in socket_dirs(dir) {
            drop(fs::remove_file(place.join(SOCKET)));
        }
        let (listener, stream) = connected(dir, lifetime)?;
        let log = forks.log()?;
        let on_loss = match lifetime {
            PodsLifetime::DieWithNode => ARG_DIE,
            PodsLifetime::OutliveNode => ARG_STAY,
        };
        // Nothing is written to it: what holds it are the shim, and the inits that are forks of the shim.
        let (end, stdout) = io::pipe()?;
        let dir = dir.display().to_string();
        let mut words = vec![dir, on_loss.to_owned(), grace.as_secs().to_string()];
        words.extend(settings);
        let streams = [listener.as_fd(), stdout.as_fd(), log.as_fd()];
        forks.fork(&words, streams, network.as_ref().map(AsFd::as_fd))?;
        drop(stdout);
        Self::new(stream, Some(pipe::Receiver::from_owned_fd(end.into())?))
    }

    /// Connects to a shim that outlived its node; `None` when there is none, or only that of a directory of which this one
    /// is a copy.
    pub(crate) fn find(dir: &Path) -> io::Result<Option<Self>> {
        if Record::are_copied(dir)? {
            return Ok(None);
        }
        for place in socket_dirs(dir) {
            match with_socket(&place, StdStream::connect) {
                Ok(stream) => return Self::new(stream, None).map(Some),
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                    ) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    fn new(stream: StdStream, end: Option<pipe::Receiver>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (read, commands) = UnixStream::from_std(stream)?.into_split();
        Ok(Self {
            reports: BufReader::new(read).lines(),
            commands,
            end,
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
            end,
        } = self;
        drop((reports, commands));
        if let Some(mut end) = end {
            drop(end.read(&mut [0]).await);
        }
    }
}
