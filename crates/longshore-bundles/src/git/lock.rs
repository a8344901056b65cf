//! Locks between processes: `flock`, so that a lock ends with its holder. Airflow's own processes take the same ones.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;

use super::error::GitError;

/// How often a lock that another process holds is asked for.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The right to work on one part of a bundle. It ends with this value, or with a git that was started under it.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Takes a lock, and says in it who has it.
    pub(super) async fn take(path: &Path, limit: Duration) -> Result<Self, GitError> {
        let failed = |source| GitError::io("taking the lock", path, source);
        let parent = path.parent().unwrap_or(path);
        longshore_files::make_directories(parent, 0o700).map_err(failed)?;
        let mut file = open(path).map_err(failed)?;
        let taking = async {
            loop {
                match file.try_lock() {
                    Ok(()) => return Ok(()),
                    Err(TryLockError::Error(error)) => return Err(failed(error)),
                    Err(TryLockError::WouldBlock) => tokio::time::sleep(ASK_AGAIN).await,
                }
            }
        };
        match tokio::time::timeout(limit, taking).await {
            Ok(taken) => taken?,
            Err(_) => {
                let mut holder = String::new();
                let _ = (&file).take(80).read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "it does not say its name".to_owned(),
                    holder => holder.to_owned(),
                };
                return Err(GitError::Busy { holder, limit });
            }
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "process {}", std::process::id()).map_err(failed)?;
        Ok(Self { file })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options.open(path)
}

/// Keeps a version on disk for as long as it lives: a shared lock on the version's tracking file, which has the time of
/// the last use. (Airflow: `BundleVersionLock`.)
#[derive(Debug)]
pub struct InUse {
    _file: File,
}

impl InUse {
    /// Marks a version as used now. Waits while a process removes the version.
    pub(super) fn mark(path: &Path, now: Timestamp) -> io::Result<Self> {
        let parent = path.parent().unwrap_or(path);
        longshore_files::make_directories(parent, 0o700)?;
        loop {
            let mut file = open(path)?;
            file.lock_shared()?;
            // Who removes a version removes its file, too: the lock is on nothing then.
            if is_at(&file, path) {
                file.set_len(0)?;
                file.write_all(now.to_string().as_bytes())?;
                return Ok(Self { _file: file });
            }
        }
    }
}

/// The sole right to a version that nobody uses.
#[derive(Debug)]
pub(super) struct Unused {
    file: File,
    path: PathBuf,
}

impl Unused {
    /// The right, if nobody uses the version now.
    pub(super) fn take(path: &Path) -> io::Result<Option<Self>> {
        let parent = path.parent().unwrap_or(path);
        longshore_files::make_directories(parent, 0o700)?;
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let path = path.to_owned();
        let unused = Self { file, path };
        Ok(unused.is_still().then_some(unused))
    }

    /// Whether the tracking file is the locked one. Airflow's processes put another one in its place when they begin to
    /// use a version.
    pub(super) fn is_still(&self) -> bool {
        is_at(&self.file, &self.path)
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(there)) => (held.dev(), held.ino()) == (there.dev(), there.ino()),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// When a version was used last: what its tracking file says, or else when that file was written.
pub(super) fn last_used(path: &Path) -> Option<Timestamp> {
    let meta = fs::metadata(path).ok()?;
    let mut text = String::new();
    let file = File::open(path).ok()?;
    let _ = file.take(80).read_to_string(&mut text);
    let written = text.trim().parse().ok();
    written.or_else(|| {
        meta.modified()
            .ok()
            .and_then(|it| Timestamp::try_from(it).ok())
    })
}
