//! Bundles of git repositories: one bare clone, and one work tree for each commit that is in use.
//!
//! Everything lies below `[dag_processor] dag_bundle_storage_path` as Airflow lays it out, so that workers on the same
//! machine find the work trees there: `NAME/bare`, `NAME/versions/COMMIT`, `_tracking/NAME/COMMIT` (locked while the
//! version is used), `_locks/NAME.lock` (held while the clone changes).
//!
//! **Invariants.** A folder below `versions` is complete, because it takes its name when it is; whatever is half-made is
//! below `drafts`, whatever is half-removed below `trash`. The clone only grows: a commit that a force-push took from the
//! remote stays for the runs that are pinned to it. Nothing of a repository is run: no hooks, no filters, no submodules.
//!
//! The work is lists of [steps](steps); a process may be killed between any two of them, or in one.
//!
//! **Why the program `git`, and not the library gix.** A fetch that hangs is ended with its process group, and what a
//! hostile repository costs is not the memory of this process; with a library both are threads of ours. gix 0.90 would
//! add 86 crates to the build, three of them second versions of crates that are linked already, and one (uluru) under
//! the MPL. Transport over SSH needs a program in both cases. The price: an image without `git` has no git bundles, which
//! [`GitError`] says by name.

mod clone;
pub mod credentials;
pub mod error;
mod lock;
mod program;
pub mod prune;
pub mod remote;
pub mod schedule;
mod steps;
mod trees;

use std::{
    ffi::OsStr,
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    config::{BundleName, FolderPath, TrackingRef},
    version::CommitId,
};

use credentials::{Credentials, Told};
use program::{Answer, Call};
use remote::Remote;
use steps::Stop;

pub use error::{Class, GitError};
pub use lock::InUse;
pub use program::GitProgram;
pub use prune::PruneSettings;
pub use trees::WorkTree;

/// How much time and space a repository may take.
#[derive(Clone, Copy, Debug)]
pub struct GitLimits {
    /// A fetch; default 300 s.
    pub fetch_timeout: Duration,
    /// A command that needs no network; default 60 s.
    pub local_timeout: Duration,
    /// Waiting for another process that works on the bundle; default 60 s.
    pub lock_timeout: Duration,
    /// The clone; default 1 GiB.
    pub max_clone_bytes: u64,
    /// The files of a commit together; default 1 GiB.
    pub max_tree_bytes: u64,
    /// One file of a commit; default 256 MiB.
    pub max_file_bytes: u64,
    /// The number of files of a commit; default 100,000.
    pub max_files: u64,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            fetch_timeout: Duration::from_secs(300),
            local_timeout: Duration::from_secs(60),
            lock_timeout: Duration::from_secs(60),
            max_clone_bytes: 1 << 30,
            max_tree_bytes: 1 << 30,
            max_file_bytes: 256 << 20,
            max_files: 100_000,
        }
    }
}

/// What a bundle of a repository consists of.
#[derive(Clone, Debug)]
pub struct GitSettings {
    /// The repository.
    pub remote: Remote,
    /// How we are let in. A password in the URL is used if there are none.
    pub credentials: Credentials,
    /// What is followed.
    pub tracking_ref: TrackingRef,
    /// The folder that is the root of the bundle; the top of the repository if there is none.
    pub subdir: Option<FolderPath>,
    /// Folders outside of which nothing is checked out; all if empty. (Git's sparse checkout in cone mode.)
    pub sparse_dirs: Vec<FolderPath>,
    /// How much it may take.
    pub limits: GitLimits,
}

/// What a refresh found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refreshed {
    /// The commit that the tracked ref names now.
    pub commit: CommitId,
    /// How it relates to the one before.
    pub movement: Movement,
}

/// How the tracked ref moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// There was no commit before, or it is not in our clone.
    First,
    /// It did not move.
    Same,
    /// The commit before is an ancestor of the new one.
    Forward,
    /// The history was rewritten (force-push), or another ref is tracked. The commit before stays in our clone.
    Rewritten,
}

/// Where a commit can be had. A worker that makes its own copy needs it at the remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A branch or tag contains it, as of the last fetch.
    AtRemote,
    /// The remote has taken it back by a force-push; our clone has it.
    OnlyHere,
    /// It is not in our clone.
    Missing,
}

/// A bundle of a git repository.
#[derive(Debug)]
pub struct GitBundle {
    settings: GitSettings,
    program: GitProgram,
    paths: Paths,
    stop: Stop,
}

