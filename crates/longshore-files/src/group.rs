//! A disk on which threads share the syncs of a directory.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
};

use crate::{
    disk::{Disk, System},
    draft::directory_of,
};

/// A disk that groups the syncs of each directory, as a database groups commits.
///
/// While one sync of a directory is under way, all further calls for this directory wait for one further sync, which
/// begins afterwards: it covers what each of them has renamed or made before its call. Of several calls in a group, one
/// thread does the sync; all of them return its result. Different directories do not wait for each other.
///
/// The disk also notes which directories it has made whose names no sync has made durable. The [`Draft`](crate::Draft)
/// that is committed in such a directory syncs its name, whichever thread has made it, and also if an earlier sync of the
/// name failed. One sync of the directory above covers all directories that were made in it before.
///
/// Clones share the groups and the notes. A directory must always be named by the same path.
#[derive(Clone, Debug, Default)]
pub struct GroupSync<D: Disk = System> {
    disk: D,
    groups: Arc<Groups>,
}

#[derive(Debug, Default)]
struct Groups {
    directories: Mutex<BTreeMap<PathBuf, Directory>>,
    /// Notified whenever a sync has ended.
    ended: Condvar,
}

/// One directory with calls that wait, or with directories in it whose names are not durable.
#[derive(Debug, Default)]
struct Directory {
    /// The number of syncs of the directory that have begun.
    n_begun: u64,
    is_under_way: bool,
    /// The group whose sync has not begun.
    next: Option<Arc<Group>>,
    /// The directories in this one whose names no sync has made durable.
    unsynced: BTreeMap<PathBuf, Unsynced>,
}

/// A directory whose name no sync has made durable.
#[derive(Debug, Default)]
struct Unsynced {
    /// The number of calls that are making the directory. A sync that begins meanwhile may come too early.
    n_makers: usize,
    /// The number of syncs of the directory above that had begun when the last of these calls ended.
    n_begun: u64,
}

/// The calls that share one sync: its result, once it has ended.
type Group = OnceLock<Result<(), Failure>>;

/// An error of a sync, for each call of the group.
#[derive(Clone, Debug)]
struct Failure {
    os_error: Option<i32>,
    kind: io::ErrorKind,
    message: String,
}

impl<D: Disk> GroupSync<D> {
    /// Groups the syncs of this disk.
    pub fn new(disk: D) -> Self {
        Self {
            disk,
            groups: Arc::default(),
        }
    }
}

impl<D: Disk> Disk for GroupSync<D> {
    type File = D::File;

    fn create(&self, path: &Path, mode: u32) -> io::Result<D::File> {
        self.disk.create(path, mode)
    }

    fn sync(&self, file: &D::File) -> io::Result<()> {
        self.disk.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let synced = match self.groups.join(path) {
            Place::Member(synced) => synced,
            Place::Leader(mut sync) => {
                sync.result = self.disk.sync_directory(path).map_err(Failure::from);
                sync.result.clone()
            }
        };
        synced.map_err(io::Error::from)
    }

    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        // Noted before another thread can find it. If it cannot be made, the note remains and costs one needless sync.
        self.groups.begin_making(path);
        let made = self.disk.create_directory(path, mode);
        self.groups.end_making(path);
        made
    }

    fn has_directory(&self, path: &Path) -> bool {
        self.disk.has_directory(path)
    }

    fn has_unsynced_name(&self, path: &Path) -> Option<bool> {
        Some(self.groups.is_unsynced(path))
    }
}

/// What a call for a sync is in its group.
enum Place<'a> {
    /// Another thread has done the sync, with this result.
    Member(Result<(), Failure>),
    /// This thread does the sync now.
    Leader(DirectorySync<'a>),
}

/// A sync that is under way. It ends when it is dropped, so that no thread waits for a leader that panicked.
struct DirectorySync<'a> {
    groups: &'a Groups,
    path: &'a Path,
    group: Arc<Group>,
    /// The first sync of a directory has the number 1.
    number: u64,
    result: Result<(), Failure>,
}

impl Groups {
    /// Joins the group of a directory whose sync has not begun. Where there is none, the call leads a new group, and waits
    /// until the sync before it has ended.
    fn join<'a>(&'a self, path: &'a Path) -> Place<'a> {
        let mut directories = self.lock();
        let directory = directories.entry(path.to_owned()).or_default();
        if let Some(group) = directory.next.clone() {
            let ended = self
                .ended
                .wait_while(directories, |_| group.get().is_none());
            drop(ended.unwrap_or_else(PoisonError::into_inner));
            let result = group.get().cloned();
            return Place::Member(result.unwrap_or_else(|| Err(Failure::unfinished())));
        }
        let group = Arc::<Group>::default();
        directory.next = Some(Arc::clone(&group));
        let ended = self.ended.wait_while(directories, |directories| {
            let directory = directories.get(path);
            directory.is_some_and(|directory| directory.is_under_way)
        });
        directories = ended.unwrap_or_else(PoisonError::into_inner);
        // The sync begins: from now on, calls join the next group.
        let directory = directories.entry(path.to_owned()).or_default();
        directory.next = None;
        directory.is_under_way = true;
        directory.n_begun += 1;
        Place::Leader(DirectorySync {
            groups: self,
            path,
            group,
            number: directory.n_begun,
            result: Err(Failure::unfinished()),
        })
    }

    fn begin_making(&self, path: &Path) {
        let mut directories = self.lock();
        let above = directories.entry(directory_of(path).to_owned());
        let unsynced = above.or_default().unsynced.entry(path.to_owned());
        unsynced.or_default().n_makers += 1;
    }

    fn end_making(&self, path: &Path) {
        let mut directories = self.lock();
        let Some(above) = directories.get_mut(directory_of(path)) else {
            return;
        };
        if let Some(unsynced) = above.unsynced.get_mut(path) {
            unsynced.n_makers -= 1;
            unsynced.n_begun = above.n_begun;
        }
    }

    fn is_unsynced(&self, path: &Path) -> bool {
        let directories = self.lock();
        let above = directories.get(directory_of(path));
        above.is_some_and(|above| above.unsynced.contains_key(path))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Directory>> {
        let directories = self.directories.lock();
        directories.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DirectorySync<'_> {
    fn drop(&mut self) {
        let mut directories = self.groups.lock();
        if let Some(directory) = directories.get_mut(self.path) {
            directory.is_under_way = false;
            if self.result.is_ok() {
                let is_covered = |it: &Unsynced| it.n_makers == 0 && it.n_begun < self.number;
                directory.unsynced.retain(|_, it| !is_covered(it));
            }
            if directory.next.is_none() && directory.unsynced.is_empty() {
                directories.remove(self.path);
            }
        }
        // Only its leader sets the result of a group, and once.
        drop(self.group.set(self.result.clone()));
        self.groups.ended.notify_all();
    }
}

impl Failure {
    fn unfinished() -> Self {
        Self {
            os_error: None,
            kind: io::ErrorKind::Other,
            message: "the thread that synced the directory for this one did not finish".to_owned(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self {
            os_error: error.raw_os_error(),
            kind: error.kind(),
            message: error.to_string(),
        }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure.os_error {
            Some(code) => Self::from_raw_os_error(code),
            None => Self::new(failure.kind, failure.message),
        }
    }
}

#[cfg(test)]
mod tests;
