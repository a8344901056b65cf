//! Volumes of files that change all at once, in Kubernetes' layout.
//!
//! Each version of the files is a hidden directory of the volume, the link `..data` names the current one, and each name on
//! top is a link through `..data`. A program that follows `..data` sees all files of one version. A program that keeps a
//! directory of an old version open sees it empty after the change.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, chown, symlink},
    },
    path::{Component, Path, PathBuf},
};

use crate::private_dir;

/// The link to the current version.
const DATA: &str = "..data";

/// One file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    /// Relative to the volume.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
    /// The permissions, less than 0o1000.
    pub(crate) mode: u32,
}

/// What a write has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The volume held exactly these files already.
    Unchanged,
    /// The volume holds them now.
    Changed,
}

/// Makes a volume hold exactly these files, and belong to a group where one is given. Of two files with one path the last
/// counts.
///
/// # Errors
/// A path leads out of the volume, or the disk refuses. Programs see the files as they were, unless only the removal of an
/// old version failed; the next write removes it.
pub(crate) fn write_for(dir: &Path, files: &[File], group: Option<u32>) -> io::Result<Written> {
    let mut by_path = BTreeMap::new();
    for file in files {
        by_path.insert(inside(&file.path)?, file);
    }
    let current = fs::read_link(dir.join(DATA)).ok();
    let is_same = current
        .as_ref()
        .is_some_and(|version| holds(&dir.join(version), &by_path));
    if is_same {
        // A crash may have come between the two.
        link_names(dir, &by_path)?;
        return Ok(Written::Unchanged);
    }
    let version = next_version(current.as_deref());
    put_version(dir, &version, &by_path)?;
    if let Some(group) = group {
        give(dir, group)?;
        give_all(&dir.join(&version), group)?;
    }
    longshore_files::replace_link(&dir.join(DATA), Path::new(&version))?;
    link_names(dir, &by_path)?;
    remove_others(dir, &version, &by_path)?;
    Ok(Written::Changed)
}

/// The path as one below the volume.
fn inside(path: &str) -> io::Result<PathBuf> {
    let relative = Path::new(path);
    let mut parts = relative.components();
    let is_hidden = path.starts_with("..");
    let is_inside =
        parts.clone().next().is_some() && parts.all(|part| matches!(part, Component::Normal(_)));
    if is_inside && !is_hidden {
        // Without `//` and the like, so that one file has one path.
        return Ok(relative.components().collect());
    }
    let why = format!("expected the path of a file inside the volume, found {path:?}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Whether a version holds exactly these files.
fn holds(version: &Path, files: &BTreeMap<PathBuf, &File>) -> bool {
    let is_same = |(path, file): (&PathBuf, &&File)| {
        let path = version.join(path);
        let metadata = fs::metadata(&path);
        metadata.is_ok_and(|it| it.permissions().mode() & 0o777 == file.mode)
            && fs::read(&path).is_ok_and(|content| content == file.content)
    };
    n_files(version).is_ok_and(|n| n == files.len()) && files.iter().all(is_same)
}

fn n_files(dir: &Path) -> io::Result<usize> {
    let mut n = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        n += if entry.file_type()?.is_dir() {
            n_files(&entry.path())?
        } else {
            1
        };
    }
    Ok(n)
}

/// The name of the version after the current one.
fn next_version(current: Option<&Path>) -> OsString {
    let number = current
        .and_then(Path::to_str)
        .and_then(|name| name.strip_prefix("..")?.parse::<u64>().ok());
    format!("..{}", number.unwrap_or(0).saturating_add(1)).into()
}

/// Writes the directory of a version.
fn put_version(dir: &Path, version: &OsStr, files: &BTreeMap<PathBuf, &File>) -> io::Result<()> {
    let hidden = dir.join(version);
    // One that a crash left.
    remove(&hidden)?;
    private_dir::make_readable(dir, &hidden)?;
    for (path, file) in files {
        let path = hidden.join(path);
        if let Some(parent) = path.parent() {
            private_dir::make_readable(&hidden, parent)?;
        }
        fs::write(&path, &file.content)?;
        fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
    }
    Ok(())
}

/// Gives a file or directory to a group.
fn give(path: &Path, group: u32) -> io::Result<()> {
    chown(path, None, Some(group))
}

/// The same with all that is in a directory of the node's own making.
fn give_all(dir: &Path, group: u32) -> io::Result<()> {
    give(dir, group)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_all(&entry.path(), group)?;
        } else {
            give(&entry.path(), group)?;
        }
    }
    Ok(())
}

/// The names on top of the volume.
fn names<'a>(files: &'a BTreeMap<PathBuf, &File>) -> impl Iterator<Item = &'a OsStr> {
    files.keys().filter_map(|path| path.iter().next())
}

