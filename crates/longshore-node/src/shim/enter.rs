//! Runs a command beside the program of a container: in its namespaces, with its environment, working directory and
//! user. All of these are read from the program's process, so that it does not matter which process started it.

use std::{
    collections::BTreeSet,
    ffi::{CString, OsStr, OsString},
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    process::ExitCode,
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, setns},
    sys::{
        prctl::{set_no_new_privs, set_pdeathsig},
        signal::{Signal, kill},
        wait::{WaitStatus, waitpid},
    },
    unistd::{
        ForkResult, Gid, Pid, Uid, chdir, execvpe, fchown, fork, getppid, setgroups, setresgid,
        setresuid, setsid,
    },
};

use super::{capabilities, program::reset_signals, terminal};
use crate::network;

/// The first argument of a command that shall run in a container: the pid of the container's init, then
/// the command.
pub(crate) const ARG_ENTER: &str = "enter";
/// The same for a command whose standard streams are a terminal.
pub(crate) const ARG_ENTER_TERMINAL: &str = "enter-terminal";

/// The standard streams of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    Pipes,
    Terminal,
}

/// The user namespace comes first, because it grants the right to enter the others.
const NAMESPACES: [(&str, CloneFlags); 4] = [
    ("user", CloneFlags::CLONE_NEWUSER),
    ("mnt", CloneFlags::CLONE_NEWNS),
    ("uts", CloneFlags::CLONE_NEWUTS),
    ("pid", CloneFlags::CLONE_NEWPID),
];

/// What cannot be done is 126 or 127, as shells have it.
pub(super) fn run(init: &str, argv: &[OsString], streams: Streams) -> ExitCode {
    match attempt(init, argv, streams) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprint_line(&format!("cannot run a command in the container: {e}"));
            ExitCode::from(126)
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the output of this process is what its caller reads"
)]
fn eprint_line(line: &str) {
    eprintln!("{line}");
}

/// What the command takes over from the program.
struct Program {
    env: Vec<CString>,
    workdir: PathBuf,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    /// Capabilities that it can never have are kept from the command, too.
    bounds: Option<u64>,
    no_new_privileges: bool,
    namespaces: Vec<(File, CloneFlags)>,
}

fn attempt(init: &str, argv: &[OsString], streams: Streams) -> io::Result<u8> {
    let caller = pidfd(getppid());
    let mut program = Program::of(init)?;
    if streams == Streams::Terminal && !program.has_variable("TERM") {
        program.env.push(c"TERM=xterm".to_owned());
    }
    // Before the container's user namespace, which has no rights over the network.
    network::join_that_of(&Path::new("/proc").join(init))?;
    let argv: Vec<CString> = argv
        .iter()
        .map(|it| c_string(it))
        .collect::<io::Result<_>>()?;
    let name = argv
        .first()
        .ok_or_else(|| io::Error::other("there is no command"))?;
    for (namespace, kind) in &program.namespaces {
        setns(namespace, *kind)?;
    }
    #[expect(
        unsafe_code,
        reason = "only a child is in the pid namespace that was entered"
    )]
    // SAFETY: this process has one thread, so its memory is consistent in the child.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => loop {
            end_with(caller.as_ref(), child);
            let code = match waitpid(child, None)? {
                WaitStatus::Exited(_, code) => Some(code),
                WaitStatus::Signaled(_, signal, _) => Some(128 + signal as i32),
                WaitStatus::Stopped(..)
                | WaitStatus::PtraceEvent(..)
                | WaitStatus::PtraceSyscall(_)
                | WaitStatus::Continued(_)
                | WaitStatus::StillAlive => None,
            };
            if let Some(code) = code {
                return Ok(u8::try_from(code).unwrap_or(u8::MAX));
            }
        },
        ForkResult::Child => {
            let why = match program.assume(streams) {
                Ok(()) => match execvpe(name, &argv, &program.env) {
                    Ok(never) => match never {},
                    Err(errno) => errno.to_string(),
                },
                Err(e) => e.to_string(),
            };
            eprint_line(&format!("{}: {why}", name.to_string_lossy()));
            #[expect(
                unsafe_code,
                reason = "a forked child must not run the parent's exit handlers"
            )]
            // SAFETY: `_exit` takes a number and does not return.
            unsafe {
                libc::_exit(127)
            }
        }
    }
}

