//! The bare clone: how it is made and refreshed, and what the tracked ref names in it.

use std::{fs, io, path::Path};

use longshore_files::{Disk, System};

use crate::version::CommitId;

use super::{
    GitBundle, Movement, Refreshed,
    credentials::{Credentials, Told},
    error::{Cause, GitError, cause, for_people},
    lock::Lock,
    program::{Answer, Call},
    steps::{CloneSeen, CloneStep, clone_steps},
};

/// All branches and tags; those that the remote removes are removed.
const REFSPECS: [&str; 2] = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"];

impl GitBundle {
    /// Fetches, and returns what the tracked ref names now. `last` is what it named before.
    ///
    /// *Guarantees:* whatever fails, what was fetched before stays usable. *Cancellation:* safe; git is killed.
    ///
    /// # Errors
    /// The remote cannot be fetched from, has no such ref, or the disk fails.
    pub async fn refresh(&self, last: Option<&CommitId>) -> Result<Refreshed, GitError> {
        self.fetch().await?;
        let commit = self.tracked().await?;
        let movement = match last {
            None => Movement::First,
            Some(last) if *last == commit => Movement::Same,
            Some(last) if !self.has(last).await? => Movement::First,
            Some(last) => {
                let arguments = ["--is-ancestor", last.as_str(), commit.as_str()];
                let answer = self.run_local("merge-base", &arguments).await?;
                if answer.is_success {
                    Movement::Forward
                } else {
                    Movement::Rewritten
                }
            }
        };
        Ok(Refreshed { commit, movement })
    }

    /// What the tracked ref names in the clone: a branch of that name, or else a tag, or else a commit.
    ///
    /// # Errors
    /// There is none.
    pub async fn tracked(&self) -> Result<CommitId, GitError> {
        let name = self.settings.tracking_ref.as_str();
        let is_commit =
            (7..=64).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_hexdigit());
        let mut candidates = match name.strip_prefix("refs/") {
            Some(_) => vec![name.to_owned()],
            None => vec![format!("refs/heads/{name}"), format!("refs/tags/{name}")],
        };
        candidates.extend(is_commit.then(|| name.to_ascii_lowercase()));
        for candidate in candidates {
            let object = format!("{candidate}^{{commit}}");
            let arguments = ["--verify", "--quiet", &object];
            let answer = self.run_local("rev-parse", &arguments).await?;
            let output = String::from_utf8_lossy(&answer.output);
            if let (true, Ok(commit)) = (answer.is_success, output.trim().parse()) {
                return Ok(commit);
            }
        }
        Err(GitError::RefMissing {
            tracking_ref: name.to_owned(),
        })
    }

    /// Brings the clone up to date, or makes it.
    pub(super) async fn fetch(&self) -> Result<(), GitError> {
        let limit = self.settings.limits.lock_timeout;
        let lock = Lock::take(&self.paths.clone_lock, limit).await?;
        for step in clone_steps(seen(&self.paths.bare)) {
            self.stop.before_step()?;
            self.clone_step(step, &lock).await?;
        }
        Ok(())
    }

    async fn clone_step(&self, step: CloneStep, lock: &Lock) -> Result<(), GitError> {
        let bare = &self.paths.bare;
        let draft = self.paths.base.join("bare.new");
        match step {
            CloneStep::ClearDraft => remove(draft).await,
            CloneStep::SetAside => {
                let aside = self.paths.base.join("bare.broken");
                remove(aside.clone()).await?;
                move_to(bare, &aside)
            }
            CloneStep::InitDraft => {
                make_folder(&self.paths.base)?;
                let arguments = ["--bare", "--quiet", "--template=", "--initial-branch=main"];
                let call = Call {
                    repository: &draft,
                    ..self.local("init", &arguments)
                };
                self.program.run(call).await?.ok("init", &self.paths.base)?;
                sync_below(draft).await
            }
            CloneStep::Publish => move_to(&draft, bare),
            CloneStep::ClearLeftovers => {
                let bare = bare.clone();
                blocking(move || clear_leftovers(&bare)).await
            }
            CloneStep::SetOrigin => {
                let url = self.settings.remote.url();
                let arguments = ["--replace-all", "remote.origin.url", url];
                let set = self.must_run("config", &arguments, None, Told::default());
                set.await.map(|_| ())
            }
            CloneStep::Fetch => self.fetch_refs(&REFSPECS, Some(lock)).await,
        }
    }

    /// Fetches a commit by its name, which many servers allow even if no branch has it. Not having it is no error.
    pub(super) async fn fetch_commit(&self, commit: &CommitId) -> Result<(), GitError> {
        let limit = self.settings.limits.lock_timeout;
        let lock = Lock::take(&self.paths.clone_lock, limit).await?;
        match self.fetch_refs(&[commit.as_str()], Some(&lock)).await {
            Err(GitError::Other { .. } | GitError::Gone { .. }) => Ok(()),
            fetched => fetched,
        }
    }

    async fn fetch_refs(&self, refspecs: &[&str], lock: Option<&Lock>) -> Result<(), GitError> {
        let remote = &self.settings.remote;
        if let Some(path) = remote.local_path()
            && !Path::new(path).exists()
        {
            return Err(GitError::Gone {
                remote: remote.url().to_owned(),
                said: "there is nothing at this path".to_owned(),
            });
        }
        let mut told = self.credentials()?.tell(remote);
        let protocol = format!("protocol.{}.allow", remote.transport().protocol());
        told.config.push((protocol, "always".to_owned()));
        let mut arguments = vec![
            "--quiet",
            "--no-tags",
            "--force",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--no-recurse-submodules",
        ];
        if refspecs.iter().any(|it| it.contains('*')) {
            arguments.push("--prune");
        }
        arguments.extend(["--", remote.url()]);
        arguments.extend(refspecs);
        let call = Call {
            told,
            limit: self.settings.limits.fetch_timeout,
            bound: Some((&self.paths.bare, self.settings.limits.max_clone_bytes)),
            input: lock.map(Lock::file),
            ..self.local("fetch", &arguments)
        };
        let answer = self.program.run(call).await?;
        self.fetched(answer)?;
        // A small transfer may end between two looks.
        let bare = self.paths.bare.clone();
        let size = tokio::task::spawn_blocking(move || super::program::size_of(&bare)).await;
        let limit = self.settings.limits.max_clone_bytes;
        match size {
            Ok(found) if found > limit => Err(GitError::TooLarge {
                what: "the repository, in bytes",
                limit,
                found,
            }),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn fetched(&self, answer: Answer) -> Result<(), GitError> {
        if answer.is_success {
            return Ok(());
        }
        let remote = self.settings.remote.url().to_owned();
        let said = for_people(&answer.said);
        Err(match cause(&answer.said) {
            Cause::DiskFull => GitError::DiskFull {
                path: self.paths.base.clone(),
            },
            Cause::Refused => GitError::Refused { remote, said },
            Cause::NotARepository => GitError::NotARepository {
                place: remote,
                said,
            },
            Cause::Gone => GitError::Gone { remote, said },
            Cause::Other => GitError::Other {
                what: "fetch",
                said,
            },
        })
    }

    /// The configured credentials, or those of the URL: they go into a file of ours, which git's helper reads.
    fn credentials(&self) -> Result<Credentials, GitError> {
        match (&self.settings.credentials, self.settings.remote.embedded()) {
            (Credentials::None, Some(embedded)) => {
                let file = self.paths.base.join("password");
                let password = embedded.password.reveal().as_bytes();
                let written = fs::read(&file).is_ok_and(|it| it == password);
                if !written {
                    longshore_files::replace(&file, 0o600, password)
                        .map_err(|source| GitError::io("writing", &file, source))?;
                }
                let user = embedded.user.clone();
                Ok(Credentials::PasswordFile { user, file })
            }
            (configured, _) => Ok(configured.clone()),
        }
    }
}

fn seen(bare: &Path) -> CloneSeen {
    let has = |name: &str| fs::symlink_metadata(bare.join(name)).is_ok();
    if fs::symlink_metadata(bare).is_err() {
        CloneSeen::Absent
    } else if has("HEAD") && has("config") && has("objects") && has("refs") {
        CloneSeen::Complete
    } else {
        CloneSeen::Foreign
    }
}

/// Removes what a killed git left in a clone: lock files, which would stop every later git, and drafts of packs.
fn clear_leftovers(bare: &Path) -> Result<(), GitError> {
    let is_lock = |name: &str| name.ends_with(".lock");
    remove_matching(bare, is_lock)?;
    for refs in ["refs/heads", "refs/tags"] {
        remove_below(&bare.join(refs), &is_lock)?;
    }
    let is_draft = |name: &str| name.starts_with("tmp_") || name.starts_with("incoming-");
    for objects in ["objects", "objects/pack"] {
        remove_matching(&bare.join(objects), is_draft)?;
    }
    Ok(())
}

fn remove_below(folder: &Path, is_wanted: &impl Fn(&str) -> bool) -> Result<(), GitError> {
    remove_matching(folder, is_wanted)?;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            remove_below(&entry.path(), is_wanted)?;
        }
    }
    Ok(())
}

