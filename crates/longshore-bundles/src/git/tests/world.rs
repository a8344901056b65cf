//! A remote repository, and a folder for bundles.

use std::{fs, path::PathBuf, process::Command, sync::Arc};

use tempfile::TempDir;

use super::*;
use crate::git::remote::AllowedRemotes;

/// The paths of a world end with it.
pub(super) struct World {
    remote: Arc<TempDir>,
    storage: TempDir,
}

impl World {
    pub(super) fn new() -> Self {
        let world = Self {
            remote: Arc::new(tempfile::tempdir().unwrap()),
            storage: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(world.remote()).unwrap();
        world.git(&["init", "--quiet", "--initial-branch=main", "."]);
        world
    }

    /// The same remote, with nothing fetched from it.
    pub(super) fn same_remote(&self) -> Self {
        Self {
            remote: Arc::clone(&self.remote),
            storage: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn remote(&self) -> PathBuf {
        self.remote.path().join("repository")
    }

    /// A path beside the remote.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.remote.path().join(name)
    }

    pub(super) fn base(&self) -> PathBuf {
        self.storage.path().join("test")
    }

    pub(super) fn storage(&self) -> PathBuf {
        self.storage.path().to_owned()
    }

    pub(super) fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(["-c", "protocol.file.allow=always"])
            .args(arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .current_dir(self.remote())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Adds files to the branch `main`.
    pub(super) fn commit(&self, files: &[(&str, &str)]) -> CommitId {
        for (path, text) in files {
            let path = self.remote().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        self.commit_all()
    }

    pub(super) fn commit_all(&self) -> CommitId {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", "x"]);
        self.git(&["rev-parse", "HEAD"]).parse().unwrap()
    }

    /// Takes the last commit of `main` back.
    pub(super) fn take_back(&self) {
        self.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::new(1_800_000_000, 0).unwrap()
    }

    pub(super) fn bundle(&self) -> GitBundle {
        self.bundle_with(|_| {})
    }

    /// A bundle as a new process has it.
    pub(super) fn bundle_with(&self, change: impl FnOnce(&mut GitBundle)) -> GitBundle {
        let url = self.remote();
        let remote = Remote::parse(url.to_str().unwrap(), AllowedRemotes::LocalToo);
        let settings = GitSettings {
            remote: remote.unwrap(),
            credentials: Credentials::None,
            tracking_ref: TrackingRef::new("main").unwrap(),
            subdir: None,
            sparse_dirs: Vec::new(),
            limits: GitLimits::default(),
        };
        let name = BundleName::new("test").unwrap();
        let program = GitProgram::default();
        let mut bundle = GitBundle::new(self.storage.path(), &name, settings, program);
        change(&mut bundle);
        bundle
    }
}

pub(super) fn read(tree: &WorkTree, path: &str) -> String {
    fs::read_to_string(tree.root.join(path)).unwrap()
}

pub(super) fn stop_after(n_steps: usize) -> Stop {
    Stop {
        left: Some(n_steps.into()),
    }
}
