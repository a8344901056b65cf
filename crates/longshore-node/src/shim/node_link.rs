//! The shim's end of the connection to the node.

use std::{
    io::{self, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, recv},
};

use super::protocol::{Command, Report};

/// A node that does not read its reports for this long counts as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// One connected node.
#[derive(Debug)]
pub(super) struct NodeLink {
    stream: UnixStream,
    pending: Vec<u8>,
}

impl NodeLink {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Self {
            stream,
            pending: Vec::new(),
        })
    }

    /// The commands that have arrived, and whether the node is still there. Call when readable.
    pub(super) fn read(&mut self) -> (Vec<Command>, bool) {
        let mut buffer = [0_u8; 16 * 1024];
        let is_open = loop {
            // Never waits: the event may have belonged to a connection that this one has just replaced.
            match recv(self.stream.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => break false,
                Ok(n) => self.pending.extend_from_slice(&buffer[..n]),
                Err(Errno::EINTR) => {}
                Err(e) => break e == Errno::EAGAIN,
            }
        };
        let Some(end) = self.pending.iter().rposition(|b| *b == b'\n') else {
            return (Vec::new(), is_open);
        };
        let lines: Vec<u8> = self.pending.drain(..=end).collect();
        let mut commands = Vec::new();
        for line in lines.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(command) => commands.push(command),
                Err(e) => drop(writeln!(
                    io::stderr(),
                    "shim: a command of another version: {e}"
                )),
            }
        }
        (commands, is_open)
    }

    pub(super) fn write(&mut self, report: &Report) -> io::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }
}

impl AsFd for NodeLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
