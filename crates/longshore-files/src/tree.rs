//! Directories that are removed with all that is in them.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

/// What its owner needs of a directory to remove what is in it.
const OWNER: u32 = 0o700;

/// Removes a directory with all that is in it, if it is there. Nothing else may write to it meanwhile.
///
/// A directory that its owner has closed to himself, as overlay file systems leave behind, is opened first: only root may
/// remove what is in a closed one.
///
/// # Errors
/// Something in it belongs to another user or could not be removed; the rest may be gone.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    // One that is empty, as most are that containers leave, is not opened: to list it takes seven calls more.
    match fs::remove_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {}
        Ok(()) | Err(_) => return Ok(()),
    }
    let removed = match fs::remove_dir_all(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            open_all(path)?;
            fs::remove_dir_all(path)
        }
        removed => removed,
    };
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Gives the owner back all rights to a directory and to those in it.
fn open_all(directory: &Path) -> io::Result<()> {
    let permissions = fs::symlink_metadata(directory)?.permissions();
    let mode = permissions.mode();
    if mode & OWNER != OWNER {
        fs::set_permissions(directory, fs::Permissions::from_mode(mode | OWNER))?;
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_all(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::unistd::{Gid, Uid, chown, setfsgid, setfsuid};

    use super::*;

    /// Runs as a user to whom closed directories are closed, also in a test of root.
    fn as_ordinary_user(folder: &Path, run: impl FnOnce() + Send + 'static) {
        let (user, group) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
        let is_root = Uid::effective().is_root();
        if is_root {
            chown(folder, Some(user), Some(group)).unwrap();
        }
        let other = thread::spawn(move || {
            if is_root {
                setfsgid(group);
                setfsuid(user);
            }
            run();
        });
        other.join().unwrap();
    }

    #[test]
    fn closed_directories_are_removed_by_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("pod");
        as_ordinary_user(folder.path(), move || {
            let closed = tree.join("layers/work-0/work");
            fs::create_dir_all(closed.join("deep")).unwrap();
            fs::write(closed.join("file"), "x").unwrap();
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
            let refused = fs::remove_dir_all(&tree).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            remove_tree(&tree).unwrap();
            assert!(!tree.exists());
            remove_tree(&tree).unwrap();
        });
    }

    #[test]
    fn what_a_link_names_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, other) = (folder.path().join("pod"), folder.path().join("other"));
        as_ordinary_user(folder.path(), move || {
            fs::create_dir_all(tree.join("closed/in")).unwrap();
            fs::create_dir(&other).unwrap();
            fs::set_permissions(&other, fs::Permissions::from_mode(0o500)).unwrap();
            std::os::unix::fs::symlink(&other, tree.join("link")).unwrap();
            let closed = fs::Permissions::from_mode(0o000);
            fs::set_permissions(tree.join("closed"), closed).unwrap();
            remove_tree(&tree).unwrap();
            let mode = fs::metadata(&other).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o500);
        });
    }
}