/// Makes the links that are missing.
fn link_names(dir: &Path, files: &BTreeMap<PathBuf, &File>) -> io::Result<()> {
    for name in names(files) {
        let (link, target) = (dir.join(name), Path::new(DATA).join(name));
        if fs::read_link(&link).is_ok_and(|found| found == target) {
            continue;
        }
        remove(&link)?;
        symlink(target, link)?;
    }
    Ok(())
}

/// Removes what is not of this version.
fn remove_others(dir: &Path, version: &OsStr, files: &BTreeMap<PathBuf, &File>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let is_hidden = name.as_bytes().starts_with(b"..");
        let is_kept = match is_hidden {
            true => name == version || name == DATA,
            false => names(files).any(|known| known == name),
        };
        if !is_kept {
            remove(&dir.join(name))?;
        }
    }
    Ok(())
}

/// Removes a file, a link or a directory. What is not there is no error; a link is never followed.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, files: &[File]) -> io::Result<Written> {
        write_for(dir, files, None)
    }

    fn file(path: &str, content: &str) -> File {
        File {
            path: path.to_owned(),
            content: content.as_bytes().to_vec(),
            mode: 0o644,
        }
    }

    /// Name and target of all links on top, and the names of all directories.
    fn shown(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
        let mut all: Vec<String> = entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                match fs::read_link(entry.path()) {
                    Ok(target) => format!("{name} -> {}", target.display()),
                    Err(_) => name,
                }
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_volume_holds_exactly_the_files_of_the_last_write() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("volume");
        let first = [file("a", "1"), file("deep/b", "1"), file("deep/c", "1")];
        assert_eq!(write(&dir, &first).unwrap(), Written::Changed);
        let expected = [
            "..1",
            "..data -> ..1",
            "a -> ..data/a",
            "deep -> ..data/deep",
        ];
        assert_eq!(shown(&dir), expected);
        assert_eq!(write(&dir, &first).unwrap(), Written::Unchanged);
        assert_eq!(shown(&dir), expected);

        let second = [file("a", "2"), file("d", "2")];
        assert_eq!(write(&dir, &second).unwrap(), Written::Changed);
        let expected = ["..2", "..data -> ..2", "a -> ..data/a", "d -> ..data/d"];
        assert_eq!(shown(&dir), expected);
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "2");
    }

    #[test]
    fn the_group_of_a_volume_owns_each_version() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        // Everybody may give files to the own group; root may give them to any.
        let own = nix::unistd::getegid();
        let group = if own.as_raw() == 0 { 7 } else { own.as_raw() };
        for content in ["1", "2"] {
            let files = [file("deep/a", content)];
            write_for(folder.path(), &files, Some(group)).unwrap();
            for path in [".", "..data/deep", "..data/deep/a"] {
                let metadata = fs::metadata(folder.path().join(path)).unwrap();
                assert_eq!(metadata.gid(), group, "{path}");
            }
        }
    }

    #[test]
    fn a_change_of_content_number_or_mode_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let private = File {
            mode: 0o600,
            ..file("a", "2")
        };
        for files in [
            vec![file("a", "1")],
            vec![file("a", "2")],
            vec![private.clone()],
            vec![private, file("b", "")],
            Vec::new(),
        ] {
            assert_eq!(write(folder.path(), &files).unwrap(), Written::Changed);
            assert_eq!(write(folder.path(), &files).unwrap(), Written::Unchanged);
        }
    }

    #[test]
    fn what_a_crash_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        write(dir, &[file("a", "1")]).unwrap();
        // In the middle of the second version, and before the links of the first one.
        fs::create_dir(dir.join("..2")).unwrap();
        fs::write(dir.join("..2/half"), "").unwrap();
        symlink("..2", dir.join("..data.new")).unwrap();
        fs::remove_file(dir.join("a")).unwrap();
        assert_eq!(write(dir, &[file("a", "1")]).unwrap(), Written::Unchanged);
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
        write(dir, &[file("a", "2")]).unwrap();
        assert_eq!(shown(dir), ["..2", "..data -> ..2", "a -> ..data/a"]);
        assert!(!dir.join("..2/half").exists());
    }

    #[test]
    fn no_path_leads_out_of_the_volume() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["", "/etc/x", "../x", "a/../../x", "..data", "..1/x", "."] {
            let refused = write(&folder.path().join("volume"), &[file(path, "")]);
            let kind = refused.map_err(|error| error.kind());
            assert_eq!(kind, Err(io::ErrorKind::InvalidInput), "{path}");
        }
        // A link that stands where a version will be is not followed.
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let dir = folder.path().join("linked");
        fs::create_dir(&dir).unwrap();
        symlink(&outside, dir.join("..1")).unwrap();
        write(&dir, &[file("a", "1")]).unwrap();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
    }
}
