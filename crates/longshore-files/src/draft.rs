//! The new content of a file, until it takes the name.

use std::{
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::disk::{Disk, System};

/// New content of a file, in the same directory, under the file's name with `.new` behind it. A draft that is dropped is
/// removed; the next draft replaces one that a crash left.
#[derive(Debug)]
pub struct Draft<D: Disk = System> {
    disk: D,
    draft: PathBuf,
    target: PathBuf,
    /// Taken by the commit.
    file: Option<D::File>,
    has_replaced: bool,
}

impl<D: Disk> Draft<D> {
    /// Begins an empty draft, for a file of these permissions.
    ///
    /// # Errors
    /// The draft cannot be made, or the path has no file name.
    pub fn begin(disk: D, target: &Path, mode: u32) -> io::Result<Self> {
        let name = target.file_name().ok_or_else(|| {
            let why = format!("expected the path of a file, found {}", target.display());
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        let mut draft = OsString::from(name);
        draft.push(".new");
        Self::begin_as(disk, &target.with_file_name(draft), target, mode)
    }

    /// Begins an empty draft of this name, which must be in the directory of the file.
    ///
    /// # Errors
    /// The draft cannot be made.
    pub fn begin_as(disk: D, draft: &Path, target: &Path, mode: u32) -> io::Result<Self> {
        // One that a crash left has its own permissions.
        disk.remove(draft)?;
        let file = disk.create(draft, mode)?;
        Ok(Self {
            disk,
            draft: draft.to_owned(),
            target: target.to_owned(),
            file: Some(file),
            has_replaced: false,
        })
    }

    /// The draft with this content added.
    ///
    /// # Errors
    /// The content cannot be written; the draft is gone.
    pub fn with(mut self, content: &[u8]) -> io::Result<Self> {
        self.file()?.write_all(content)?;
        Ok(self)
    }

    /// The file of the draft.
    ///
    /// # Errors
    /// The draft has no file, which is impossible before the commit.
    pub fn file(&mut self) -> io::Result<&mut D::File> {
        self.file.as_mut().ok_or_else(no_file)
    }

    /// Puts the draft in the place of the file: durable once this has returned.
    ///
    /// # Errors
    /// Nothing was replaced and the draft is gone, or only the sync of the directory failed.
    pub fn commit(self) -> io::Result<()> {
        self.commit_if(|| Ok(()))
    }

    /// Puts the draft in the place of the file, unless `may_replace` refuses. The commit calls it when the
    /// draft is durable, right before the draft takes the name.
    ///
    /// # Errors
    /// Nothing was replaced and the draft is gone, or only the sync of the directory failed.
    pub fn commit_if(mut self, may_replace: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let file = self.file.take().ok_or_else(no_file)?;
        self.disk.sync(&file)?;
        drop(file);
        may_replace()?;
        self.take_name()?;
        let directory = directory_of(&self.target);
        self.disk.sync_directory(directory)?;
        let above = directory.ancestors();
        let mut unsynced = above.filter(|it| self.disk.has_unsynced_name(it) == Some(true));
        unsynced.try_for_each(|it| sync_name(&self.disk, it))
    }

    /// Commits without a sync: no reader finds half of the file, but a loss of power may lose it.
    pub(crate) fn commit_unsynced(mut self) -> io::Result<()> {
        self.file = None;
        self.take_name()
    }

    fn take_name(&mut self) -> io::Result<()> {
        self.disk.rename(&self.draft, &self.target)?;
        self.has_replaced = true;
        Ok(())
    }
}

impl<D: Disk> Drop for Draft<D> {
    fn drop(&mut self) {
        if !self.has_replaced {
            self.file = None;
            // The log of the error may need the space of the draft; the next draft removes what is left.
            drop(self.disk.remove(&self.draft));
        }
    }
}

fn no_file() -> io::Error {
    io::Error::other("the draft was committed before")
}

pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        Some(_) | None => Path::new("."),
    }
}

/// Makes a directory and those above it that are missing. See [`make_directories`](crate::make_directories). A disk that
/// notes the names that are not synced keeps them for the commit of a draft.
pub(crate) fn make_directories(disk: &impl Disk, path: &Path, mode: u32) -> io::Result<()> {
    if disk.has_directory(path) {
        return Ok(());
    }
    let parent = directory_of(path);
    if parent != path {
        make_directories(disk, parent, mode)?;
    }
    match disk.create_directory(path, mode) {
        // Another thread or process made it, and may not have synced it.
        Err(_) if disk.has_directory(path) => {}
        made => made?,
    }
    if disk.has_unsynced_name(path).is_some() {
        // The commit syncs the name, unless another thread has done so by then.
        return Ok(());
    }
    sync_name(disk, path)
}

/// Makes the name of a directory durable.
fn sync_name(disk: &impl Disk, path: &Path) -> io::Result<()> {
    match disk.sync_directory(directory_of(path)) {
        // A user who may write in a directory need not be allowed to read it; such a directory cannot be synced.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

impl<D: Disk> Draft<D> {
    /// Begins a draft in a directory that is made where it is missing.
    ///
    /// # Errors
    /// The directory or the draft cannot be made.
    pub fn begin_in_new_directory(
        disk: D,
        target: &Path,
        mode: u32,
        directory_mode: u32,
    ) -> io::Result<Self> {
        make_directories(&disk, directory_of(target), directory_mode)?;
        Self::begin(disk, target, mode)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
    };

    use super::*;
    use crate::{lossy::LossyDisk, replace};

    const FILE: &str = "/a/b/file";

    fn written(disk: &LossyDisk, content: &[u8]) -> io::Result<()> {
        let draft = Draft::begin_in_new_directory(disk.clone(), Path::new(FILE), 0o600, 0o700)?;
        draft.with(content)?.commit()
    }

    #[test]
    fn a_loss_of_power_leaves_the_old_content_or_the_new_one() {
        for old in [None, Some(b"old".as_slice())] {
            let mut has_failed = true;
            let mut n_steps = 0;
            while has_failed {
                let disk = LossyDisk::default();
                if let Some(old) = old {
                    written(&disk, old).unwrap();
                }
                disk.lose_power_after(n_steps);
                has_failed = written(&disk, b"new content").is_err();
                disk.restore_power();
                let found = disk.read(Path::new(FILE));
                let is_new = found.as_deref() == Some(b"new content".as_slice());
                assert!(
                    is_new || found.as_deref() == old,
                    "after {n_steps}: {found:?}"
                );
                assert!(
                    is_new || has_failed,
                    "after {n_steps} the power went, and nothing was kept"
                );
                // An old draft does not stand in the way.
                written(&disk, b"once more").unwrap();
                disk.lose_power_after(0);
                disk.restore_power();
                assert_eq!(disk.read(Path::new(FILE)).unwrap(), b"once more");
                n_steps += 1;
            }
            assert!(n_steps > 5, "only {n_steps} steps");
        }
    }

    #[test]
    fn a_step_that_is_left_out_loses_the_file() {
        let disk = LossyDisk::default();
        let draft = Draft::begin_in_new_directory(disk.clone(), Path::new(FILE), 0o600, 0o700);
        let draft = draft.unwrap().with(b"new").unwrap();
        draft.commit_unsynced().unwrap();
        assert_eq!(disk.read(Path::new(FILE)).unwrap(), b"new");
        disk.lose_power_after(0);
        disk.restore_power();
        assert_eq!(disk.read(Path::new(FILE)), None);
    }

    #[test]
    fn a_file_is_replaced_with_its_permissions_and_without_traces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let left = folder.path().join("file.new");
        fs::write(&left, "left by a crash").unwrap();
        fs::set_permissions(&left, Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        for mode in [0o600, 0o700] {
            replace(&path, mode, b"new").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            let found = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
        }
        drop(Draft::begin(System, &path, 0o600).unwrap().with(b"half"));
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(Path::new("/"), 0o600, b"").is_err());
    }

    #[test]
    fn directories_are_made_with_those_above_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        for _ in 0..2 {
            crate::make_directories(&path, 0o700).unwrap();
        }
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(crate::make_directories(&file, 0o700).is_err());
        for directory in [path.as_path(), path.parent().unwrap()] {
            let mode = fs::metadata(directory).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
    }
}
