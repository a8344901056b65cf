//! One process per database file.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The lock beside a database file, held as long as this lives. The kernel releases it when the process dies, however
/// it dies; the file stays and means nothing by itself.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process holds it: this one, if it could be read.
    Held(Option<u32>),
    /// The lock file cannot be created or locked.
    Io(io::Error),
}

impl Lock {
    /// Takes the lock of this database file, or fails at once.
    pub(crate) fn take(database: &Path) -> Result<Self, LockError> {
        let path = lock_path(database);
        let mut options = File::options();
        let mut file = options
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(LockError::Io)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LockError::Held(read_holder(&path)),
            TryLockError::Error(error) => LockError::Io(error),
        })?;
        // For the message above only, but a directory that is full or broken shows here, before anything is at stake.
        file.set_len(0).map_err(LockError::Io)?;
        writeln!(file, "{}", std::process::id()).map_err(LockError::Io)?;
        Ok(Self { _file: file })
    }
}

/// `runs.db` is locked by `runs.db.lock`.
fn lock_path(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn read_holder(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
