//! The data directory: everything durable of the embedded cluster and its controllers, for one process at a time.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use clap::Args;
use nix::{
    sys::stat::{Mode, umask},
    unistd::geteuid,
};
use tempfile::TempDir;

use crate::{error::CliError, output};

/// How often the process tries to get the lock, and the pause between two tries. A holder that was killed keeps it
/// until the kernel has cleaned up, and a restart comes at once.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// What is in a data directory. A directory with any other entry was not made for Longshore alone, and keeps its mode.
const OURS: [&str; 25] = [
    "actions",
    "ca.crt",
    "ca.key",
    "client.yaml",
    "cluster",
    "contexts",
    "controller",
    "dags",
    "databases.json",
    "flink.yaml",
    "images.yaml",
    "kubeconfig",
    "lock",
    "logs",
    "longshore.db",
    "longshore.db-journal",
    "longshore.db-shm",
    "longshore.db-wal",
    "longshore.db.lock",
    "longshore.log",
    "longshore.log.1",
    "node",
    "storage.yaml",
    "token",
    "webhook-client-ca.crt",
];

/// From now on files of this process are for its user alone, whatever the umask of the shell was: parameters of runs are
/// in the database and in its log, and what tasks print is in logs. Pods have a umask of their own.
pub(crate) fn keep_files_private() {
    umask(Mode::from_bits_truncate(0o077));
}

/// The flags that name the data directory.
#[derive(Args, Clone, Debug)]
pub(crate) struct DataDirArgs {
    /// Data directory [default: ~/.local/share/longshore]
    #[arg(long, value_name = "DIR", env = "LONGSHORE_DATA_DIR", hide_env = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Keep nothing, outputs and logs included
    #[arg(long, conflicts_with = "data_dir")]
    pub(crate) ephemeral: bool,
}

/// An open data directory, locked until it is dropped (or the process dies, however that happens).
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    lock: File,
    /// Removes the directory of `--ephemeral`; after the lock, hence below it.
    temporary: Option<TempDir>,
}

impl DataDir {
    /// Opens the directory that the arguments name, and makes it where it is missing.
    pub(crate) fn open(args: &DataDirArgs) -> Result<Self, CliError> {
        if args.ephemeral {
            let temporary = tempfile::Builder::new()
                .prefix("longshore-")
                .tempdir()
                .map_err(|source| CliError::in_data_dir(std::env::temp_dir(), source))?;
            return Self::locked(temporary.path().to_owned(), Some(temporary));
        }
        let path = match &args.data_dir {
            Some(path) => path.clone(),
            None => default_path()?,
        };
        let path = make(&path).map_err(|source| CliError::in_data_dir(path, source))?;
        close_to_others(&path, ForeignRoot::Refused)?;
        Self::locked(path, None)
    }

    /// The absolute path of the data directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn locked(path: PathBuf, temporary: Option<TempDir>) -> Result<Self, CliError> {
        let in_data_dir = |source| CliError::in_data_dir(path.clone(), source);
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("lock"))
            .map_err(in_data_dir)?;
        match take(&lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(CliError::DataDirLocked {
                    holder: holder(&mut lock),
                    path,
                });
            }
            Err(TryLockError::Error(source)) => return Err(in_data_dir(source)),
        }
        write_holder(&mut lock).map_err(in_data_dir)?;
        Ok(Self {
            path,
            lock,
            temporary,
        })
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // Closing is not enough: a child process that is just being started holds the descriptor until its exec.
        let _ = self.lock.unlock();
        // Pods may leave directories that TempDir cannot remove.
        if let Some(temporary) = &self.temporary {
            let _ = longshore_files::remove_tree(temporary.path());
        }
    }
}

fn take(lock: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_TRIES {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            taken => return taken,
        }
    }
    lock.try_lock()
}

/// The directory that was named, or that of this user, made where it is missing. Not locked: for a process of which
/// several may use the same.
pub(crate) fn shared(named: Option<&PathBuf>) -> Result<PathBuf, CliError> {
    let path = match named {
        Some(path) => path.clone(),
        None => default_path()?,
    };
    let path = make(&path).map_err(|source| CliError::in_data_dir(path, source))?;
    close_to_others(&path, ForeignRoot::IsAVolume)?;
    Ok(path)
}

/// Whether a user other than root may use a data directory that belongs to root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForeignRoot {
    /// No: the directory is refused, as one of any other user is.
    Refused,
    /// Yes: the directory may be the volume of a pod, which only that pod can reach.
    IsAVolume,
}

/// Removes the permissions of other users from an existing data directory and from Longshore's entries in it.
fn close_to_others(path: &Path, foreign_root: ForeignRoot) -> Result<(), CliError> {
    const OTHERS: u32 = 0o077;
    const STICKY: u32 = 0o1000;
    let failed = |source| CliError::in_data_dir(path.to_owned(), source);
    let directory = fs::metadata(path).map_err(failed)?;
    let (owner, own) = (directory.uid(), geteuid().as_raw());
    if owner != own {
        if owner == 0 && foreign_root == ForeignRoot::IsAVolume {
            return Ok(());
        }
        let path = path.to_owned();
        return Err(CliError::DataDirOfOthers { path, owner });
    }
    let mut is_ours = directory.mode() & STICKY == 0;
    let mut n_closed = 0;
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_known = OURS.iter().any(|name| entry.file_name() == *name);
        is_ours &= is_known;
        let known = entry.metadata().map_err(failed)?;
        // A link is not followed, and its own mode means nothing.
        if is_known && !known.is_symlink() && known.mode() & OTHERS != 0 {
            let mode = fs::Permissions::from_mode(known.mode() & !OTHERS & 0o7777);
            fs::set_permissions(entry.path(), mode).map_err(failed)?;
            n_closed += 1;
        }
    }
    if is_ours && directory.mode() & OTHERS != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        n_closed += 1;
    }
    if n_closed > 0 {
        output::note(&format!(
            "the data directory {} was open to other users of this machine; now only you read it",
            path.display()
        ));
    }
    Ok(())
}

