//! The node's end of the keeper: starting it, finding a running one, asking it.

use std::{
    fs::{self, OpenOptions},
    io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::Path,
    process::Stdio,
};

use tokio::{io::Interest, net::UnixStream, process::Command};

use super::{
    channel,
    protocol::{Answer, Ask, Request},
};
use crate::{
    config::{NodeConfig, PodsLifetime},
    pod::directory::with_file,
    private_dir,
    profile::Profile,
    shim::{ARG_DIE, ARG_NETWORK, ARG_STAY},
};

const SOCKET: &str = "socket";

/// A connected keeper.
#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    n_asked: u64,
}

impl Link {
    /// Connects to a keeper that outlived its node; `None` when there is none.
    pub(super) fn find(dir: &Path) -> io::Result<Option<Self>> {
        if !dir.is_dir() {
            return Ok(None);
        }
        match with_file(dir, SOCKET, |path| channel::connect(&path)) {
            Ok(stream) => Self::new(stream).map(Some),
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

    /// Starts a keeper. The connection is made before, so that neither side waits for the other.
    /// `survivor` is a process of a pod whose keeper was killed.
    pub(super) fn start(
        config: &NodeConfig,
        profile: Profile,
        dir: &Path,
        survivor: Option<i32>,
    ) -> io::Result<Self> {
        let (program, args) = config
            .shim_command
            .split_first()
            .ok_or_else(|| io::Error::other("the node has no shim command"))?;
        private_dir::make(dir)?;
        drop(fs::remove_file(dir.join(SOCKET)));
        let listener = with_file(dir, SOCKET, |path| channel::listen(&path))?;
        let stream = with_file(dir, SOCKET, |path| channel::connect(&path))?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(dir.join("keeper.log"))?;
        let on_loss = match config.lifetime {
            PodsLifetime::DieWithNode => ARG_DIE,
            PodsLifetime::OutliveNode => ARG_STAY,
        };
        let child = Command::new(program)
            .args(args)
            .args([ARG_NETWORK, profile.as_str(), on_loss])
            .args(survivor.map(|pid| pid.to_string()))
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(log)
            // A Ctrl-C in the node's terminal is not meant for the pods.
            .process_group(0)
            .spawn()?;
        // It ends by itself when this connection does, or goes on as the lifetime of pods says.
        drop(child);
        Self::new(stream)
    }

    fn new(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: UnixStream::from_std(stream)?,
            n_asked: 0,
        })
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// The keeper is gone. That it refuses is in the answer.
    ///
    /// # Cancellation
    /// The next caller passes over the answer.
    pub(super) async fn ask(&mut self, ask: &Ask) -> io::Result<(Answer, Vec<OwnedFd>)> {
        self.n_asked += 1;
        let id = self.n_asked;
        let request = Request {
            id,
            ask: ask.clone(),
        };
        let packet = serde_json::to_vec(&request)?;
        let stream = &self.stream;
        stream
            .async_io(Interest::WRITABLE, || channel::send(stream, &packet, None))
            .await?;
        loop {
            let receive = || channel::receive(stream);
            let (packet, descriptors) = stream.async_io(Interest::READABLE, receive).await?;
            if packet.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let answer: Answer = serde_json::from_slice(&packet)?;
            if answer.id == id {
                return Ok((answer, descriptors));
            }
        }
    }
}
