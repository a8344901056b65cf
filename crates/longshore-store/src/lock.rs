//! One process per database file.

use std::{
    fs::{File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The lock beside a database file, held as long as this lives. The kernel releases it when the process dies, however
/// it dies; the file stays and means nothing by itself.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process holds the lock: the process with this id, if that could be read.
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
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process that is just being started holds a copy of the descriptor until its exec,
        // and the lock with it. On failure the close releases it a moment later.
        let _ = self.file.unlock();
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
