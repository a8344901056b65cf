//! Work trees: one for each commit that is in use.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use crate::{
    config::FolderPath,
    version::{CommitId, Version},
};

use super::{
    GitBundle,
    clone::{blocking, make_folder, move_to, remove, sync_below},
    credentials::Told,
    error::GitError,
    lock::{InUse, Lock, Unused, last_used},
    prune::{OnDisk, PruneSettings, removable},
    steps::{PRUNE_STEPS, PruneStep, TreeSeen, TreeStep, tree_steps},
};

/// The files of a commit on disk. They stay for as long as this value lives, whatever other processes do.
#[derive(Debug)]
pub struct WorkTree {
    /// The root of the bundle: the folder `subdir` of the tree.
    pub root: PathBuf,
    /// The commit.
    pub commit: CommitId,
    _in_use: InUse,
}

impl WorkTree {
    /// The version, as rows keep it and workers are told it.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::Commit(self.commit.clone())
    }
}

impl GitBundle {
    /// Makes the files of a commit available, if they are not, and keeps them there. `now` becomes the time of the last
    /// use. A commit that is not in our clone is looked for at the remote.
    ///
    /// *Guarantees:* the tree is complete. *Cancellation:* safe; what is half-made is never used.
    ///
    /// # Errors
    /// Nobody has the commit, it has no folder `subdir`, its files are too many or too large, or the disk fails.
    pub async fn check_out(&self, commit: &CommitId, now: Timestamp) -> Result<WorkTree, GitError> {
        let path = self.paths.tracking(commit);
        let in_use = blocking(move || {
            InUse::mark(&path, now).map_err(|source| GitError::io("marking as used", &path, source))
        })
        .await?;
        if tree_seen(&self.paths.version(commit)) != TreeSeen::Complete {
            self.find(commit).await?;
            self.make_tree(commit).await?;
        }
        let tree = self.paths.version(commit);
        let subdir = self.settings.subdir.as_ref();
        let root = subdir.map_or(Some(tree.clone()), |subdir| real_folder(&tree, subdir));
        let root = root.ok_or_else(|| self.no_subdir(commit))?;
        Ok(WorkTree {
            root,
            commit: commit.clone(),
            _in_use: in_use,
        })
    }

    /// Sees to it that the clone has a commit.
    async fn find(&self, commit: &CommitId) -> Result<(), GitError> {
        if self.has(commit).await? {
            return Ok(());
        }
        self.fetch().await?;
        if self.has(commit).await? {
            return Ok(());
        }
        self.fetch_commit(commit).await?;
        if self.has(commit).await? {
            return Ok(());
        }
        Err(GitError::CommitMissing {
            commit: commit.clone(),
        })
    }

    async fn make_tree(&self, commit: &CommitId) -> Result<(), GitError> {
        make_folder(&self.paths.base)?;
        let limit = self.settings.limits.lock_timeout;
        let lock = Lock::take(&self.paths.trees_lock, limit).await?;
        // Another process may have made it meanwhile.
        for step in tree_steps(tree_seen(&self.paths.version(commit))) {
            self.stop.before_step()?;
            self.tree_step(step, commit, &lock).await?;
        }
        Ok(())
    }

    async fn tree_step(
        &self,
        step: TreeStep,
        commit: &CommitId,
        lock: &Lock,
    ) -> Result<(), GitError> {
        let tree = self.paths.version(commit);
        let draft = Draft::of(&self.paths.drafts, commit);
        match step {
            TreeStep::ClearDrafts => {
                remove(self.paths.drafts.clone()).await?;
                remove(self.paths.trash.clone()).await
            }
            TreeStep::SetAside => {
                let aside = self.paths.trash.join(commit.as_str());
                remove(aside.clone()).await?;
                move_to(&tree, &aside)
            }
            TreeStep::List => {
                make_folder(&self.paths.drafts)?;
                let paths = self.list(commit).await?;
                longshore_files::replace_unsynced(&draft.paths, 0o600, &paths)
                    .map_err(|source| GitError::io("writing", &draft.paths, source))
            }
            TreeStep::KeepCommit => {
                let name = kept(commit);
                let arguments = [name.as_str(), commit.as_str()];
                let kept = self.must_run("update-ref", &arguments, None, Told::default());
                kept.await.map(|_| ())
            }
            TreeStep::ReadTree => {
                let (arguments, lock) = ([commit.as_str()], Some(lock.file()));
                let read = self.must_run("read-tree", &arguments, lock, draft.told());
                read.await.map(|_| ())
            }
            TreeStep::CheckOut => {
                make_folder(&draft.tree)?;
                let paths = fs::File::open(&draft.paths)
                    .map_err(|source| GitError::io("reading", &draft.paths, source))?;
                let arguments = ["--quiet", "--force", "-z", "--stdin"];
                let done = self.must_run("checkout-index", &arguments, Some(&paths), draft.told());
                done.await.map(|_| ())
            }
            TreeStep::Sync => {
                remove(draft.index.clone()).await?;
                remove(draft.paths.clone()).await?;
                sync_below(draft.tree).await
            }
            TreeStep::Publish => move_to(&draft.tree, &tree),
        }
    }

