//! Lists the files of a folder, and reads those that may have changed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    ignore::{Entry, IGNORE_FILE, IgnoreSyntax, Rules},
    snapshot::{File, FileKind, Fingerprint, Problem, Snapshot, Stamp},
};

/// The coarsest clock of a file system: two changes closer than this may have one stamp.
const SETTLED: SignedDuration = SignedDuration::from_secs(2);

/// An ignore file is read up to here, in bytes.
const MAX_IGNORE_FILE: u64 = 1 << 20;

/// The end of a zip archive: 22 bytes of its last record, and a comment of at most 65,535 bytes.
const MAX_ZIP_END: u64 = 22 + 65_535;

/// How much of a bundle is read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Files and folders that are looked at; default 100,000.
    pub max_entries: usize,
    /// A file with more bytes is not read; its stamp says whether it changed. Default 64 MiB.
    pub max_hashed_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_entries: 100_000,
            max_hashed_bytes: 64 << 20,
        }
    }
}

/// Why a folder could not be listed. Nothing is known of its files then: they have not been removed.
#[derive(Debug, Error)]
pub enum ScanError {
    /// The folder is not there.
    #[error(
        "expected a folder at {path}, found nothing; create it, or correct the path of the bundle"
    )]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("expected a folder at {path}, found something else; correct the path of the bundle")]
    NotAFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The folder cannot be read.
    #[error("the folder {path} of the bundle cannot be read")]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder has too many files.
    #[error(
        "the folder {path} of the bundle has more than {limit} files and folders; ignore some with .airflowignore"
    )]
    TooMany {
        /// The folder.
        path: PathBuf,
        /// How many are allowed.
        limit: usize,
    },
}

/// Lists one folder, again and again.
#[derive(Clone, Debug)]
pub struct Scanner {
    root: PathBuf,
    syntax: IgnoreSyntax,
    limits: Limits,
}

