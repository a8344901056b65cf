//! The process that forks the shims of a node.
//!
//! To start this program anew for each pod costs more than most tasks do: the linker relocates all of it, and it asks
//! the processor for its features, which takes long on a virtual machine. A fork does neither, and shares its memory.
//!
//! The node sends one request for each pod, with the descriptors of the shim. The server forks, and keeps nothing of a
//! pod: when the server ends, no shim ends, and the node starts another server.

use std::{
    io::{self, IoSliceMut, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::net::{UnixListener, UnixStream},
    },
};

use longshore_core::ProcessStat;
use nix::{
    errno::Errno,
    libc,
    sys::{
        signal::{SigHandler, Signal, signal},
        socket::{ControlMessageOwned, MsgFlags, recvmsg},
    },
    unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, setpgid},
};

use super::{proc_file, protocol::Report, record::boot_id};

/// The first argument of the server. Its standard input is a socket to the node; its second argument is room for the
/// command line of a shim.
pub(crate) const ARG_FORK: &str = "fork";
/// A request has this many descriptors for the shim's standard input, output and error.
pub(crate) const N_STREAMS: usize = 3;
/// One more is the network namespace of a pod that has a network of its own.
const MAX_DESCRIPTORS: usize = N_STREAMS + 1;
/// Longer than any path.
const MAX_REQUEST: usize = 8 * 1024;

/// A request of the node.
struct Request {
    /// The arguments of the shim.
    words: Vec<String>,
    descriptors: Vec<OwnedFd>,
}

/// What a child shall be.
pub(super) struct Forked {
    /// The arguments of the shim.
    pub(super) words: Vec<String>,
    /// The network namespace that it shall join.
    pub(super) network: Option<OwnedFd>,
}

/// Forks until the node is gone. Returns in each child, with what its shim is given, and in the server with `None`.
pub(super) fn serve() -> io::Result<Option<Forked>> {
    dispose_of_children(SigHandler::SigIgn)?;
    let room = room_of_arguments();
    learn_machine();
    while let Some(request) = receive(io::stdin().as_fd())? {
        match fork() {
            Ok(Side::Child) => return become_shim(request, room).map(Some),
            Ok(Side::Server) => {}
            Err(e) => tell_failure(request, e.into()),
        }
    }
    Ok(None)
}

/// Tells the node, as its shim would, that there is none.
fn tell_failure(request: Request, error: io::Error) {
    drop(writeln!(io::stderr(), "shim: cannot fork: {error}"));
    if let Some(listener) = request.descriptors.into_iter().next() {
        refuse(listener, &error);
    }
}

/// Tells the node at the listening socket of a shim that there is none. The node tries again after a while.
pub(super) fn refuse(listener: OwnedFd, error: &io::Error) {
    // The node has connected before its request. Nobody shall find the socket open once the node knows.
    let Some(connection) = accepted(listener) else {
        return;
    };
    let message = error.to_string();
    let line = serde_json::to_string(&Report::NotForked { message }).unwrap_or_default();
    drop(writeln!(&connection, "{line}"));
}

/// The connection that waits at a listening socket, which is closed.
fn accepted(listener: OwnedFd) -> Option<UnixStream> {
    let listener = UnixListener::from(listener);
    listener.set_nonblocking(true).ok()?;
    Some(listener.accept().ok()?.0)
}

/// Where a fork returns.
enum Side {
    Server,
    Child,
}

/// Forks as the kernel does.
///
/// The C library has handlers run around a fork, and those of the allocator take and renew each of its locks on both sides.
/// That is for processes of several threads. It writes to many pages, each of which the kernel then has to copy.
fn fork() -> Result<Side, Errno> {
    const NONE: libc::c_long = 0;
    let signal = libc::c_long::from(libc::SIGCHLD);
    #[expect(
        unsafe_code,
        reason = "each pod has a shim of its own, and no safe call forks without handlers"
    )]
    // SAFETY: this process has one thread, so its memory is consistent in the child and no lock is held. Without flags and
    // without a stack the child goes on here, with a copy of the memory, as after `fork`.
    let child = unsafe { libc::syscall(libc::SYS_clone, signal, NONE, NONE, NONE, NONE) };
    Errno::result(child).map(|child| match child {
        0 => Side::Child,
        _ => Side::Server,
    })
}

