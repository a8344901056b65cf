//! Runs a command beside the program of a container: in its namespaces, with its environment, working directory and
//! user. All of these are read from the program's process, so that it does not matter which process started it.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, OsStr, OsString},
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
    fcntl::OFlag,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, setns},
    sys::{
        prctl::{set_child_subreaper, set_dumpable, set_no_new_privs, set_pdeathsig},
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
        wait::waitpid,
    },
    unistd::{
        ForkResult, Gid, Pid, Uid, chdir, execvpe, fchown, fork, getppid, pipe2, setgroups,
        setresgid, setresuid, setsid,
    },
};

use super::{capabilities, cgroup, program::reset_signals, terminal, tree};
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
    // While the host's /sys is in sight.
    cgroup::join_that_of(init)?;
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
    // The supervisor learns by its end that nobody waits for the command any more, however this process ends.
    let (lifeline, held) = pipe2(OFlag::O_CLOEXEC)?;
    #[expect(
        unsafe_code,
        reason = "only a child is in the pid namespace that was entered"
    )]
    // SAFETY: this process has one thread, so its memory is consistent in the child.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(lifeline);
            if ends_first(caller.as_ref(), child) {
                drop(held);
            }
            loop {
                if let Some(code) = tree::exit_code(waitpid(child, None)?) {
                    return Ok(code);
                }
            }
        }
        ForkResult::Child => {
            drop(held);
            let code = supervise(&lifeline, || program.become_command(name, &argv, streams));
            exit(code.unwrap_or_else(|e| {
                eprint_line(&format!("cannot run a command in the container: {e}"));
                126
            }))
        }
    }
}

/// The process between the one that a client waits for and the command, inside of the container's pid namespace: only
/// there can it be the parent of what the command leaves behind, and end that with the command.
fn supervise(lifeline: &OwnedFd, command: impl FnOnce() -> u8) -> io::Result<u8> {
    // A signal to the group of the node is not for this process: the command must not outlive it.
    SigSet::all().thread_block()?;
    set_child_subreaper(true)?;
    // This process has more rights than the container, whose programs can see it: they must not look into it.
    set_dumpable(false)?;
    let ended = SigSet::from(Signal::SIGCHLD);
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&ended, flags)?;
    #[expect(
        unsafe_code,
        reason = "the command needs a parent that ends what it leaves behind"
    )]
    // SAFETY: this process has one thread, so its memory is consistent in the child.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => tree::follow(child, lifeline.as_fd(), &signals),
        ForkResult::Child => exit(command()),
    }
}

/// Ends a forked child.
fn exit(code: u8) -> ! {
    #[expect(
        unsafe_code,
        reason = "a forked child must not run the parent's exit handlers"
    )]
    // SAFETY: `_exit` takes a number and does not return.
    unsafe {
        libc::_exit(i32::from(code))
    }
}

/// Waits for the end of the process that wanted the command, or of that which supervises the command; returns whether the
/// first one ended alone.
fn ends_first(caller: Option<&OwnedFd>, supervisor: Pid) -> bool {
    let (Some(caller), Some(ended)) = (caller, pidfd(supervisor)) else {
        return false;
    };
    let mut polled = [caller.as_fd(), ended.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    while poll(&mut polled, PollTimeout::NONE) == Err(Errno::EINTR) {}
    let [caller, ended] = polled.map(|fd| fd.any().unwrap_or(false));
    caller && !ended
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

    /// Becomes the command. Returns only when that failed: the exit code.
    fn become_command(&self, name: &CStr, argv: &[CString], streams: Streams) -> u8 {
        let why = match self.assume(streams) {
            Ok(()) => match execvpe(name, argv, &self.env) {
                Ok(never) => match never {},
                Err(errno) => errno.to_string(),
            },
            Err(e) => e.to_string(),
        };
        eprint_line(&format!("{}: {why}", name.to_string_lossy()));
        127
    }

    fn assume(&self, streams: Streams) -> io::Result<()> {
        // Neither the terminal nor the process group of the node are the command's.
        setsid()?;
        if streams == Streams::Terminal {
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