impl Scanner {
    /// A scanner of the folder `root`, which may be a symbolic link that leads elsewhere at each scan (git-sync).
    #[must_use]
    pub fn new(root: &Path, syntax: IgnoreSyntax, limits: Limits) -> Self {
        Self {
            root: root.to_owned(),
            syntax,
            limits,
        }
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder's real path.
    ///
    /// # Errors
    /// There is no folder.
    pub fn real_root(&self) -> Result<PathBuf, ScanError> {
        let path = self.root.clone();
        match self.root.canonicalize() {
            Ok(real) if real.is_dir() => Ok(real),
            Ok(_) => Err(ScanError::NotAFolder { path }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(ScanError::Missing { path }),
            Err(source) => Err(ScanError::Unreadable { path, source }),
        }
    }

    /// The files as they are now. Files that are as they were in `previous`, by their stamps, are not read. `now` is the
    /// time at which the scan begins. What cannot be read is taken from `previous`, and reported.
    ///
    /// # Errors
    /// The folder cannot be listed; `previous` stays the best that is known.
    pub fn scan(&self, previous: &Snapshot, now: Timestamp) -> Result<Snapshot, ScanError> {
        let root = self.real_root()?;
        let mut walk = Walk {
            scanner: self,
            previous,
            now,
            visited: BTreeMap::new(),
            links: VecDeque::new(),
            folders: Vec::new(),
            n_entries: 0,
            found: Snapshot::default(),
            root: root.clone(),
        };
        walk.enter(root, String::new(), Rules::none(self.syntax));
        walk.run()?;
        Ok(walk.found)
    }
}

struct Folder {
    path: PathBuf,
    name: String,
    rules: Rules,
}

/// One scan. Folders come before links to folders, so that which of two names of a folder is listed does not depend on
/// the order of names.
struct Walk<'a> {
    scanner: &'a Scanner,
    previous: &'a Snapshot,
    now: Timestamp,
    root: PathBuf,
    /// Real path of each listed folder, and its name.
    visited: BTreeMap<PathBuf, String>,
    folders: Vec<Folder>,
    links: VecDeque<Folder>,
    n_entries: usize,
    found: Snapshot,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), ScanError> {
        loop {
            if let Some(folder) = self.folders.pop() {
                self.list(folder)?;
            } else if let Some(link) = self.links.pop_front() {
                match self.visited.get(&link.path) {
                    Some(name) => {
                        let problem = Problem::ListedTwice(name.clone());
                        self.found.problems.insert(link.name, problem);
                    }
                    None => self.enter(link.path, link.name, link.rules),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn enter(&mut self, path: PathBuf, name: String, rules: Rules) {
        self.visited.insert(path.clone(), name.clone());
        self.folders.push(Folder { path, name, rules });
    }

    fn list(&mut self, folder: Folder) -> Result<(), ScanError> {
        let entries = match sorted_entries(&folder.path) {
            Ok(entries) => entries,
            Err(source) if folder.name.is_empty() => {
                let path = self.scanner.root.clone();
                return Err(ScanError::Unreadable { path, source });
            }
            Err(error) => {
                self.keep(&folder.name, &error);
                return Ok(());
            }
        };
        self.n_entries += entries.len();
        if self.n_entries > self.scanner.limits.max_entries {
            return Err(ScanError::TooMany {
                path: self.scanner.root.clone(),
                limit: self.scanner.limits.max_entries,
            });
        }
        let rules = self.rules_of(&folder, &entries);
        for name in entries {
            self.entry(&folder, &rules, &name);
        }
        Ok(())
    }

    /// The rules in a folder: with its own ignore file, if it has one.
    fn rules_of(&mut self, folder: &Folder, entries: &BTreeSet<std::ffi::OsString>) -> Rules {
        if !entries.contains(std::ffi::OsStr::new(IGNORE_FILE)) {
            return folder.rules.clone();
        }
        let name = joined(&folder.name, IGNORE_FILE);
        let path = folder.path.join(IGNORE_FILE);
        let text = match self.resolve(&path) {
            Ok(Target::File(path)) => read_text(&path),
            Ok(Target::Folder(_)) => return folder.rules.clone(),
            Err(problem) => {
                self.found.problems.insert(name, problem);
                return folder.rules.clone();
            }
        };
        match text {
            Ok(text) => {
                let (rules, invalid) = folder.rules.with(&folder.name, &text);
                if !invalid.is_empty() {
                    self.found.problems.insert(name, Problem::Ignore(invalid));
                }
                rules
            }
            Err(error) => {
                self.keep(&name, &error);
                folder.rules.clone()
            }
        }
    }

    fn entry(&mut self, folder: &Folder, rules: &Rules, name: &std::ffi::OsStr) {
        let path = folder.path.join(name);
        let lossy = joined(&folder.name, &name.to_string_lossy());
        let Some(name) = name.to_str() else {
            self.found.problems.insert(lossy, Problem::NotUtf8);
            return;
        };
        if is_never_listed(&folder.name, name) {
            return;
        }
        let name = lossy;
        let resolved = self.resolve(&path);
        let entry = match &resolved {
            Ok(Target::Folder(_)) => Entry::Folder,
            Ok(Target::File(_)) | Err(_) => Entry::File,
        };
        if rules.ignores(&name, entry) {
            return;
        }
        match resolved {
            Ok(Target::Folder(real)) if real == path => self.enter(real, name, rules.clone()),
            Ok(Target::Folder(path)) => self.links.push_back(Folder {
                path,
                name,
                rules: rules.clone(),
            }),
            Ok(Target::File(real)) => self.file(name, &real),
            Err(Problem::Unreadable(why)) => self.keep(&name, &io::Error::other(why)),
            Err(problem) => {
                self.found.problems.insert(name, problem);
            }
        }
    }

    fn file(&mut self, name: String, path: &Path) {
        let before = self.previous.files.get(&name);
        match self.read(path, before) {
            Ok(file) => {
                self.found.files.insert(name, file);
            }
            // It was removed since the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.keep(&name, &error),
        }
    }

    fn read(&self, path: &Path, before: Option<&File>) -> io::Result<File> {
        let limits = self.scanner.limits;
        let seen = stamp(&fs::symlink_metadata(path)?);
        if let Some(before) = before
            && before.is_settled
            && before.stamp == seen
        {
            return Ok(*before);
        }
        // Not through a link that took the place of the file, and without waiting for a writer of a pipe.
        let flags = (nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK).bits();
        let mut file = fs::OpenOptions::new();
        let mut file = file.read(true).custom_flags(flags).open(path)?;
        let stamp = stamp(&file.metadata()?);
        let kind = kind_of(&mut file, stamp.size)?;
        let fingerprint = if stamp.size > limits.max_hashed_bytes {
            Fingerprint::Unread(stamp)
        } else {
            Fingerprint::Content(hash(&mut file, limits.max_hashed_bytes)?)
        };
        Ok(File {
            kind,
            stamp,
            fingerprint,
            is_settled: self.now.duration_since(stamp.changed_at) >= SETTLED,
        })
    }

    /// Reports a path that cannot be read, and keeps what was known of the files there.
    fn keep(&mut self, name: &str, error: &io::Error) {
        let known = self.previous.below(name).map(|(path, file)| {
            let file = File {
                is_settled: false,
                ..*file
            };
            (path.clone(), file)
        });
        self.found.files.extend(known);
        let problem = Problem::Unreadable(error.to_string());
        self.found.problems.insert(name.to_owned(), problem);
    }

    fn resolve(&self, path: &Path) -> Result<Target, Problem> {
        let unreadable = |error: io::Error| Problem::Unreadable(error.to_string());
        let mut meta = fs::symlink_metadata(path).map_err(unreadable)?;
        let mut real = path.to_owned();
        if meta.is_symlink() {
            real = path.canonicalize().map_err(|error| {
                if error.kind() == io::ErrorKind::NotFound {
                    Problem::Dangling
                } else {
                    unreadable(error)
                }
            })?;
            if !real.starts_with(&self.root) {
                return Err(Problem::LeadsOut);
            }
            meta = fs::symlink_metadata(&real).map_err(unreadable)?;
        }
        if meta.is_dir() {
            Ok(Target::Folder(real))
        } else if meta.is_file() {
            Ok(Target::File(real))
        } else {
            Err(Problem::NotRegular)
        }
    }
}

/// What a path leads to, with its real path.
enum Target {
    Folder(PathBuf),
    File(PathBuf),
}

/// What is no file of a bundle: the rules themselves, git's own data, and what Python writes while it imports.
fn is_never_listed(folder: &str, name: &str) -> bool {
    let is_in_cache = folder.rsplit('/').next() == Some("__pycache__");
    name == IGNORE_FILE || name == ".git" || (is_in_cache && name.ends_with(".pyc"))
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

fn sorted_entries(folder: &Path) -> io::Result<BTreeSet<std::ffi::OsString>> {
    fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect()
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    file.take(MAX_IGNORE_FILE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn stamp(meta: &fs::Metadata) -> Stamp {
    Stamp {
        size: meta.len(),
        modified_at: moment(meta.mtime(), meta.mtime_nsec()),
        changed_at: moment(meta.ctime(), meta.ctime_nsec()),
        inode: meta.ino(),
    }
}

/// A moment of a file system; one that is out of range is the earliest.
fn moment(seconds: i64, nanoseconds: i64) -> Timestamp {
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or_default();
    Timestamp::new(seconds, nanoseconds).unwrap_or(Timestamp::MIN)
}

/// Whether a file ends as a zip archive does. (Python: `zipfile.is_zipfile`.)
fn kind_of(file: &mut fs::File, size: u64) -> io::Result<FileKind> {
    const LAST_RECORD: &[u8] = b"PK\x05\x06";
    let begin = size.saturating_sub(MAX_ZIP_END);
    file.seek(SeekFrom::Start(begin))?;
    let mut end = Vec::new();
    file.take(MAX_ZIP_END).read_to_end(&mut end)?;
    file.rewind()?;
    let mut records = end.windows(22);
    let is_archive = records.any(|it| it.starts_with(LAST_RECORD));
    Ok(if is_archive {
        FileKind::Archive
    } else {
        FileKind::Plain
    })
}

fn hash(file: &mut fs::File, max: u64) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut part = [0; 16 << 10];
    let mut file = file.take(max);
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(n) => hasher.update(&part[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
