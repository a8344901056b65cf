//! A folder of DAG files, followed: which DAGs are there, and which files are broken.
//!
//! After every notification the whole folder is read, so a lost notification does no harm; reading it at regular
//! intervals covers file systems without notifications.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    document::{self, is_pool_file},
    model::{Dag, MAX_FILES_BYTES},
};

/// A look without a notification.
const RESCAN: Duration = Duration::from_secs(300);

/// The folder is read this long after a change, because copying a folder makes many changes.
const SETTLE: Duration = Duration::from_millis(200);

/// A DAG file, or one with pools, as it is now.
#[derive(Clone, Debug)]
pub struct DagFile {
    /// Its path below the folder, `/` between the parts.
    pub name: String,
    /// What it says.
    pub state: FileState,
}

/// What such a file says.
#[derive(Clone, Debug)]
pub enum FileState {
    /// A DAG.
    Dag(Arc<Dag>),
    /// The slots of pools by name.
    Pools(Arc<BTreeMap<String, i64>>),
    /// Something that is neither; why, for people, one problem a line.
    Broken(String),
    /// The file is gone, or holds a manifest for kubectl.
    Removed,
}

/// Everything that a change of a file shows in: its own and its listed files' sizes and times.
type Signature = Vec<(PathBuf, u64, Option<SystemTime>)>;

/// A folder of DAG files, with the files that it reported last: only changes are reported.
#[derive(Debug)]
pub struct DagFolder {
    root: PathBuf,
    known: BTreeMap<String, Signature>,
}

impl DagFolder {
    /// The folder at `root`.
    ///
    /// # Errors
    /// There is no folder.
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = std::path::absolute(root)?;
        if !root.canonicalize()?.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                "expected a folder of DAG files",
            ));
        }
        Ok(Self {
            root,
            known: BTreeMap::new(),
        })
    }

    /// Looks at every file, and returns what is new since the last look.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn look(&mut self) -> io::Result<Vec<DagFile>> {
        let mut news = Vec::new();
        let mut seen = BTreeMap::new();
        // git-sync makes the folder itself a link, which leads to another worktree later.
        let root = self.root.canonicalize()?;
        for path in dag_files(&root)? {
            let name = name_of(&root, &path);
            let (state, signature) = match self.known.get(&name) {
                Some(signature) if is_unchanged(signature, &path) => {
                    seen.insert(name, signature.clone());
                    continue;
                }
                Some(_) | None => read(&name, &root, &path),
            };
            news.push(DagFile {
                name: name.clone(),
                state,
            });
            seen.insert(name, signature);
        }
        let gone = self.known.keys().filter(|name| !seen.contains_key(*name));
        news.extend(gone.map(|name| DagFile {
            name: name.clone(),
            state: FileState::Removed,
        }));
        self.known = seen;
        Ok(news)
    }

    /// Reads the folder again and again until shutdown, and reports the files that changed. The first report has all
    /// files, and is made even if there are none.
    pub async fn follow(
        self,
        report: impl Fn(Vec<DagFile>) + Send + Sync,
        shutdown: CancellationToken,
    ) {
        shutdown
            .run_until_cancelled(self.follow_for_ever(report))
            .await;
    }

    async fn follow_for_ever(mut self, report: impl Fn(Vec<DagFile>) + Send + Sync) {
        let mut is_first = true;
        let changed = Arc::new(Notify::new());
        // Held for as long as we follow.
        let _watcher = watch(&self.root, changed.clone());
        loop {
            let looked = tokio::task::spawn_blocking(move || {
                let found = self.look();
                (self, found)
            });
            let Ok((this, found)) = looked.await else {
                return;
            };
            self = this;
            match found {
                Ok(news) => {
                    if is_first || !news.is_empty() {
                        report(news);
                    }
                    is_first = false;
                }
                Err(error) => {
                    tracing::warn!(folder = %self.root.display(), %error, "the DAG folder cannot be read");
                }
            }
            let _ = tokio::time::timeout(RESCAN, changed.notified()).await;
            tokio::time::sleep(SETTLE).await;
        }
    }
}

fn name_of(root: &Path, path: &Path) -> String {
    let below = path.strip_prefix(root).unwrap_or(path);
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

/// Notifies of every change below `root`. Without it, the slow look remains.
fn watch(root: &Path, changed: Arc<Notify>) -> Option<RecommendedWatcher> {
    let notify = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            changed.notify_one();
        }
    };
    let watcher = notify::recommended_watcher(notify).and_then(|mut watcher| {
        watcher.watch(root, RecursiveMode::Recursive)?;
        Ok(watcher)
    });
    watcher
        .inspect_err(|error| {
            tracing::warn!(folder = %root.display(), %error, "changes of the DAG folder are not notified");
        })
        .ok()
}