/// What of a data directory pods must not see: keys, tokens, the database and the logs of others. All of it where nothing
/// else is there; else, as in the directory of a project, Longshore's own entries.
pub(crate) fn hidden_from_pods(data_dir: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = |source| CliError::in_data_dir(data_dir.to_owned(), source);
    for entry in fs::read_dir(data_dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !OURS.iter().any(|known| name == *known) {
            return Ok(OURS.iter().map(|name| data_dir.join(name)).collect());
        }
    }
    Ok(vec![data_dir.to_owned()])
}

/// Creates a directory with mode 0700, and returns its absolute path.
pub(crate) fn make(path: &Path) -> io::Result<PathBuf> {
    longshore_files::make_directories(path, 0o700)?;
    fs::canonicalize(path)
}

/// The directory of the state of the TaskAction executor.
pub(crate) fn actions(data_dir: &Path) -> PathBuf {
    data_dir.join("actions")
}

/// The directory of the event log: `standalone` writes action events there instead of sending them
/// to an events service.
pub(crate) fn event_log(data_dir: &Path) -> PathBuf {
    actions(data_dir).join("events")
}

/// The data directory of this user.
pub(crate) fn default_path() -> Result<PathBuf, CliError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary reads the environment"
    )]
    let home = std::env::var_os("HOME")
        .filter(|home| !home.is_empty())
        .ok_or(CliError::NoHome)?;
    Ok(Path::new(&home).join(".local/share/longshore"))
}

/// Writes the process id into the lock file. Only the lock itself counts; the id is for the message.
fn write_holder(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}

fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    match lock.read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => format!("the process {}", text.trim()),
        Ok(_) | Err(_) => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &Path) -> DataDirArgs {
        DataDirArgs {
            data_dir: Some(path.to_owned()),
            ephemeral: false,
        }
    }

    #[test]
    fn a_data_directory_has_one_user_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/data");
        let first = DataDir::open(&at(&path)).unwrap();
        let CliError::DataDirLocked { holder, .. } = DataDir::open(&at(&path)).unwrap_err() else {
            panic!("expected a locked directory");
        };
        assert_eq!(holder, format!("the process {}", std::process::id()));
        drop(first);
        DataDir::open(&at(&path)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_data_directory_that_was_open_to_others_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        fs::create_dir_all(path.join("logs")).unwrap();
        fs::write(path.join("longshore.db-wal"), "").unwrap();
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        open(&path, 0o755).unwrap();
        open(&path.join("logs"), 0o755).unwrap();
        open(&path.join("longshore.db-wal"), 0o644).unwrap();
        drop(DataDir::open(&at(&path)).unwrap());
        assert_eq!((mode(&path), mode(&path.join("logs"))), (0o700, 0o700));
        assert_eq!(mode(&path.join("longshore.db-wal")), 0o600);
    }

    /// A shared directory, as with `--data-dir /var`.
    #[test]
    fn a_directory_that_others_use_too_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared");
        fs::create_dir_all(path.join("somebody")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        drop(DataDir::open(&at(&path)).unwrap());
        assert_eq!(mode(&path), 0o755);
        let sticky = folder.path().join("tmp");
        fs::create_dir(&sticky).unwrap();
        fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777)).unwrap();
        drop(DataDir::open(&at(&sticky)).unwrap());
        assert_eq!(mode(&sticky), 0o1777);
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = if geteuid().is_root() {
            let path = folder.path().join("theirs");
            fs::create_dir(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
            path
        } else {
            PathBuf::from("/etc")
        };
        let error = DataDir::open(&at(&path)).unwrap_err();
        assert_eq!(error.code(), "LS1707");
        assert!(!path.join("lock").exists(), "nothing is written there");
    }

    #[test]
    fn a_path_that_is_a_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = DataDir::open(&at(file.path())).unwrap_err();
        assert_eq!(error.code(), "LS1701");
    }

    #[test]
    fn an_ephemeral_directory_goes_with_its_user() {
        let open = DataDir::open(&DataDirArgs {
            data_dir: None,
            ephemeral: true,
        })
        .unwrap();
        let path = open.path().to_owned();
        assert!(path.is_dir());
        drop(open);
        assert!(!path.exists());
    }

    #[test]
    fn pods_see_nothing_of_a_data_directory_but_what_is_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        // As a service leaves them behind.
        for file in ["token", "webhook-client-ca.crt"] {
            fs::write(path.join(file), "").unwrap();
        }
        assert_eq!(hidden_from_pods(path).unwrap(), [path]);
        fs::write(path.join("dag.yaml"), "").unwrap();
        let hidden = hidden_from_pods(path).unwrap();
        assert!(hidden.contains(&path.join("token")) && hidden.contains(&path.join("node")));
        assert!(
            !hidden
                .iter()
                .any(|it| path.join("dag.yaml").starts_with(it))
        );
    }

    #[test]
    fn a_full_disk_is_told_from_a_forbidden_one() {
        let code = |kind: io::ErrorKind| CliError::in_data_dir("/d".into(), kind.into()).code();
        assert_eq!(code(io::ErrorKind::StorageFull), "LS1703");
        assert_eq!(code(io::ErrorKind::QuotaExceeded), "LS1703");
        assert_eq!(code(io::ErrorKind::PermissionDenied), "LS1701");
    }
}