    /// The paths of the files of a commit that are checked out, each ended by a zero byte.
    async fn list(&self, commit: &CommitId) -> Result<Vec<u8>, GitError> {
        let arguments = ["-r", "-l", "-z", "--full-tree", commit.as_str()];
        let listed = self.must_run("ls-tree", &arguments, None, Told::default());
        let listed = listed.await?;
        let limits = &self.settings.limits;
        let subdir = self.settings.subdir.as_ref();
        let mut has_subdir = subdir.is_none();
        let (mut n_files, mut n_bytes) = (0, 0_u64);
        let mut paths = Vec::new();
        for line in listed.split(|byte| *byte == 0).filter(|it| !it.is_empty()) {
            let Some(entry) = Listed::parse(line) else {
                let said = "a line of ls-tree cannot be read".to_owned();
                return Err(GitError::Other {
                    what: "ls-tree",
                    said,
                });
            };
            // Submodules stay out, and are never fetched.
            let Some(size) = entry.size else {
                continue;
            };
            if !is_included(entry.path, &self.settings.sparse_dirs) {
                continue;
            }
            n_files += 1;
            n_bytes = n_bytes.saturating_add(size);
            has_subdir |= subdir.is_some_and(|subdir| is_below(entry.path, subdir));
            for (what, found, limit) in [
                ("the number of files of a commit", n_files, limits.max_files),
                ("a file of a commit, in bytes", size, limits.max_file_bytes),
                (
                    "the files of a commit, in bytes",
                    n_bytes,
                    limits.max_tree_bytes,
                ),
            ] {
                if found > limit {
                    return Err(GitError::TooLarge { what, limit, found });
                }
            }
            paths.extend_from_slice(entry.path);
            paths.push(0);
        }
        if !has_subdir {
            return Err(self.no_subdir(commit));
        }
        Ok(paths)
    }

    fn no_subdir(&self, commit: &CommitId) -> GitError {
        let subdir = self.settings.subdir.as_ref();
        GitError::SubdirMissing {
            commit: commit.clone(),
            subdir: subdir.map_or_else(String::new, |it| it.as_str().to_owned()),
        }
    }

    /// Removes versions that no process uses, that are in no `needed` run, and that are old by `settings`. Returns what
    /// was removed.
    ///
    /// *Guarantees:* a version in use stays. *Cancellation:* safe; the next round goes on.
    ///
    /// # Errors
    /// Another process works on the bundle, or the disk fails.
    pub async fn prune(
        &self,
        needed: &BTreeSet<CommitId>,
        settings: &PruneSettings,
        now: Timestamp,
    ) -> Result<Vec<CommitId>, GitError> {
        let limit = self.settings.limits.lock_timeout;
        make_folder(&self.paths.base)?;
        let _clone = Lock::take(&self.paths.clone_lock, limit).await?;
        let _trees = Lock::take(&self.paths.trees_lock, limit).await?;
        remove(self.paths.trash.clone()).await?;
        let mut removed = Vec::new();
        for commit in removable(self.on_disk(), needed, settings, now) {
            let path = self.paths.tracking(&commit);
            let unused = Unused::take(&path);
            let unused = unused.map_err(|source| GitError::io("locking", &path, source))?;
            let Some(unused) = unused else {
                continue;
            };
            let mut is_removed = true;
            for step in PRUNE_STEPS {
                self.stop.before_step()?;
                is_removed = self.prune_step(step, &commit, &unused).await?;
                if !is_removed {
                    break;
                }
            }
            removed.extend(is_removed.then_some(commit));
        }
        Ok(removed)
    }

    /// Does one step; false if somebody began to use the version meanwhile.
    pub(super) async fn prune_step(
        &self,
        step: PruneStep,
        commit: &CommitId,
        unused: &Unused,
    ) -> Result<bool, GitError> {
        let tree = self.paths.version(commit);
        let trash = self.paths.trash.join(commit.as_str());
        match step {
            PruneStep::MoveToTrash => {
                if fs::symlink_metadata(&tree).is_err() {
                    return Ok(true);
                }
                move_to(&tree, &trash)?;
                if !unused.is_still() {
                    move_to(&trash, &tree)?;
                    return Ok(false);
                }
            }
            PruneStep::Remove => remove(trash).await?,
            PruneStep::ForgetCommit => {
                if self.paths.bare.is_dir() {
                    let name = kept(commit);
                    let arguments = ["-d", name.as_str()];
                    let forgotten = self.must_run("update-ref", &arguments, None, Told::default());
                    forgotten.await?;
                }
            }
            PruneStep::Untrack => {
                if unused.is_still() {
                    remove(self.paths.tracking(commit)).await?;
                }
            }
        }
        Ok(true)
    }