/// Where a bundle's parts are.
#[derive(Clone, Debug)]
struct Paths {
    base: PathBuf,
    bare: PathBuf,
    versions: PathBuf,
    drafts: PathBuf,
    trash: PathBuf,
    tracking: PathBuf,
    clone_lock: PathBuf,
    trees_lock: PathBuf,
}

impl Paths {
    fn new(storage: &Path, name: &BundleName) -> Self {
        let name = name.to_component();
        let base = storage.join(&name);
        Self {
            bare: base.join("bare"),
            versions: base.join("versions"),
            drafts: base.join("drafts"),
            trash: base.join("trash"),
            tracking: storage.join("_tracking").join(&name),
            clone_lock: storage.join("_locks").join(format!("{name}.lock")),
            trees_lock: base.join("trees.lock"),
            base,
        }
    }

    fn version(&self, commit: &CommitId) -> PathBuf {
        self.versions.join(commit.as_str())
    }

    fn tracking(&self, commit: &CommitId) -> PathBuf {
        self.tracking.join(commit.as_str())
    }
}

impl GitBundle {
    /// The bundle `name` in a folder that all bundles share. Nothing is done yet.
    #[must_use]
    pub fn new(
        storage: &Path,
        name: &BundleName,
        settings: GitSettings,
        program: GitProgram,
    ) -> Self {
        Self {
            settings,
            program,
            paths: Paths::new(storage, name),
            stop: Stop::default(),
        }
    }

    /// A call of git on the clone that needs no network.
    fn local<'a>(&'a self, what: &'static str, arguments: &[&'a str]) -> Call<'a> {
        let arguments = [what].into_iter().chain(arguments.iter().copied());
        Call {
            what,
            arguments: arguments.map(OsStr::new).collect(),
            repository: &self.paths.bare,
            told: Told::default(),
            limit: self.settings.limits.local_timeout,
            bound: None,
            input: None,
            max_output: 64 << 20,
        }
    }

    async fn run_local(&self, what: &'static str, arguments: &[&str]) -> Result<Answer, GitError> {
        self.program.run(self.local(what, arguments)).await
    }

    async fn must_run(
        &self,
        what: &'static str,
        arguments: &[&str],
        input: Option<&File>,
        told: Told,
    ) -> Result<Vec<u8>, GitError> {
        let call = Call {
            input,
            told,
            ..self.local(what, arguments)
        };
        let answer = self.program.run(call).await?;
        answer.ok(what, &self.paths.base)
    }

    /// Checks that there is a program `git` that is new enough.
    ///
    /// # Errors
    /// There is none.
    pub async fn check_program(&self) -> Result<(), GitError> {
        let call = Call {
            repository: Path::new("/dev/null"),
            ..self.local("version", &[])
        };
        let answer = self.program.run(call).await?;
        let found = String::from_utf8_lossy(&answer.output).trim().to_owned();
        if is_new_enough(&found) {
            return Ok(());
        }
        Err(GitError::TooOld { found })
    }

    /// Where a commit can be had, as of the last fetch.
    ///
    /// # Errors
    /// Git cannot be run.
    pub async fn standing(&self, commit: &CommitId) -> Result<Standing, GitError> {
        if !self.has(commit).await? {
            return Ok(Standing::Missing);
        }
        let arguments = [
            "--count=1",
            "--contains",
            commit.as_str(),
            "--format=%(objectname)",
            "refs/heads",
            "refs/tags",
        ];
        let found = self.must_run("for-each-ref", &arguments, None, Told::default());
        Ok(if found.await?.is_empty() {
            Standing::OnlyHere
        } else {
            Standing::AtRemote
        })
    }

    /// Whether the clone has a commit.
    async fn has(&self, commit: &CommitId) -> Result<bool, GitError> {
        if !self.paths.bare.is_dir() {
            return Ok(false);
        }
        let object = format!("{commit}^{{commit}}");
        let answer = self.run_local("cat-file", &["-e", &object]).await?;
        Ok(answer.is_success)
    }
}

/// Whether `git version` says at least 2.31, which reads configuration from the environment.
fn is_new_enough(version: &str) -> bool {
    let numbers = version.strip_prefix("git version ").unwrap_or_default();
    let mut numbers = numbers.split('.').map(|it| it.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next(), numbers.next());
    (major.unwrap_or(0), minor.unwrap_or(0)) >= (2, 31)
}

#[cfg(test)]
mod tests;
