//! How a child ended, and why one did not start.

use std::{fmt, io, path::PathBuf, time::Duration};

use nix::sys::signal::Signal;
use thiserror::Error;

use crate::{frame::FrameError, keeper::LAST_LINES, tail::Tail};

/// Why nothing of a program has run.
#[derive(Debug, Error)]
pub enum NotStarted {
    /// The interpreter cannot be executed.
    #[error(
        "the Python interpreter {interpreter} cannot be started: name one that exists and may be executed"
    )]
    Interpreter {
        /// As it was given.
        interpreter: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The interpreter ended before it ran our program.
    #[error(
        "{interpreter} ended before it ran a program: expected Python 3.9 or later with ctypes; its last lines:\n{output}"
    )]
    NoKeeper {
        /// As it was given.
        interpreter: PathBuf,
        /// What it printed.
        output: String,
    },
    /// The keeper or the prefork server could not take a step for the child.
    #[error("the child cannot {step}")]
    Refused {
        /// What it could not do.
        step: Step,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The prefork server could not import a module.
    #[error(
        "the prefork server cannot import {module}: install it in this environment, or start plainly; its last lines:\n{output}"
    )]
    Import {
        /// The module.
        module: String,
        /// The traceback.
        output: String,
    },
    /// The prefork server has threads, and a fork would take only one of them along.
    #[error(
        "expected the prefork server to have one thread, found {0}: a preloaded module has started some; leave it out, or start plainly"
    )]
    Threads(u64),
    /// The prefork server ended, again and again.
    #[error("the prefork server ended ({why}); it is started again in {wait:?}")]
    BackingOff {
        /// From now.
        wait: Duration,
        /// How it ended the last time.
        why: String,
    },
    /// The prefork server was killed while it was asked, twice in a row.
    #[error("the prefork server ended before it started the child; its last lines:\n{0}")]
    ServerGone(String),
    /// The start took too long.
    #[error(
        "expected a start within {0:?}, found none: is the machine overloaded, or does an import hang?"
    )]
    Slow(Duration),
    /// No socket or pipe could be made.
    #[error("no socket or pipe can be made: raise the limit for open files")]
    Socket(#[source] io::Error),
    /// Our own program failed.
    #[error("the keeper of the child failed: {0}")]
    Broken(String),
}

/// A step between the fork and the first line of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Process group, signals, descriptors.
    SetUp,
    /// The working directory.
    Directory,
    /// The interpreter.
    Execute,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SetUp => "get its process group and descriptors",
            Self::Directory => "enter its working directory: name one that exists",
            Self::Execute => "execute its interpreter: name one that exists and may be executed",
        })
    }
}

/// How a process ended.
#[derive(Debug)]
pub enum Exit {
    /// It exited.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It did not get to its program.
    Refused(NotStarted),
    /// Somebody killed the process that watches the child; the child was killed, too.
    KeeperLost(String),
}

/// The end of a process.
#[derive(Debug)]
pub struct Exited {
    /// How it ended.
    pub exit: Exit,
    /// What it took.
    pub usage: Usage,
    /// Processes that it left running, and that were killed.
    pub n_left: u64,
}

/// What a process took, with the descendants that it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time.
    pub cpu: Duration,
    /// The most resident memory of one process, in bytes.
    pub max_rss: u64,
}

/// How a child ended.
#[derive(Debug)]
pub enum End {
    /// It exited with this code. 0 is success.
    Exited(i32),
    /// A signal ended it that is not ours.
    Signalled(i32),
    /// We stopped it, as the caller wanted.
    Stopped,
    /// It took longer than a limit, and was killed.
    TooLong(TooLong),
    /// It took more than a limit, and was killed.
    TooLarge(TooLarge),
    /// It wrote something else than frames, and was killed.
    Garbage(FrameError),
    /// It closed its pipe, ran on, and was killed.
    ClosedPipe {
        /// How long it ran on.
        after: Duration,
    },
    /// It did not get to its program.
    NotStarted(NotStarted),
    /// Somebody killed the process that watches the child; the child was killed, too.
    KeeperLost(String),
}

/// A limit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLong {
    /// From the start to the end.
    Wall(Duration),
    /// Without a frame.
    Silence(Duration),
}

