//! The exit codes, all of them.

use std::process::ExitCode;

/// How the process ends. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Success = 0,
    /// The command failed.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The named thing does not exist, or this build cannot do it.
    NotFoundOrUnsupported = 3,
    /// The awaited run failed.
    RunFailed = 4,
    /// The awaited run did not end in time.
    TimedOut = 5,
    /// The service refuses this client.
    NotAuthorised = 6,
    /// Stopped by Ctrl-C or SIGTERM.
    Interrupted = 130,
}

/// What `--help` says about exit codes.
pub(crate) const HELP: &str = "\
Exit codes: 0 success, 1 error, 2 usage, 3 not found, 4 run failed, 5 timeout, 6 denied, 130 Ctrl-C";

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
