//! The first process of a container: builds its world, starts the program, passes signals on, reaps.
//!
//! The init process is a fork of the shim, never a new program. As pid 1 of a pid namespace its end is the end of every
//! process in the namespace; without one it kills what the program left behind, one generation after the other.

use std::{
    fs::{self, File},
    io::Write,
    os::fd::AsRawFd,
    path::Path,
};

use longshore_core::error::chain;
use nix::{
    errno::Errno,
    libc,
    sched::{CloneFlags, clone},
    sys::{
        prctl::{get_dumpable, set_child_subreaper, set_dumpable, set_pdeathsig},
        signal::{SigSet, Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, dup2_stdin, getppid},
};

use super::{
    cgroup,
    container::{ChildPipes, Failure, InitReport, OwnIds, hand_over},
    layers::Rights,
    program,
    protocol::{ContainerSpec, Sandbox, UserSpec},
    rootfs, tree,
};

/// The steps before a program are a handful of shallow functions.
const PROGRAM_STACK: usize = 128 * 1024;

/// The life of an init; its value is the exit code. `has_begun`: it has begun in its cgroup of version 2.
pub(super) fn run(
    spec: &ContainerSpec,
    scratch: &Path,
    own: OwnIds,
    pipes: &ChildPipes,
    has_begun: bool,
) -> i32 {
    close_others(pipes);
    // First, while the host's /sys is in sight, so that nothing of the container is without its limits.
    let joined = cgroup::join_all(spec, has_begun).map_err(Failure::before_exec);
    let program = match joined.and_then(|()| start(spec, scratch, own, pipes)) {
        Ok(program) => program,
        Err(failure) => {
            let code = failure.code;
            tell(pipes, &InitReport::Failed(failure));
            return code;
        }
    };
    let shim = match spec.sandbox {
        Sandbox::None => Some(own.pid),
        Sandbox::Full(_) | Sandbox::User(_) => None,
    };
    let report = supervise(program, shim);
    if shim.is_some() {
        tree::kill_children();
    }
    let code = match report {
        InitReport::Exited(code) => code,
        InitReport::Signalled(signal) => 128 + signal,
        InitReport::Started(_) | InitReport::Failed(_) => 0,
    };
    tell(pipes, &report);
    code
}

/// Closes what is the shim's: a copy of the writing end of an input would keep its program from ever reading the end.
fn close_others(pipes: &ChildPipes) {
    let stdin = pipes.stdin.as_ref().map(AsRawFd::as_raw_fd);
    let others = [
        pipes.report.as_raw_fd(),
        pipes.stdout.as_raw_fd(),
        pipes.stderr.as_raw_fd(),
    ];
    let mut kept: Vec<u32> = others
        .into_iter()
        .chain(stdin)
        .filter_map(|fd| u32::try_from(fd).ok())
        .collect();
    kept.sort_unstable();
    let mut from = 3;
    for fd in kept {
        if fd > from {
            close_range(from, fd - 1);
        }
        from = from.max(fd + 1);
    }
    close_range(from, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    #[expect(
        unsafe_code,
        reason = "descriptors of the shim can only be closed by number in its fork"
    )]
    // SAFETY: this process returns to nothing of the shim's code that owns one of them.
    unsafe {
        libc::close_range(first, last, 0);
    }
}

fn start(
    spec: &ContainerSpec,
    scratch: &Path,
    own: OwnIds,
    pipes: &ChildPipes,
) -> Result<Pid, Failure> {
    // Before the container has its root, where a volume may cover `/dev`.
    let null = fs::File::open("/dev/null").and_then(|null| Ok(dup2_stdin(&null)?));
    null.map_err(|e| Failure::before_exec(format!("cannot set /dev/null as standard input: {e}")))?;
    let message = prepare(spec, scratch, own).map_err(Failure::before_exec)?;
    if let Some(message) = message {
        hand_over(&pipes.report, &message).map_err(|e| {
            Failure::before_exec(format!("cannot hand over the termination message: {e}"))
        })?;
    }
    let mut failure = None;
    let program = spawn(|| {
        let why = program::exec(spec, pipes);
        let code = why.code;
        failure = Some(why);
        code
    });
    let program = program.map_err(no_process)?;
    if let Some(failure) = failure {
        let _ = waitpid(program, None);
        return Err(failure);
    }
    tell(pipes, &InitReport::Started(program.as_raw()));
    Ok(program)
}