/// A limit of size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLarge {
    /// Resident memory.
    Memory {
        /// What it had when we looked.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// A frame that it announced.
    Frame {
        /// Bytes of the frame.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// An answer to one of its requests.
    Answer {
        /// Bytes of the frame.
        found: usize,
        /// The limit.
        max: usize,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(0) => f.write_str("the child exited with code 0"),
            Self::Exited(code) => write!(
                f,
                "expected the child to exit with code 0, found {code}: what it printed says why"
            ),
            Self::Signalled(number) => {
                write!(f, "the child was killed by {}", name(*number))?;
                f.write_str(match *number {
                    9 => ", which is not ours: did it run out of memory, or did somebody kill it?",
                    _ => ": what it printed may say why",
                })
            }
            Self::Stopped => f.write_str("the child was stopped as requested"),
            Self::TooLong(TooLong::Wall(limit)) => write!(
                f,
                "expected the child to end within {limit:?}, killed it then: make it faster, or raise the limit"
            ),
            Self::TooLong(TooLong::Silence(limit)) => write!(
                f,
                "expected a message of the child every {limit:?}, found none and killed it: something in it blocks"
            ),
            Self::TooLarge(TooLarge::Memory { found, max }) => write!(
                f,
                "expected the child to take at most {max} bytes of memory, found {found} and killed it: \
                 make it smaller, or raise the limit"
            ),
            Self::TooLarge(TooLarge::Frame { found, max }) => write!(
                f,
                "expected messages of at most {max} bytes, the child announced one of {found}: \
                 does it print to descriptor 0? If not, raise the limit"
            ),
            Self::TooLarge(TooLarge::Answer { found, max }) => write!(
                f,
                "expected answers of at most {max} bytes, found one of {found}: \
                 make the value smaller that the child asks for, or raise the limit"
            ),
            Self::Garbage(why) => write!(f, "the child does not speak the protocol: {why}"),
            Self::ClosedPipe { after } => write!(
                f,
                "the child closed its pipe and still ran after {after:?}, killed it: \
                 does it close descriptor 0, or wait for a thread?"
            ),
            Self::NotStarted(why) => why.fmt(f),
            Self::KeeperLost(why) if why.is_empty() => f.write_str(
                "the process that watches the child was killed, and the child with it: start it again",
            ),
            Self::KeeperLost(why) => {
                write!(f, "the process that watches the child ended, and the child with it: {why}")
            }
        }
    }
}

fn name(number: i32) -> String {
    Signal::try_from(number)
        .map_or_else(|_| format!("signal {number}"), |signal| signal.to_string())
}

/// A child that has ended, and everything that ran below it.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub end: End,
    /// The last part of what it printed, both streams together.
    pub output: Tail,
    /// What it took.
    pub usage: Usage,
    /// Processes that it left running, and that were killed.
    pub n_left: u64,
}

impl Ended {
    /// Whether the child exited with code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self.end, End::Exited(0))
    }

    /// The end as a result.
    ///
    /// # Errors
    ///
    /// [`ChildError`] for every end but an exit with code 0.
    pub fn into_result(self) -> Result<Usage, ChildError> {
        if self.is_success() {
            return Ok(self.usage);
        }
        Err(ChildError {
            output: self.output.last_lines(LAST_LINES),
            end: self.end,
        })
    }
}

/// A child that did not end as it should, with the last lines that it printed.
#[derive(Debug)]
pub struct ChildError {
    /// How it ended.
    pub end: End,
    /// The last lines of what it printed.
    pub output: String,
}

impl fmt::Display for ChildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.end.fmt(f)?;
        if self.output.is_empty() {
            return f.write_str("; it printed nothing");
        }
        write!(f, "; its last lines:\n{}", self.output)
    }
}

impl std::error::Error for ChildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.end {
            End::NotStarted(why) => why.source(),
            End::Exited(_)
            | End::Signalled(_)
            | End::Stopped
            | End::TooLong(_)
            | End::TooLarge(_)
            | End::Garbage(_)
            | End::ClosedPipe { .. }
            | End::KeeperLost(_) => None,
        }
    }
}
