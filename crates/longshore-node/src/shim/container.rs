//! The start of a container: its pipes and its init, in new namespaces.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsRawFd, OwnedFd, RawFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    libc,
    sched::{CloneFlags, clone},
    sys::socket::{
        AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
        sendmsg, socketpair,
    },
    unistd::{Gid, Pid, Uid, getegid, geteuid, getpid, pipe2},
};
use serde::{Deserialize, Serialize};

use super::{
    cgroup,
    fork_server::owned,
    init,
    input::Input,
    log::{LineReader, Stream},
    protocol::{ContainerSpec, Sandbox},
    terminal::Terminal,
};
use crate::network;

/// The init runs a handful of shallow functions; untouched pages of its stack cost nothing.
const INIT_STACK: usize = 1024 * 1024;

/// What an init reports to its shim, as JSON lines.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InitReport {
    /// The program runs; its pid as the init sees it.
    Started(i32),
    /// The program could not be started.
    Failed(Failure),
    /// The program called exit.
    Exited(i32),
    /// A signal ended the program.
    Signalled(i32),
}

/// Why a program could not be started.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    /// 127 not found, 126 found but not executable, 128 anything before that.
    pub(super) code: i32,
    pub(super) message: String,
}

impl Failure {
    /// A failure before the program was looked for.
    pub(super) fn before_exec(message: String) -> Self {
        Self { code: 128, message }
    }
}

/// The init's ends of the pipes.
#[derive(Debug)]
pub(super) struct ChildPipes {
    pub(super) report: File,
    /// Nothing to read where there is none.
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// All of them are one terminal.
    pub(super) is_terminal: bool,
}

/// The user and group of the shim: what a user namespace maps its own ids to.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnIds {
    pub(super) uid: Uid,
    pub(super) gid: Gid,
    /// The same user and group as the user namespace of the shim numbers them: what a further one maps to.
    pub(super) mapped_uid: Uid,
    pub(super) mapped_gid: Gid,
    pub(super) pid: Pid,
}

impl OwnIds {
    pub(super) fn current() -> Self {
        let (uid, gid) = (geteuid(), getegid());
        Self {
            uid,
            gid,
            mapped_uid: uid,
            mapped_gid: gid,
            pid: getpid(),
        }
    }

    /// Joins the network of a pod, which may belong to a user namespace with other numbers.
    pub(super) fn in_network(network: OwnedFd) -> io::Result<Self> {
        let before = Self::current();
        network::join(network)?;
        Ok(Self {
            mapped_uid: geteuid(),
            mapped_gid: getegid(),
            ..before
        })
    }
}

/// A container's init and our ends of its pipes.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) init: Pid,
    pub(super) reports: Reports,
    pub(super) input: Input,
    pub(super) stdout: LineReader,
    /// A terminal has one output.
    pub(super) stderr: Option<LineReader>,
}

/// Our ends of a program's streams.
struct Ours {
    input: Input,
    stdout: LineReader,
    stderr: Option<LineReader>,
}

/// The init's reports as they come in.
#[derive(Debug)]
pub(super) struct Reports {
    pub(super) socket: OwnedFd,
    pending: Vec<u8>,
    /// The file of the termination message, where the init has handed it over: it is in the memory of the container's
    /// `/dev`, which is gone with the init.
    pub(super) message: Option<File>,
}

impl Reports {
    /// The reports that have arrived. An init's report is one short line, written at once.
    pub(super) fn read(&mut self) -> Vec<InitReport> {
        let mut buffer = [0_u8; 4096];
        while let Ok(n @ 1..) = self.receive(&mut buffer) {
            self.pending.extend_from_slice(&buffer[..n]);
        }
        let Some(end) = self.pending.iter().rposition(|b| *b == b'\n') else {
            return Vec::new();
        };
        let lines: Vec<u8> = self.pending.drain(..=end).collect();
        lines
            .split(|b| *b == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut space = nix::cmsg_space!(RawFd);
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        let socket = self.socket.as_raw_fd();
        let message = recvmsg::<()>(socket, &mut parts, Some(&mut space), flags)?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(received) = control {
                for file in received {
                    self.message = Some(owned(file).into());
                }
            }
        }
        Ok(message.bytes)
    }
}

