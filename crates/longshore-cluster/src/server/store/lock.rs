//! One process at a time: a lock that ends with its holder. The lock file names the holder.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

use super::OpenError;

/// The locked file; its text names the holder of the lock.
const LOCK_FILE: &str = "cluster.lock";

/// Held as long as the file is open.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Makes the directory (for its owner only) and locks it.
    pub(super) fn take(directory: &Path) -> Result<DirectoryLock, OpenError> {
        longshore_files::make_directories(directory, 0o700)
            .map_err(|error| OpenError::from_io(directory, error))?;
        let path = directory.join(LOCK_FILE);
        let failed = |error| OpenError::from_io(&path, error);
        let mut file = private_file().create(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // A holder that has not said its name yet is locked out all the same.
                let _ = file.read_to_string(&mut holder);
                return Err(OpenError::Locked {
                    directory: directory.to_owned(),
                    holder: match holder.trim() {
                        "" => "another process".to_owned(),
                        holder => holder.to_owned(),
                    },
                });
            }
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "process {}", std::process::id()).map_err(failed)?;
        Ok(DirectoryLock { _file: file })
    }
}

/// Opens files with mode 0600: objects hold secrets, so other users must not read them.
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