    /// The versions that have a tree or a tracking file.
    fn on_disk(&self) -> Vec<OnDisk> {
        let mut commits = BTreeSet::new();
        for folder in [&self.paths.versions, &self.paths.tracking] {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            // What has another name is not ours.
            commits.extend(names.filter_map(|name| name.parse::<CommitId>().ok()));
        }
        let versions = commits.into_iter().map(|commit| {
            let used = last_used(&self.paths.tracking(&commit));
            let made = || modified(&self.paths.version(&commit));
            let last_used_at = used.or_else(made).unwrap_or(Timestamp::MIN);
            OnDisk {
                commit,
                last_used_at,
            }
        });
        versions.collect()
    }
}

fn modified(path: &Path) -> Option<Timestamp> {
    let modified = fs::metadata(path).ok()?.modified().ok()?;
    Timestamp::try_from(modified).ok()
}

/// Our ref of a commit.
fn kept(commit: &CommitId) -> String {
    format!("refs/longshore/versions/{commit}")
}

/// What there is at the place of a work tree. Airflow makes its trees there in place, and removes their `.git` last.
fn tree_seen(tree: &Path) -> TreeSeen {
    let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
    if !is_there(tree) {
        TreeSeen::Absent
    } else if is_there(&tree.join(".git")) {
        TreeSeen::HalfMade
    } else {
        TreeSeen::Complete
    }
}

/// The folder `subdir` of a tree, if no part of it is a symbolic link or a file.
fn real_folder(tree: &Path, subdir: &FolderPath) -> Option<PathBuf> {
    let mut path = tree.to_owned();
    for part in subdir.as_str().split('/') {
        path.push(part);
        if !fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            return None;
        }
    }
    Some(path)
}

/// A work tree while it is made, below `drafts`, which belongs to the holder of the lock.
struct Draft {
    tree: PathBuf,
    index: PathBuf,
    paths: PathBuf,
}

impl Draft {
    fn of(drafts: &Path, commit: &CommitId) -> Self {
        Self {
            tree: drafts.join(commit.as_str()),
            index: drafts.join(format!("{commit}.index")),
            paths: drafts.join(format!("{commit}.paths")),
        }
    }

    /// Git is told where index and files are.
    fn told(&self) -> Told {
        Told {
            config: Vec::new(),
            variables: vec![
                ("GIT_INDEX_FILE".into(), self.index.clone().into()),
                ("GIT_WORK_TREE".into(), self.tree.clone().into()),
            ],
        }
    }
}

/// A line of `ls-tree -l`.
struct Listed<'a> {
    /// Bytes; none for a submodule.
    size: Option<u64>,
    path: &'a [u8],
}

impl<'a> Listed<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let facts = std::str::from_utf8(&line[..tab]).ok()?;
        let mut facts = facts.split_ascii_whitespace().skip(1);
        let (kind, _object, size) = (facts.next()?, facts.next()?, facts.next()?);
        let size = match kind {
            "commit" => None,
            _ => Some(size.parse().ok()?),
        };
        Some(Self {
            size,
            path: &line[tab + 1..],
        })
    }
}

fn is_below(path: &[u8], folder: &FolderPath) -> bool {
    let rest = path.strip_prefix(folder.as_str().as_bytes());
    rest.is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Whether a path is checked out: all below the listed folders, and the files that lie directly in a folder above one.
fn is_included(path: &[u8], sparse_dirs: &[FolderPath]) -> bool {
    let parent = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => &path[..slash],
        None => return true,
    };
    let is_above = |dir: &FolderPath| {
        let rest = dir.as_str().as_bytes().strip_prefix(parent);
        rest.is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    sparse_dirs.is_empty()
        || sparse_dirs
            .iter()
            .any(|dir| is_below(path, dir) || is_above(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_list_is_read_or_refused() {
        for (line, expected) in [
            ("100644 blob abc      12\ta b", Some((Some(12), "a b"))),
            ("160000 commit abc       -\tmodule", Some((None, "module"))),
            (
                "100644 blob abc 12\ttab\tin it",
                Some((Some(12), "tab\tin it")),
            ),
            ("100644 blob abc -\ta", None),
            ("100644 blob\ta", None),
            ("", None),
        ] {
            let listed = Listed::parse(line.as_bytes());
            let found = listed.map(|it| (it.size, std::str::from_utf8(it.path).unwrap()));
            assert_eq!(found, expected, "{line:?}");
        }
    }
}
