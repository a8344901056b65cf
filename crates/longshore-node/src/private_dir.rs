//! Directories for this user alone, and directories that every user of a container may enter: whatever the
//! umask of the node is.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

/// Makes a directory for this user alone; one that exists becomes so.
pub(crate) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o700))
}

/// Makes the directories from `top` down to `dir` that are missing, for every user of a container. What is above `top`
/// stays as it is.
pub(crate) fn make_readable(top: &Path, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for dir in dir.ancestors().take_while(|dir| dir.starts_with(top)) {
        fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_private_is_so_from_the_start_and_what_is_not_can_be_entered() {
        let folder = tempfile::tempdir().unwrap();
        let private = folder.path().join("private");
        make(&private).unwrap();
        assert_eq!(mode(&private), 0o700);
        let top = private.join("volume");
        make_readable(&top, &top.join("a/b")).unwrap();
        for dir in [&top, &top.join("a"), &top.join("a/b")] {
            assert_eq!(mode(dir), 0o755);
        }
        assert_eq!(mode(&private), 0o700);
    }
}