/// All `.yaml` and `.yml` files below a folder, by path, and those with pools at its top. Hidden files and folders are left
/// out, links to folders too. The folder itself may be a link.
///
/// # Errors
/// A folder cannot be read.
pub fn dag_files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            let is_dag_file = path
                .extension()
                .is_some_and(|it| it == "yaml" || it == "yml");
            let has_pools = folder == root && is_pool_file(&path);
            if is_hidden {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if is_dag_file || has_pools {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Where a file of a DAG folder really is: its path, or the end of a link that stays in the folder, as the links in a
/// mounted ConfigMap do.
///
/// Whoever writes into the folder need not be allowed to read all that the service reads, and an import error shows some of
/// a text.
///
/// # Errors
/// It is a link that leads out of the folder or to nothing.
pub fn real_path(root: &Path, path: &Path) -> io::Result<PathBuf> {
    if !fs::symlink_metadata(path)?.is_symlink() {
        return Ok(path.to_owned());
    }
    let target = path.canonicalize()?;
    if target.starts_with(root.canonicalize()?) {
        return Ok(target);
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it is a link that leads out of the DAG folder",
    ))
}

fn read(name: &str, root: &Path, path: &Path) -> (FileState, Signature) {
    // Before it is read: what changes meanwhile is read again.
    let mut signature = vec![signed(path.to_owned())];
    let state = read_with(name, root, path, &mut signature);
    (state, signature)
}

fn read_with(name: &str, root: &Path, path: &Path, parts: &mut Signature) -> FileState {
    // The end of the link is what is read: the link may be another one by then.
    let text = real_path(root, path).and_then(|path| document::read_file(&path));
    let text = match text {
        Ok(text) => text,
        Err(error) => return FileState::Broken(format!("{name}: cannot be read: {error}")),
    };
    if document::has_pools(path, &text) {
        return pools(name, &text);
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let read_beside = &mut |beside: &str| {
        parts.push(signed(folder.join(beside)));
        read_beside(folder, beside)
    };
    let checked = document::parse(name, &text).and_then(|document| document.validate(read_beside));
    match checked {
        Ok(dag) => FileState::Dag(Arc::new(dag)),
        Err(problems) => match document::kubernetes_kind(&text) {
            Some(kind) => {
                tracing::info!(
                    name,
                    kind,
                    "a file for kubectl in the DAG folder is skipped"
                );
                FileState::Removed
            }
            None => FileState::Broken(problems.to_string()),
        },
    }
}

fn pools(name: &str, text: &str) -> FileState {
    if let Some((folder, file)) = name.rsplit_once('/') {
        return FileState::Broken(format!(
            "{name}: pools are read from the top of the DAG folder only: move `{file}` there from `{folder}`"
        ));
    }
    match document::parse_pools(name, text) {
        Ok(pools) => FileState::Pools(Arc::new(pools)),
        Err(problems) => FileState::Broken(problems.to_string()),
    }
}

/// Whether the file at a path, and what belongs to it, is as it was.
fn is_unchanged(signature: &Signature, path: &Path) -> bool {
    let is_same_path = signature.first().is_some_and(|(known, ..)| known == path);
    is_same_path && *signature == sign(signature)
}

/// The same paths with today's sizes and times.
fn sign(paths: &Signature) -> Signature {
    let paths = paths.iter();
    paths.map(|(path, ..)| signed(path.clone())).collect()
}

fn signed(path: PathBuf) -> (PathBuf, u64, Option<SystemTime>) {
    let meta = fs::metadata(&path).ok();
    let changed_at = meta.as_ref().and_then(|meta| meta.modified().ok());
    (path, meta.map_or(0, |meta| meta.len()), changed_at)
}

/// Reads a file that a DAG lists. A symbolic link must not lead out of the DAG's folder: a user who runs the DAG of
/// another user does not expect that the DAG copies the user's own files.
///
/// # Errors
/// The file cannot be read, is no regular file, or lies elsewhere.
pub fn read_beside(folder: &Path, name: &str) -> io::Result<Vec<u8>> {
    let folder = folder.canonicalize()?;
    let path = folder.join(name).canonicalize()?;
    if !path.starts_with(&folder) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it lies outside the folder of the DAG file",
        ));
    }
    if !path.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    // One byte more than can travel is enough to see that it is too much.
    let mut content = Vec::new();
    fs::File::open(path)?
        .take(MAX_FILES_BYTES as u64 + 1)
        .read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests;
