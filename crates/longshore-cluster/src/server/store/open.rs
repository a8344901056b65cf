//! How a cluster in a directory is opened, and why it cannot be.

use std::{
    io,
    path::{Path, PathBuf},
};

/// When a write is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// When it is on the medium: nothing that was acknowledged is ever lost.
    #[default]
    Strict,
    /// At once; the medium follows. A crash loses the last moments, the end of the order of writes
    /// and nothing in its middle.
    Relaxed,
}

/// Why a directory was refused.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the directory open.
    #[error(
        "{} is in use by {holder}: stop it, or choose another directory",
        directory.display()
    )]
    Locked {
        /// The directory.
        directory: PathBuf,
        /// The holder of the lock, as far as the lock file names it.
        holder: String,
    },
    /// The store file does not hold what was written to it.
    #[error(
        "{} is damaged: {what}; put a backup in its place, or move the file away to start empty",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The place in the file, and what was found there.
        what: String,
    },
    /// A newer Longshore has written it.
    #[error(
        "{} has format {found}, this version reads up to format {supported}: use the version that \
         wrote it",
        file.display()
    )]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// The format of the file.
        found: u64,
        /// The newest format that this version knows.
        supported: u64,
    },
    /// This user may not read and write it.
    #[error("no permission to read and write {}", path.display())]
    NoPermission {
        /// The path without permission.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The medium is full.
    #[error("no space is left for {}", path.display())]
    Full {
        /// The file that does not fit.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Any other error of the operating system.
    #[error("{} cannot be opened", path.display())]
    Io {
        /// The path that was opened.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn damaged(file: &Path, what: impl ToString) -> OpenError {
        OpenError::Damaged {
            file: file.to_owned(),
            what: what.to_string(),
        }
    }

    /// Sorts an error of the system by what can be done about it.
    pub(crate) fn from_io(path: &Path, source: io::Error) -> OpenError {
        let path = path.to_owned();
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the system has many errors, these have a remedy of their own"
        )]
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                OpenError::NoPermission { path, source }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                OpenError::Full { path, source }
            }
            // Reading behind the end: the file is shorter than it says.
            io::ErrorKind::UnexpectedEof => OpenError::Damaged {
                file: path,
                what: "it ends before its last page".to_owned(),
            },
            _ => OpenError::Io { path, source },
        }
    }
}
