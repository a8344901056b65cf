//! What goes wrong with a repository, by what somebody can do about it.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

use crate::version::CommitId;

/// Why a bundle of a repository could not be refreshed, or a version of it made.
#[derive(Debug, Error)]
pub enum GitError {
    /// There is no program `git`.
    #[error("the program `{program}` cannot be run; install git 2.31 or newer, or give its path")]
    NoProgram {
        /// What was called.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The program `git` is too old.
    #[error("expected git 2.31 or newer, found {found:?}; install a newer one")]
    TooOld {
        /// What it says.
        found: String,
    },
    /// The remote does not answer, or has no such repository any more. What was fetched stays usable.
    #[error("the repository {remote} cannot be reached: {said}")]
    Gone {
        /// The remote.
        remote: String,
        /// What git said.
        said: String,
    },
    /// The remote did not let us in, or is not the host that it claims to be.
    #[error(
        "the repository {remote} refused us; check the credentials and known hosts of the bundle: {said}"
    )]
    Refused {
        /// The remote.
        remote: String,
        /// What git said.
        said: String,
    },
    /// What is at the remote's address, or in our own clone, is no git repository.
    #[error("expected a git repository at {place}: {said}")]
    NotARepository {
        /// The address, or the path of the clone.
        place: String,
        /// What git said.
        said: String,
    },
    /// The repository has no such branch, tag or commit.
    #[error(
        "the repository has no branch, tag or commit `{tracking_ref}`; correct `tracking_ref` of the bundle"
    )]
    RefMissing {
        /// What is followed.
        tracking_ref: String,
    },
    /// Neither our clone nor the remote has this commit.
    #[error(
        "commit {commit} is neither in our clone nor at the remote: it was removed there before it was fetched, or the clone was lost"
    )]
    CommitMissing {
        /// The commit.
        commit: CommitId,
    },
    /// The commit has no such folder.
    #[error("commit {commit} has no folder `{subdir}`; correct `subdir` of the bundle")]
    SubdirMissing {
        /// The commit.
        commit: CommitId,
        /// The folder.
        subdir: String,
    },
    /// It took too long, and was ended.
    #[error("{what} was ended after {}s; raise the time limit if the repository is large", .limit.as_secs())]
    TimeLimit {
        /// What was done.
        what: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The disk, or our part of it, is full.
    #[error("there is no space left for the bundle at {}", .path.display())]
    DiskFull {
        /// Where.
        path: PathBuf,
    },
    /// More than this crate is ready to hold.
    #[error(
        "{what}: expected at most {limit}, found {found} or more; leave it out of the repository, or raise the limit"
    )]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
        /// What was found when the work was ended.
        found: u64,
    },
    /// Another process holds the lock of the bundle.
    #[error("another process works on the bundle ({holder}) for more than {}s", .limit.as_secs())]
    Busy {
        /// Who holds the lock.
        holder: String,
        /// How long we waited.
        limit: Duration,
    },
    /// A file of ours cannot be used.
    #[error("{what} {}", .path.display())]
    Io {
        /// What was done.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Git failed in a way that this crate has no name for.
    #[error("git {what} failed: {said}")]
    Other {
        /// The command.
        what: &'static str,
        /// What git said.
        said: String,
    },
    /// A test ended the work here.
    #[cfg(test)]
    #[error("stopped by a test")]
    Stopped,
}

/// What may help against an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Trying again, later and later.
    Retry,
    /// Another configuration, or somebody who repairs something; trying again does no harm.
    Invalid,
}

impl GitError {
    /// What may help.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Gone { .. }
            | Self::TimeLimit { .. }
            | Self::DiskFull { .. }
            | Self::Busy { .. }
            | Self::Io { .. }
            | Self::Other { .. } => Class::Retry,
            Self::NoProgram { .. }
            | Self::TooOld { .. }
            | Self::Refused { .. }
            | Self::NotARepository { .. }
            | Self::RefMissing { .. }
            | Self::CommitMissing { .. }
            | Self::SubdirMissing { .. }
            | Self::TooLarge { .. } => Class::Invalid,
            #[cfg(test)]
            Self::Stopped => Class::Retry,
        }
    }

    pub(crate) fn io(what: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        let path = path.to_owned();
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if full.contains(&source.kind()) {
            Self::DiskFull { path }
        } else {
            Self::Io { what, path, source }
        }
    }
}

