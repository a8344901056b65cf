//! Signals as something to wait for: one place decides what ends this process.

use std::{os::fd::AsFd, time::Duration};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};

use super::ClusterError;

/// What a signal means to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// A child may have ended.
    Child,
    /// Ctrl-C or its like.
    End,
}

impl Told {
    pub(super) fn ends_us(self) -> bool {
        self == Told::End
    }
}

/// The signals that are waited for. What a guarded child inherits of it, it clears (`guarded::become_guarded`).
#[derive(Debug)]
pub(super) struct Signals(SignalFd);

impl Signals {
    /// From here on these signals do nothing by themselves.
    pub(super) fn take() -> Result<Signals, ClusterError> {
        let watched: SigSet = [
            Signal::SIGCHLD,
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGTERM,
        ]
        .into_iter()
        .collect();
        watched.thread_block().map_err(ClusterError::Signals)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        SignalFd::with_flags(&watched, flags)
            .map(Signals)
            .map_err(ClusterError::Signals)
    }

    /// The next signal; `None` when none comes in time.
    pub(super) fn wait(&self, longest: Option<Duration>) -> Result<Option<Told>, ClusterError> {
        let timeout = match longest {
            None => PollTimeout::NONE,
            Some(longest) => PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX),
        };
        let mut files = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut files, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(ClusterError::Signals(error)),
        }
        let signal = self.0.read_signal().map_err(ClusterError::Signals)?;
        Ok(signal.map(|signal| {
            if signal.ssi_signo == Signal::SIGCHLD as u32 {
                Told::Child
            } else {
                Told::End
            }
        }))
    }
}
