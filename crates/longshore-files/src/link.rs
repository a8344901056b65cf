//! Symbolic links that change in one step.

use std::{ffi::OsString, io, os::unix::fs::symlink, path::Path};

use crate::disk::{Disk, System};

/// Makes a symbolic link, or turns the one that is there to another target: a program that follows the link finds the old
/// target or the new one. Nothing is synced.
///
/// # Errors
/// The link is as it was before.
pub fn replace_link(link: &Path, target: &Path) -> io::Result<()> {
    let name = link.file_name().ok_or_else(|| {
        let why = format!("expected the path of a link, found {}", link.display());
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })?;
    let mut draft = OsString::from(name);
    draft.push(".new");
    let draft = link.with_file_name(draft);
    // One that a crash left.
    System.remove(&draft)?;
    symlink(target, &draft)?;
    System.rename(&draft, link)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_link_is_made_and_turned_without_traces() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("left by a crash", folder.path().join("link.new")).unwrap();
        for target in ["a", "b"] {
            replace_link(&link, Path::new(target)).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace_link(Path::new("/"), Path::new("a")).is_err());
    }
}