/// Hands the file of the termination message over to the shim. It comes with an empty line between the reports.
pub(super) fn hand_over(report: &File, message: &File) -> io::Result<()> {
    let files = [message.as_raw_fd()];
    sendmsg::<()>(
        report.as_raw_fd(),
        &[IoSlice::new(b"\n")],
        &[ControlMessage::ScmRights(&files)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// Forks the init of a container. The program may still fail to start; the init reports that.
pub(super) fn launch(spec: &ContainerSpec, scratch: &Path, own: OwnIds) -> io::Result<Launched> {
    let (socket, of_init) = socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    let report = of_init.into();
    let (ours, pipes) = if spec.interaction.has_terminal {
        terminal(spec, scratch, report)?
    } else {
        pipes(spec, scratch, report)?
    };

    let namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWUTS;
    let flags = match spec.sandbox {
        Sandbox::None => CloneFlags::empty(),
        Sandbox::Full(_) => namespaces,
        Sandbox::User(_) => namespaces | CloneFlags::CLONE_NEWUSER,
    };
    let run = |has_begun| init::run(spec, scratch, own, &pipes, has_begun);
    let placed = cgroup::to_begin_in(spec).and_then(|dir| {
        // Where the kernel refuses it, the init moves itself.
        clone_into(&dir, flags, || run(true)).ok()
    });
    let init = match placed {
        Some(init) => init,
        None => clone_here(flags, || run(false))?,
    };
    Ok(Launched {
        init,
        reports: Reports {
            socket,
            pending: Vec::new(),
            message: None,
        },
        input: ours.input,
        stdout: ours.stdout,
        stderr: ours.stderr,
    })
}

/// Starts a child in new namespaces that runs `body`, and ends with its value.
fn clone_here(flags: CloneFlags, mut body: impl FnMut() -> i32) -> Result<Pid, Errno> {
    let mut stack = vec![0_u8; INIT_STACK];
    let body = Box::new(|| body() as isize);
    #[expect(
        unsafe_code,
        reason = "namespaces for a child can only be had from clone"
    )]
    // SAFETY: the shim has one thread, so the child's copy of the memory is consistent and no lock is
    // held; without CLONE_VM the child has its own copy of `stack`, far larger than what it needs.
    unsafe {
        clone(body, &mut stack, flags, Some(libc::SIGCHLD))
    }
}

/// The same in a cgroup of version 2. A process that moves there later makes the kernel wait for all processors.
fn clone_into(dir: &File, flags: CloneFlags, body: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    let number = |it: i32| u64::try_from(it).map_err(|_| Errno::EINVAL);
    // `struct clone_args`: the flags, then three pointers, the signal at the end of the child, its stack (none: it goes on
    // with a copy of ours), three more, and the cgroup.
    let mut arguments = [0_u64; 11];
    arguments[0] = number(flags.bits())? | INTO_CGROUP;
    arguments[4] = number(libc::SIGCHLD)?;
    arguments[10] = number(dir.as_raw_fd())?;
    #[expect(
        unsafe_code,
        reason = "only this call makes a process in a cgroup, and no safe one does it"
    )]
    // SAFETY: the kernel reads as many bytes as it is told. The shim has one thread, so the child's copy of the memory is
    // consistent and no lock is held; without CLONE_VM and a stack it goes on here, as after `fork`.
    let child = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            arguments.as_ptr(),
            std::mem::size_of_val(&arguments),
        )
    };
    match Errno::result(child)? {
        0 => {
            let code = body();
            #[expect(
                unsafe_code,
                reason = "a forked child must not run the exit handlers of its parent"
            )]
            // SAFETY: `_exit` takes a number and does not return.
            unsafe {
                libc::_exit(code)
            }
        }
        child => Ok(Pid::from_raw(
            i32::try_from(child).map_err(|_| Errno::EINVAL)?,
        )),
    }
}

fn pipes(spec: &ContainerSpec, scratch: &Path, report: File) -> io::Result<(Ours, ChildPipes)> {
    let (out_read, out_write) = pipe2(OFlag::O_CLOEXEC)?;
    let (err_read, err_write) = pipe2(OFlag::O_CLOEXEC)?;
    let (input, stdin) = if spec.interaction.has_stdin {
        let (input, stdin) = Input::pipe(scratch)?;
        (input, Some(stdin))
    } else {
        (Input::default(), None)
    };
    let is_live = spec.interaction.has_stdin;
    let ours = Ours {
        input,
        stdout: LineReader::new(out_read, Stream::Stdout, is_live)?,
        stderr: Some(LineReader::new(err_read, Stream::Stderr, is_live)?),
    };
    let theirs = ChildPipes {
        report,
        stdin,
        stdout: out_write,
        stderr: err_write,
        is_terminal: false,
    };
    Ok((ours, theirs))
}

fn terminal(spec: &ContainerSpec, scratch: &Path, report: File) -> io::Result<(Ours, ChildPipes)> {
    let Terminal { ours, programs } = Terminal::open()?;
    let input = Input::terminal(scratch, &ours, spec.interaction.has_stdin)?;
    let ours = Ours {
        input,
        stdout: LineReader::new(ours, Stream::Stdout, true)?,
        stderr: None,
    };
    let theirs = ChildPipes {
        report,
        stdin: Some(programs.try_clone()?),
        stdout: programs.try_clone()?,
        stderr: programs,
        is_terminal: true,
    };
    Ok((ours, theirs))
}