/// Starts a child that runs `body`, and ends with its value unless it has become a program by then. Returns when it has
/// become one, or has ended.
///
/// The child has our memory, not a copy: a copy would cost more than most programs do (its page tables, each page that
/// either of us writes, and its end). So `body` can say why it failed in what it borrows, and what it does not free when
/// it becomes a program stays allocated here.
fn spawn(mut body: impl FnMut() -> i32) -> Result<Pid, Errno> {
    // Our memory becomes unreadable to other processes of our user when a child that has it changes its user.
    let was_dumpable = get_dumpable();
    let mut stack = vec![0_u8; PROGRAM_STACK];
    let run = Box::new(|| body() as isize);
    let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
    #[expect(
        unsafe_code,
        reason = "the program needs a process of its own, and a copy of our memory is dear"
    )]
    // SAFETY: this process has one thread, which the kernel holds until the child has another memory or has ended: so
    // nothing here runs at the same time as the child, and what it borrows outlives it. It has a stack of its own, far
    // larger than what it needs, and a panic in it aborts. Descriptors, signal handlers, the working directory, user and
    // capabilities are the child's own, because the flags do not share them.
    let child = unsafe { clone(run, &mut stack, flags, Some(libc::SIGCHLD)) };
    if was_dumpable == Ok(true) {
        // Where it fails, only root can look into this process.
        let _ = set_dumpable(true);
    }
    child
}

/// Everything between the clone and the start of the program. Returns the file of the termination message, which is in the
/// memory of a container that has a file system.
fn prepare(spec: &ContainerSpec, scratch: &Path, own: OwnIds) -> Result<Option<File>, String> {
    let (root, rights) = match &spec.sandbox {
        Sandbox::None => {
            // The shim's end arrives as a request to stop; `supervise` looks whether it is one.
            set_pdeathsig(Signal::SIGTERM).map_err(|e| format!("cannot follow the shim: {e}"))?;
            let adopted = set_child_subreaper(true).map(|()| None);
            return adopted.map_err(|e| format!("cannot adopt orphans: {e}"));
        }
        Sandbox::Full(root) => (root, Rights::Root),
        Sandbox::User(root) => (root, Rights::User),
    };
    set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("cannot follow the shim: {e}"))?;
    if rights == Rights::User {
        map_ids(&spec.user, own).map_err(|e| format!("cannot map user and group: {e}"))?;
    }
    rootfs::enter(root, rights, scratch, &spec.termination.path)
        .map(Some)
        .map_err(|e| chain(&e))
}

/// Inside the user namespace there is one user and one group: the wanted ones, outside our own.
fn map_ids(user: &UserSpec, own: OwnIds) -> std::io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    let uid = user.uid.unwrap_or(own.uid.as_raw());
    let gid = user.gid.unwrap_or(own.gid.as_raw());
    fs::write("/proc/self/uid_map", format!("{uid} {} 1", own.mapped_uid))?;
    fs::write("/proc/self/gid_map", format!("{gid} {} 1", own.mapped_gid))
}

/// Passes signals to the program and reaps until it ends. `shim` is given where the shim's death must be
/// noticed here.
fn supervise(program: Pid, shim: Option<Pid>) -> InitReport {
    let mut signals = SigSet::empty();
    signals.extend(Signal::iterator());
    loop {
        let Ok(signal) = signals.wait() else { continue };
        if signal == Signal::SIGCHLD {
            if let Some(report) = reap(program) {
                return report;
            }
        } else if shim.is_some_and(|shim| getppid() != shim) {
            return InitReport::Signalled(Signal::SIGKILL as i32);
        } else {
            // The program may just have ended; its SIGCHLD is on the way.
            let _ = kill(program, signal);
        }
    }
}

fn reap(program: Pid) -> Option<InitReport> {
    let mut end = None;
    loop {
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == program => {
                end = Some(InitReport::Exited(code));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => {
                end = Some(InitReport::Signalled(signal as i32));
            }
            Ok(WaitStatus::StillAlive) => return end,
            Err(Errno::EINTR) => {}
            Err(_) => return end,
            Ok(_) => {}
        }
    }
}

fn tell(pipes: &ChildPipes, report: &InitReport) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    // A shim that is gone needs no report, and our own end follows from its.
    drop((&pipes.report).write_all(&line));
}

fn no_process(errno: Errno) -> Failure {
    Failure::before_exec(format!("cannot start a process: {errno}"))
}
