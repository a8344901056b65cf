//! Files below one directory, whatever their paths say.
//!
//! A path is walked part by part, each opened beneath the one before and never through a symbolic link: a process that may write
//! below the directory, as the pods of a tenant, cannot lead out of it, neither before nor while a path is walked.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use longshore_files::{Disk, Draft};
use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat, renameat},
    sys::stat::{Mode, mkdirat},
    unistd::{UnlinkatFlags, fsync, unlinkat},
};

/// Files below a directory.
#[derive(Clone, Debug)]
pub(crate) struct Beneath {
    root: PathBuf,
}

/// What is in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// It has so many bytes.
    TooLarge(u64),
    Read(Vec<u8>),
}

/// What makes a directory, whose users a umask chooses: pods under other users read and write there.
const DIRECTORY: Mode = Mode::from_bits_truncate(0o777);
const FILE: u32 = 0o666;

impl Beneath {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// What is in a file.
    ///
    /// # Errors
    /// `NotFound` where there is none; anything else says nothing about it.
    pub(crate) fn read(&self, key: &str, max: u64) -> io::Result<Content> {
        let file = self.file(key)?;
        let size = file.metadata()?.len();
        if size > max {
            return Ok(Content::TooLarge(size));
        }
        let mut bytes = Vec::new();
        // It may grow meanwhile.
        file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
        match u64::try_from(bytes.len()) {
            Ok(size) if size > max => Ok(Content::TooLarge(size)),
            _ => Ok(Content::Read(bytes)),
        }
    }

    /// What is known of a file.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub(crate) fn metadata(&self, key: &str) -> io::Result<Metadata> {
        self.file(key)?.metadata()
    }

    /// Writes a file, whatever was there: all of it or nothing.
    pub(crate) fn write(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        let (directories, name) = split(key)?;
        let directory = Handle(Arc::new(self.walk(&directories, true)?));
        // Two writers of one file have a draft each. What a crash leaves of one has a name that is never asked for.
        let draft = format!(".{name}.{}", uuid::Uuid::new_v4());
        let draft = Draft::begin_as(directory, Path::new(&draft), Path::new(name), FILE)?;
        draft.with(bytes)?.commit()
    }

    /// Makes a directory, and those above it.
    pub(crate) fn make_directory(&self, key: &str) -> io::Result<()> {
        self.walk(&parts(key)?, true).map(drop)
    }

    fn file(&self, key: &str) -> io::Result<File> {
        let (directories, name) = split(key)?;
        let directory = self.walk(&directories, false)?;
        // A pipe may have no reader.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | COMMON;
        let file = File::from(openat(&directory, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::other("expected a regular file"))
        }
    }

    /// The directory at the end of these parts.
    fn walk(&self, parts: &[&str], makes: bool) -> io::Result<OwnedFd> {
        if makes {
            std::fs::create_dir_all(&self.root)?;
        }
        // The root is the operator's: it may be a symbolic link.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut directory = open(&self.root, flags, Mode::empty())?;
        for part in parts {
            if makes {
                match mkdirat(&directory, *part, DIRECTORY) {
                    Ok(()) => fsync(&directory)?,
                    Err(Errno::EEXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | COMMON;
            directory = openat(&directory, *part, flags, Mode::empty())?;
        }
        Ok(directory)
    }
}

/// A directory that is open: every name is one in it.
#[derive(Clone, Debug)]
struct Handle(Arc<OwnedFd>);

impl Disk for Handle {
    type File = File;

    fn create(&self, name: &Path, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | COMMON;
        let mode = Mode::from_bits_truncate(mode);
        Ok(File::from(openat(&self.0, name, flags, mode)?))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    fn remove(&self, name: &Path) -> io::Result<()> {
        match unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(fsync(&self.0)?)
    }

    fn create_directory(&self, name: &Path, mode: u32) -> io::Result<()> {
        Ok(mkdirat(&self.0, name, Mode::from_bits_truncate(mode))?)
    }

    fn has_directory(&self, name: &Path) -> bool {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | COMMON;
        openat(&self.0, name, flags, Mode::empty()).is_ok()
    }
}

const COMMON: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_CLOEXEC);

/// The names in a path.
///
/// # Errors
/// One of them leads up.
pub(crate) fn parts(key: &str) -> io::Result<Vec<&str>> {
    let parts = key.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<&str> = parts.collect();
    if parts.contains(&"..") || key.contains('\0') {
        let why = "expected a path without `..`";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(parts)
}

fn split(key: &str) -> io::Result<(Vec<&str>, &str)> {
    let mut parts = parts(key)?;
    let name = parts.pop();
    let name = name.ok_or_else(|| io::Error::other("expected the path of a file"))?;
    Ok((parts, name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn read(files: &Beneath, key: &str) -> Result<Vec<u8>, io::ErrorKind> {
        match files.read(key, 100) {
            Ok(Content::Read(bytes)) => Ok(bytes),
            Ok(Content::TooLarge(_)) => Err(io::ErrorKind::FileTooLarge),
            Err(error) => Err(error.kind()),
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_is_too_large() {
        let root = tempfile::tempdir().unwrap();
        let files = Beneath::new(root.path().join("later"));
        assert_eq!(read(&files, "a/b/c"), Err(io::ErrorKind::NotFound));
        for content in ["1", "22"] {
            files.write("a/b/c", content.as_bytes()).unwrap();
            assert_eq!(read(&files, "/a//./b/c").unwrap(), content.as_bytes());
        }
        assert_eq!(files.read("a/b/c", 1).unwrap(), Content::TooLarge(2));
        assert_eq!(files.metadata("a/b/c").unwrap().len(), 2);
        assert!(root.path().join("later/a/b").is_dir());
        let left = std::fs::read_dir(root.path().join("later/a/b")).unwrap();
        assert_eq!(left.count(), 1, "no drafts");
    }

    #[test]
    fn no_path_and_no_link_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "s").unwrap();
        symlink(&outside, root.join("in/absolute")).unwrap();
        symlink("../../outside", root.join("in/relative")).unwrap();
        symlink(outside.join("secret"), root.join("in/file")).unwrap();
        let files = Beneath::new(root);
        for key in [
            "../outside/secret",
            "in/../../outside/secret",
            "in/absolute/secret",
            "in/relative/secret",
            "in/file",
        ] {
            assert!(read(&files, key).is_err(), "{key}");
            assert!(files.metadata(key).is_err(), "{key}");
        }
        for key in ["../outside/x", "in/absolute/x", "in/relative/x/y"] {
            assert!(files.write(key, b"x").is_err(), "{key}");
            assert!(files.make_directory(key).is_err(), "{key}");
        }
        // A link at the end is replaced, and not followed.
        files.write("in/file", b"x").unwrap();
        assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"s");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn nobody_waits_at_a_pipe() {
        let root = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&root.path().join("pipe"), Mode::S_IRWXU).unwrap();
        let files = Beneath::new(root.path().to_owned());
        assert_eq!(read(&files, "pipe"), Err(io::ErrorKind::Other));
    }
}