/// What a message of git means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    DiskFull,
    Refused,
    NotARepository,
    Gone,
    Other,
}

/// What git says in the C locale, the most telling message first: `Could not read from remote repository` follows most
/// others.
const MESSAGES: &[(&str, Cause)] = &[
    ("No space left on device", Cause::DiskFull),
    ("Disk quota exceeded", Cause::DiskFull),
    ("Authentication failed", Cause::Refused),
    ("could not read Username", Cause::Refused),
    ("could not read Password", Cause::Refused),
    ("Permission denied", Cause::Refused),
    ("Host key verification failed", Cause::Refused),
    ("returned error: 401", Cause::Refused),
    ("returned error: 403", Cause::Refused),
    ("certificate", Cause::Refused),
    (
        "does not appear to be a git repository",
        Cause::NotARepository,
    ),
    ("is this a git repository?", Cause::NotARepository),
    ("not a git repository", Cause::NotARepository),
    ("unable to access", Cause::Gone),
    ("Could not resolve host", Cause::Gone),
    ("Connection refused", Cause::Gone),
    ("Connection reset", Cause::Gone),
    ("Connection closed", Cause::Gone),
    ("timed out", Cause::Gone),
    ("ot found", Cause::Gone),
    ("hung up unexpectedly", Cause::Gone),
    ("early EOF", Cause::Gone),
    ("Could not read from remote repository", Cause::Gone),
];

/// What a failure of git means, from what it said.
pub(crate) fn cause(said: &str) -> Cause {
    let found = MESSAGES.iter().find(|(text, _)| said.contains(text));
    found.map_or(Cause::Other, |(_, cause)| *cause)
}

/// The end of what git said, for people: one line, without control characters, at most 500 characters.
pub(crate) fn for_people(said: &str) -> String {
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("; ");
    let text: Vec<char> = text.chars().filter(|char| !char.is_control()).collect();
    text[text.len().saturating_sub(500)..].iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_git_are_understood() {
        for (said, expected) in [
            (
                "fatal: write error: No space left on device\nfatal: index-pack failed",
                Cause::DiskFull,
            ),
            (
                "remote: Invalid username\nfatal: Authentication failed for 'https://h/a/'",
                Cause::Refused,
            ),
            (
                "fatal: could not read Username for 'https://h': terminal prompts disabled",
                Cause::Refused,
            ),
            (
                "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.",
                Cause::Refused,
            ),
            (
                "Host key verification failed.\nfatal: Could not read from remote repository.",
                Cause::Refused,
            ),
            (
                "fatal: unable to access 'https://h/a/': The requested URL returned error: 403",
                Cause::Refused,
            ),
            (
                "fatal: unable to access 'https://h/a/': SSL certificate problem: self-signed certificate",
                Cause::Refused,
            ),
            (
                "fatal: '/x' does not appear to be a git repository\nfatal: Could not read from remote repository.",
                Cause::NotARepository,
            ),
            (
                "fatal: https://h/a/info/refs not valid: is this a git repository?",
                Cause::NotARepository,
            ),
            (
                "fatal: unable to access 'https://h/a/': Could not resolve host: h",
                Cause::Gone,
            ),
            (
                "fatal: unable to access 'https://h/a/': The requested URL returned error: 502",
                Cause::Gone,
            ),
            ("fatal: repository 'https://h/a/' not found", Cause::Gone),
            (
                "ERROR: Repository not found.\nfatal: Could not read from remote repository.",
                Cause::Gone,
            ),
            (
                "ssh: connect to host h port 22: Connection timed out\nfatal: Could not read from remote repository.",
                Cause::Gone,
            ),
            ("fatal: the remote end hung up unexpectedly", Cause::Gone),
            ("fatal: bad object", Cause::Other),
            ("", Cause::Other),
        ] {
            assert_eq!(cause(said), expected, "{said}");
        }
    }

    #[test]
    fn what_git_said_is_one_bounded_line() {
        assert_eq!(for_people("a\n\n  b\x1b[31m\r\n"), "a; b[31m");
        assert_eq!(for_people(&"ä".repeat(900)).chars().count(), 500);
    }
}
