//! The processes that descend from this one: how all of them end, also those that left their parents.
//!
//! A process that is the subreaper of its descendants gets those whose parents have ended. So the kernel loses none of
//! them, whichever session or process group they have moved to.

use std::{
    fs, io,
    os::fd::{AsFd, BorrowedFd},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill, killpg},
        signalfd::SignalFd,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// The exit code of a command that was killed.
const KILLED: u8 = 137;

/// Waits for the end of `command`, a child that leads a process group; returns its exit code, 128 + n after signal n.
/// When `lifeline`, the reading end of a pipe, has lost its writer before, kills the command and all that it has started.
///
/// `signals` has SIGCHLD, which was blocked before the command was forked.
pub(super) fn follow(command: Pid, lifeline: BorrowedFd<'_>, signals: &SignalFd) -> io::Result<u8> {
    loop {
        let mut polled = [lifeline, signals.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        if polled[0].any().unwrap_or(false) {
            // It leads the group also where /proc does not show its children.
            let _ = killpg(command, Signal::SIGKILL);
            kill_children();
            return Ok(KILLED);
        }
        while signals.read_signal()?.is_some() {}
        if let Some(code) = reap(command)? {
            return Ok(code);
        }
    }
}

/// Reaps what has ended; the exit code of the command once it is among that.
fn reap(command: Pid) -> io::Result<Option<u8>> {
    loop {
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return Ok(None),
            Ok(status) => {
                if let Some(code) = exit_code(status).filter(|_| status.pid() == Some(command)) {
                    return Ok(Some(code));
                }
            }
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// The exit code of a process that has ended.
pub(super) fn exit_code(status: WaitStatus) -> Option<u8> {
    let code = match status {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        WaitStatus::Stopped(..)
        | WaitStatus::PtraceEvent(..)
        | WaitStatus::PtraceSyscall(_)
        | WaitStatus::Continued(_)
        | WaitStatus::StillAlive => return None,
    };
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Kills every child, then the orphans that become our children, until none is left.
pub(super) fn kill_children() {
    loop {
        let children = children();
        // The kernel gives us the children of a process before we can reap it: without a child there is no descendant.
        if children.is_empty() {
            return;
        }
        for child in children {
            let _ = kill(child, Signal::SIGKILL);
        }
        let any = Pid::from_raw(-1);
        match waitpid(any, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        // Each look at the children costs as much as there are: one for all that have ended by now.
        let next = || waitpid(any, Some(WaitPidFlag::WNOHANG));
        while next().is_ok_and(|status| status != WaitStatus::StillAlive) {}
    }
}

/// Our children, as our own pid namespace numbers them. The `/proc` in sight may be that of another namespace.
fn children() -> Vec<Pid> {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let level = pids(&read("/proc/thread-self/status")).len();
    let list = read("/proc/thread-self/children");
    list.split_whitespace()
        .filter_map(|shown| {
            let status = read(&format!("/proc/{shown}/status"));
            let own = pids(&status).get(level.checked_sub(1)?).copied();
            own.or_else(|| shown.parse().ok())
        })
        .map(Pid::from_raw)
        .collect()
}

/// The pids of a process, out of its status file: first that of the namespace of the `/proc`, last that of the innermost
/// namespace that the process is in.
fn pids(status: &str) -> Vec<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let words = line.into_iter().flat_map(str::split_whitespace);
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_pid_in_each_namespace_from_that_of_proc_on() {
        let status = "Name:\tsleep\nPid:\t4711\nNSpid:\t4711\t12\t1\nNSpgid:\t4711\t12\t1\n";
        assert_eq!(pids(status), [4711, 12, 1]);
        assert_eq!(pids("Name:\tsleep\n"), [0; 0]);
    }

    #[test]
    fn codes_are_those_of_shells() {
        let pid = Pid::from_raw(7);
        for (status, expected) in [
            (WaitStatus::Exited(pid, 3), Some(3)),
            (
                WaitStatus::Signaled(pid, Signal::SIGKILL, false),
                Some(KILLED),
            ),
            (WaitStatus::Continued(pid), None),
        ] {
            assert_eq!(exit_code(status), expected, "{status:?}");
        }
    }
}