/// Waits for the end of the command; kills it when the process that wanted it has died before.
fn end_with(caller: Option<&OwnedFd>, command: Pid) {
    let (Some(caller), Some(ended)) = (caller, pidfd(command)) else {
        return;
    };
    let mut polled = [caller.as_fd(), ended.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    while poll(&mut polled, PollTimeout::NONE) == Err(Errno::EINTR) {}
    let [caller, ended] = polled.map(|fd| fd.any().unwrap_or(false));
    if caller && !ended {
        // It may just have ended; then there is nothing to kill.
        let _ = kill(command, Signal::SIGKILL);
    }
}

/// Something to wait for the end of a process that need not be a child. Old kernels have none.
fn pidfd(process: Pid) -> Option<OwnedFd> {
    #[expect(unsafe_code, reason = "there is no safe call for this descriptor")]
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    #[expect(unsafe_code, reason = "the call above returns a bare number")]
    // SAFETY: the descriptor is new, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Some(fd)
}

impl Program {
    /// The first child of the container's init.
    fn of(init: &str) -> io::Result<Program> {
        let children = fs::read_to_string(format!("/proc/{init}/task/{init}/children"))?;
        let pid = children.split_whitespace().next();
        let pid = pid.ok_or_else(|| io::Error::other("its program has ended"))?;
        let proc = Path::new("/proc").join(pid);
        let env = fs::read(proc.join("environ"))?;
        let variables = env.split(|byte| *byte == 0).filter(|it| !it.is_empty());
        let status = fs::read_to_string(proc.join("status"))?;
        let ids = |field: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let words = line.into_iter().flat_map(str::split_whitespace);
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let effective = |field: &str| ids(field).get(1).copied().unwrap_or(0);
        Ok(Program {
            env: variables
                .map(|it| c_string(OsStr::from_bytes(it)))
                .collect::<io::Result<_>>()?,
            workdir: fs::read_link(proc.join("cwd"))?,
            uid: Uid::from_raw(effective("Uid:")),
            gid: Gid::from_raw(effective("Gid:")),
            groups: ids("Groups:").into_iter().map(Gid::from_raw).collect(),
            bounds: capabilities::of_status(&status, "CapBnd"),
            no_new_privileges: ids("NoNewPrivs:").first() == Some(&1),
            namespaces: other_namespaces(&proc)?,
        })
    }

    fn has_variable(&self, name: &str) -> bool {
        let mut names = self.env.iter().map(|it| it.as_bytes());
        names.any(|it| it.split(|byte| *byte == b'=').next() == Some(name.as_bytes()))
    }

    fn assume(&self, streams: Streams) -> io::Result<()> {
        if streams == Streams::Terminal {
            setsid()?;
            terminal::take_control()?;
            // Else the command could not open its terminal by name. Where this user may not give it away, it still works.
            fchown(io::stdin(), Some(self.uid), Some(self.gid)).ok();
        }
        // The runtime of this program ignores SIGPIPE, and what is ignored is inherited.
        reset_signals()?;
        let kinds: BTreeSet<i32> = self
            .namespaces
            .iter()
            .map(|(_, kind)| kind.bits())
            .collect();
        if let Some(kept) = self.bounds {
            capabilities::limit(kept)?;
        }
        // In a user namespace there is one user, and we are it.
        if !kinds.contains(&CloneFlags::CLONE_NEWUSER.bits()) && Uid::effective().is_root() {
            setgroups(&self.groups)?;
            setresgid(self.gid, self.gid, self.gid)?;
            setresuid(self.uid, self.uid, self.uid)?;
        }
        if let Some(kept) = self.bounds {
            capabilities::lower(kept)?;
        }
        if self.no_new_privileges {
            set_no_new_privs()?;
        }
        // Last, because another user would forget it.
        set_pdeathsig(Signal::SIGKILL)?;
        Ok(chdir(&self.workdir)?)
    }
}

/// The namespaces of a process that are not our own.
fn other_namespaces(proc: &Path) -> io::Result<Vec<(File, CloneFlags)>> {
    let mut others = Vec::new();
    for (name, kind) in NAMESPACES {
        let theirs = proc.join("ns").join(name);
        if fs::read_link(&theirs)? != fs::read_link(Path::new("/proc/self/ns").join(name))? {
            others.push((File::open(theirs)?, kind));
        }
    }
    Ok(others)
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(io::Error::other)
}
