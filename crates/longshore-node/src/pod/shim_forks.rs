//! The node's end of its fork server: has shims forked.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, IoSlice},
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
    path::PathBuf,
    process::Stdio,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};
use tokio::process::{Child, Command as Process};

use crate::{
    config::NodeConfig,
    shim::{ARG_FORK, N_STREAMS},
};

/// The arguments of a shim have this much room beside the directory of the node.
const ROOM: usize = 128;

/// A longer log of the shims begins anew with the next fork server.
const LONGEST_LOG: u64 = 1024 * 1024;

/// Starts the fork server with the first shim, and again where it has ended.
#[derive(Debug)]
pub(crate) struct ShimForks {
    command: Vec<OsString>,
    root: PathBuf,
    server: Mutex<Option<Server>>,
}

#[derive(Debug)]
struct Server {
    /// Its end tells the server that the node is gone.
    requests: OwnedFd,
    process: Child,
}

impl ShimForks {
    pub(crate) fn new(config: &NodeConfig) -> Self {
        Self {
            command: config.shim_command.clone(),
            root: config.root.clone(),
            server: Mutex::new(None),
        }
    }

    /// Has a shim forked with these arguments, with these descriptors as standard input, output and error, and in this
    /// network namespace, where one is given.
    ///
    /// A server that dies on the way closes the descriptors, as a shim does that dies.
    pub(crate) fn fork(
        &self,
        words: &[String],
        streams: [BorrowedFd<'_>; N_STREAMS],
        network: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let request = serde_json::to_vec(words)?;
        let streams = streams.map(|it| it.as_raw_fd()).into_iter();
        let descriptors: Vec<RawFd> = streams.chain(network.map(|it| it.as_raw_fd())).collect();
        let mut server = self.server();
        if let Some(server) = &*server
            && server.send(&request, &descriptors).is_ok()
        {
            return Ok(());
        }
        server.insert(self.start()?).send(&request, &descriptors)
    }

    /// Ends the server, and waits for its end. The shims go on.
    pub(crate) async fn stop(&self) {
        let server = self.server().take();
        if let Some(Server {
            requests,
            mut process,
        }) = server
        {
            drop(requests);
            drop(process.wait().await);
        }
    }

    /// The file that all shims of the node say in what is wrong with them: one for each pod would be one more to make and
    /// to remove, and most say nothing.
    pub(crate) fn log(&self) -> io::Result<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.root.join("shims.log"))
    }

    fn server(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> io::Result<Server> {
        let (program, args) = self
            .command
            .split_first()
            .ok_or_else(|| io::Error::other("the node has no shim command"))?;
        let (requests, stdin) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        let log = self.log()?;
        if log.metadata()?.len() > LONGEST_LOG {
            log.set_len(0)?;
        }
        let room = " ".repeat(self.root.as_os_str().len() + ROOM);
        let process = Process::new(program)
            .args(args)
            .args([ARG_FORK, room.as_str()])
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::null())
            .stderr(log)
            // A Ctrl-C in the node's terminal is not meant for the pods.
            .process_group(0)
            .spawn()?;
        Ok(Server { requests, process })
    }
}

impl Server {
    fn send(&self, request: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
        sendmsg::<()>(
            self.requests.as_raw_fd(),
            &[IoSlice::new(request)],
            &[ControlMessage::ScmRights(descriptors)],
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        Ok(())
    }
}
