//! Child processes that do not outlive this process, however it ends.
//!
//! The kernel can send a signal to a process when its parent dies, but only the process itself can
//! request that, before it becomes the wanted program: so this program starts itself as `guard`,
//! which requests the signal and then calls `exec`.

use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    process::{self, Child, Command},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{SigSet, Signal},
    },
    unistd::{Pid, getppid},
};

/// Not by its path: a build beside a campaign replaces the file there.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";
/// How long a child may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Why a program did not become one that ends with its parent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuardError {
    #[error("the kernel refuses to tie this process to its parent")]
    Prctl(#[source] Errno),
    #[error("the kernel refuses to unblock signals")]
    Signals(#[source] Errno),
    #[error("expected to be started by process {expected}, which is gone")]
    ParentGone { expected: i32 },
    #[error("expected a program, found nothing")]
    NoProgram,
    #[error("expected to run {program}: is it there?")]
    Exec { program: String, source: io::Error },
}

/// Becomes the program, which is killed when `parent` dies. Returns only when that fails.
pub(crate) fn become_guarded(parent: i32, command: &[OsString]) -> Result<Infallible, GuardError> {
    let (program, arguments) = command.split_first().ok_or(GuardError::NoProgram)?;
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(GuardError::Prctl)?;
    // The parent waits for signals that it blocks, and its children inherit that: a program that
    // blocks SIGTERM does not end upon SIGTERM, nor do its own children.
    SigSet::empty()
        .thread_set_mask()
        .map_err(GuardError::Signals)?;
    // The parent may have died before the request.
    if getppid() != Pid::from_raw(parent) {
        return Err(GuardError::ParentGone { expected: parent });
    }
    let source = Command::new(program).args(arguments).exec();
    Err(GuardError::Exec {
        program: program.display().to_string(),
        source,
    })
}

/// A command that will be killed when this process dies. Must be spawned by the main thread: the kernel means the
/// thread that spawned it.
pub(crate) fn command(program: impl AsRef<OsStr>) -> io::Result<Command> {
    let mut command = Command::new(THIS_PROGRAM);
    command
        .args(["guard", "--parent", &process::id().to_string(), "--"])
        .arg(program);
    Ok(command)
}

/// A running child; dropping it ends it, with force when it does not listen.
#[derive(Debug)]
pub(crate) struct Guarded {
    name: &'static str,
    child: Child,
}

impl Guarded {
    pub(crate) fn new(name: &'static str, child: Child) -> Guarded {
        Guarded { name, child }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> io::Result<Option<process::ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends SIGTERM and waits for the grace time; then kills the child.
    fn end(&mut self) {
        let is_running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if is_running(&mut self.child)
            && let Ok(pid) = i32::try_from(self.child.id())
        {
            let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        for _ in 0..GRACE.as_millis() / POLL.as_millis() {
            if !is_running(&mut self.child) {
                return;
            }
            std::thread::sleep(POLL);
        }
        eprintln!("{} does not end: killed", self.name);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.end();
    }
}
