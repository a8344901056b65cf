//! The operations of a file system that replacing a file needs: the real ones, or those of a test.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// The operations of which the replacement of a file consists.
pub trait Disk: Clone + Send + Sync + 'static {
    /// A file that is open for reading and writing.
    type File: Write + Send + 'static;

    /// Makes a file, which must not exist, of these permissions less what the umask takes.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Self::File>;
    /// Makes the content of a file durable.
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    /// Renames a file. An existing file with the new name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; one that is not there is no error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes one directory of these permissions.
    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Whether there is such a directory.
    fn has_directory(&self, path: &Path) -> bool;
    /// Whether this disk has made a directory whose name no sync has made durable yet. `None` is the answer of a disk that
    /// does not note this: there, a name is synced as soon as the directory is made.
    fn has_unsynced_name(&self, _path: &Path) -> Option<bool> {
        None
    }
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

#[cfg(any(test, feature = "testing"))]
thread_local! {
    static N_SYNCS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many syncs this thread has asked the file system of this machine for, for tests of what something costs.
#[cfg(any(test, feature = "testing"))]
#[must_use]
pub fn n_syncs() -> usize {
    N_SYNCS.get()
}

/// Notes that the next call is a sync.
pub(crate) fn count_sync() {
    #[cfg(any(test, feature = "testing"))]
    N_SYNCS.set(N_SYNCS.get() + 1);
}

impl Disk for System {
    type File = File;

    fn create(&self, path: &Path, mode: u32) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.mode(mode).open(path)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        count_sync();
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        count_sync();
        match File::open(path)?.sync_all() {
            // Some file systems (of networks, of users) cannot sync a directory.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }

    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        DirBuilder::new().mode(mode).create(path)
    }

    fn has_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }
}