fn remove_matching(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<(), GitError> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if !is_wanted(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() => longshore_files::remove_tree(&path),
            Ok(_) | Err(_) => System.remove(&path),
        };
        removed.map_err(|source| GitError::io("removing", &path, source))?;
    }
    Ok(())
}

/// Runs work on files where it holds nobody up.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GitError> + Send + 'static,
) -> Result<T, GitError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(GitError::Other {
            what: "work on files",
            said: error.to_string(),
        }),
    }
}

/// Removes a folder or file with all that is in it, if it is there.
pub(super) async fn remove(path: std::path::PathBuf) -> Result<(), GitError> {
    blocking(move || {
        let removed = match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => longshore_files::remove_tree(&path),
            Ok(_) => System.remove(&path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        removed.map_err(|source| GitError::io("removing", &path, source))
    })
    .await
}

pub(super) fn make_folder(path: &Path) -> Result<(), GitError> {
    longshore_files::make_directories(path, 0o700)
        .map_err(|source| GitError::io("making the folder", path, source))
}

/// Gives a folder another name, durably.
pub(super) fn move_to(from: &Path, to: &Path) -> Result<(), GitError> {
    let parent = to.parent().unwrap_or(to);
    make_folder(parent)?;
    let renamed = System.rename(from, to);
    let synced = renamed.and_then(|()| longshore_files::sync_directory(parent));
    synced.map_err(|source| GitError::io("giving its name to", to, source))
}

/// Makes all files of the file system of a folder durable: git does not sync the files of a work tree.
pub(super) async fn sync_below(folder: std::path::PathBuf) -> Result<(), GitError> {
    blocking(move || {
        let synced = fs::File::open(&folder).and_then(|folder| sync_file_system(&folder));
        synced.map_err(|source| GitError::io("syncing", &folder, source))
    })
    .await
}

#[cfg(target_os = "linux")]
fn sync_file_system(folder: &fs::File) -> io::Result<()> {
    Ok(nix::unistd::syncfs(folder)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_folder: &fs::File) -> io::Result<()> {
    nix::unistd::sync();
    Ok(())
}
