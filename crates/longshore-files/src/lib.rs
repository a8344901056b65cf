//! Files that survive a loss of power whole.
//!
//! A file system may write the bytes of a file, its name, and the names in its directory in any order. A file is
//! replaced safely in four steps: the new bytes go to a draft in the same directory, the draft is synced, the draft
//! takes the name, and the directory is synced. [`replace`] and [`Draft`] do that, and `cargo xtask tidy` finds other
//! code that renames files. This crate uses no other crate of the workspace.
//!
//! Read [`replace`] first.

pub mod disk;
mod draft;
mod group;
mod link;
#[cfg(any(test, feature = "testing"))]
pub mod lossy;
mod tree;

use std::{fs::File, io, path::Path};

pub use disk::{Disk, System};
pub use draft::Draft;
pub use group::GroupSync;
pub use link::replace_link;
pub use tree::remove_tree;

/// Replaces a file, or makes it: after a loss of power the file has its old content or all of the new one, and the new one
/// once this has returned. Its permissions are `mode` less what the umask takes, whatever the old file had.
///
/// # Errors
/// Nothing was replaced, or only the last step failed: then the new content is there and may be lost with the power.
pub fn replace(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    Draft::begin(System, path, mode)?.with(content)?.commit()
}

/// Replaces a file without a sync: no reader ever finds half of it, and a crash of the process
/// leaves the old content or the new one. A loss of power may leave neither.
///
/// # Errors
/// Nothing was replaced.
pub fn replace_unsynced(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let draft = Draft::begin(System, path, mode)?.with(content)?;
    draft.commit_unsynced()
}

/// Makes a directory and those above it that are missing, with these permissions, so that a loss of power keeps them.
///
/// # Errors
/// One of them could not be made or synced; those above it remain.
pub fn make_directories(path: &Path, mode: u32) -> io::Result<()> {
    draft::make_directories(&System, path, mode)
}

/// Syncs the content of a file that has not become longer: what was written over survives a loss of power.
///
/// # Errors
/// The disk failed.
pub fn sync_content(file: &File) -> io::Result<()> {
    disk::count_sync();
    file.sync_data()
}

/// Syncs a directory: the names in it, as they are now, survive a loss of power.
///
/// # Errors
/// The directory cannot be opened, or the disk failed.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    System.sync_directory(path)
}