/// Finds out what each shim would find out anew, at a price that it need not pay: a fork knows what this process knows.
fn learn_machine() {
    drop(boot_id());
    // A virtual machine leaves its processor for each question about the features of it.
    #[cfg(target_arch = "x86_64")]
    let _ = std::is_x86_feature_detected!("avx2");
}

/// The next request; `None` when the node is gone.
fn receive(node: BorrowedFd<'_>) -> io::Result<Option<Request>> {
    let mut bytes = vec![0_u8; MAX_REQUEST];
    let mut space = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut descriptors = Vec::new();
    let n_bytes = {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(node.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(received) = control {
                descriptors.extend(received.into_iter().map(owned));
            }
        }
        message.bytes
    };
    if n_bytes == 0 {
        return Ok(None);
    }
    let words = serde_json::from_slice(&bytes[..n_bytes])?;
    Ok(Some(Request { words, descriptors }))
}

/// A descriptor that a message has brought.
pub(super) fn owned(descriptor: RawFd) -> OwnedFd {
    #[expect(
        unsafe_code,
        reason = "a message has descriptors as numbers, which this process then owns"
    )]
    // SAFETY: the kernel made it for this message, and nothing else in this process knows it.
    unsafe {
        OwnedFd::from_raw_fd(descriptor)
    }
}

/// Nobody waits for a shim: where they are ignored, the kernel forgets ended children. A shim needs the end of its own.
fn dispose_of_children(handler: SigHandler) -> io::Result<()> {
    #[expect(
        unsafe_code,
        reason = "signal dispositions are set through an unsafe call"
    )]
    // SAFETY: neither disposition installs a handler.
    unsafe { signal(Signal::SIGCHLD, handler) }?;
    Ok(())
}

/// Makes a child what a program would be that the node had started with these arguments and descriptors. `room` is where
/// the arguments of the server are, and so those of the child.
fn become_shim(request: Request, room: Option<(usize, usize)>) -> io::Result<Forked> {
    dispose_of_children(SigHandler::SigDfl)?;
    // A Ctrl-C in the node's terminal is not meant for the pods, and a signal to one of them not for the others.
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    let Request {
        words,
        mut descriptors,
    } = request;
    let n_given = descriptors.len();
    let network = if n_given == MAX_DESCRIPTORS {
        descriptors.pop()
    } else {
        None
    };
    let streams = <[OwnedFd; N_STREAMS]>::try_from(descriptors);
    let [stdin, stdout, stderr] = streams.map_err(|_| {
        io::Error::other(format!(
            "expected 3 descriptors, or 4 with a network, got {n_given}"
        ))
    })?;
    dup2_stdin(&stdin)?;
    dup2_stdout(&stdout)?;
    dup2_stderr(&stderr)?;
    show_arguments(&words, room);
    Ok(Forked { words, network })
}

/// Shows the arguments of a shim on its command line, in place of those of the server, so that people find the shim of
/// a pod. What does not fit is cut off.
fn show_arguments(words: &[String], room: Option<(usize, usize)>) {
    let Some((at, length)) = room else {
        return;
    };
    let mut line = Vec::new();
    for word in std::iter::once("longshore-shim").chain(words.iter().map(String::as_str)) {
        line.extend_from_slice(word.as_bytes());
        line.push(0);
    }
    line.resize(length, 0);
    // The kernel reads beyond the end where the last byte is not zero.
    if let Some(last) = line.last_mut() {
        *last = 0;
    }
    #[expect(
        unsafe_code,
        reason = "the command line of a process is a part of its memory, and has no other address"
    )]
    // SAFETY: the kernel gave the server, of which this process is a copy, `length` writable bytes there for its arguments.
    // Nothing reads them any more: this process has one thread, and has read its arguments.
    unsafe {
        std::ptr::copy_nonoverlapping(
            line.as_ptr(),
            std::ptr::with_exposed_provenance_mut(at),
            length,
        );
    }
}

/// Where the arguments of this process are, and how many bytes they have.
fn room_of_arguments() -> Option<(usize, usize)> {
    let stat = proc_file::read("/proc/self/stat", proc_file::STAT).ok()?;
    let stat = ProcessStat::parse(&stat)?;
    let (begin, end): (usize, usize) = (stat.number(48)?, stat.number(49)?);
    let length = end.checked_sub(begin)?;
    (begin != 0 && length != 0).then_some((begin, length))
}
