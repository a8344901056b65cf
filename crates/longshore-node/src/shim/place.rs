//! Where the directory of a pod is: what tells it from its copies.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use serde::{Deserialize, Serialize};

/// Longer paths are not written down: the room of a record is limited.
const LONGEST_PATH: usize = 512;

/// A directory by its path and by its number in its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    path: String,
    device: u64,
    inode: u64,
}

impl Place {
    /// The place of a directory; `None` where that cannot be told.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        let path = fs::canonicalize(dir).ok()?;
        let about = fs::metadata(&path).ok()?;
        let path = path.into_os_string().into_string().ok()?;
        (path.len() <= LONGEST_PATH).then(|| Self {
            path,
            device: about.dev(),
            inode: about.ino(),
        })
    }

    /// Whether these are two directories. One that was moved keeps its number, and one that was put back from a backup has
    /// its path; and some file systems give other numbers from time to time.
    pub(crate) fn is_other_than(&self, other: &Self) -> bool {
        let number = |it: &Self| (it.device, it.inode);
        self.path != other.path && number(self) != number(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_another_directory_and_one_that_was_moved_is_none() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        assert_eq!(Place::of(&first), None, "it is not there");
        fs::create_dir(&first).unwrap();
        let before = Place::of(&first).unwrap();
        fs::rename(&first, &second).unwrap();
        let moved = Place::of(&second).unwrap();
        fs::create_dir(&first).unwrap();
        let put_back = Place::of(&first).unwrap();
        for same in [&before, &moved, &put_back] {
            assert!(!before.is_other_than(same), "{before:?} {same:?}");
        }
        assert!(put_back.is_other_than(&moved), "{put_back:?} {moved:?}");
        std::os::unix::fs::symlink(&first, root.path().join("link")).unwrap();
        assert_eq!(Place::of(&root.path().join("link")), Some(put_back));
    }
}
