//! A process that is killed between any two steps, or in one, does no harm.

use std::fs;

use super::*;
use crate::git::steps::{CloneSeen, TreeSeen, clone_steps, tree_steps};

const FILES: [(&str, &str); 3] = [("a.py", "a"), ("sub/b.py", "b"), ("sub/deep/c.py", "c")];

/// The files below a root, with their content.
fn files(tree: &WorkTree) -> Vec<(String, String)> {
    let scanner = Scanner::new(&tree.root, IgnoreSyntax::Glob, Limits::default());
    let found = scanner.scan(&Snapshot::default(), Timestamp::MAX).unwrap();
    let paths = found.files.keys();
    paths
        .map(|path| (path.clone(), world::read(tree, path)))
        .collect()
}

fn expected() -> Vec<(String, String)> {
    let files = FILES.iter();
    files
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect()
}

#[tokio::test]
async fn a_kill_between_any_two_steps_is_made_good() {
    let n_steps = clone_steps(CloneSeen::Absent).len() + tree_steps(TreeSeen::Absent).len();
    let mut n_stopped = 0;
    for n_done in 0..=n_steps {
        let world = World::new();
        let commit = world.commit(&FILES);
        let killed = world.bundle_with(|it| it.stop = world::stop_after(n_done));
        let outcome = killed.check_out(&commit, world.now()).await;
        match outcome {
            Err(GitError::Stopped) => n_stopped += 1,
            Ok(_) => assert_eq!(n_done, n_steps),
            Err(other) => panic!("{n_done}: {other}"),
        }
        // Whatever has its final name is whole.
        let version = world.base().join("versions").join(commit.as_str());
        if version.exists() {
            assert!(
                version.join("sub/deep/c.py").exists(),
                "after {n_done} steps"
            );
        }
        let next = world.bundle();
        assert_eq!(next.refresh(None).await.unwrap().commit, commit);
        let tree = next.check_out(&commit, world.now()).await.unwrap();
        assert_eq!(files(&tree), expected(), "after {n_done} steps");
    }
    assert_eq!(n_stopped, n_steps);
}

#[tokio::test]
async fn what_a_kill_in_a_step_leaves_is_removed() {
    let world = World::new();
    let commit = world.commit(&FILES);
    let drafts = world.base().join("drafts");
    let half = drafts.join(commit.as_str());
    let put = |path: std::path::PathBuf| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "half").unwrap();
    };
    put(half.join("a.py"));
    put(half.join("left/over.py"));
    put(world.base().join("bare.new/HEAD"));
    put(drafts.join("of-another-commit/a.py"));
    put(drafts.join(format!("{commit}.index")));
    put(drafts.join(format!("{commit}.index.lock")));
    world.bundle().refresh(None).await.unwrap();
    // A git that was killed in a fetch leaves its locks and drafts of packs.
    let bare = world.base().join("bare");
    let leftovers = [
        "packed-refs.lock",
        "config.lock",
        "refs/heads/main.lock",
        "refs/heads/team/x.lock",
        "objects/pack/tmp_pack_x",
        "objects/tmp_objdir-incoming-x/a",
    ];
    for path in leftovers {
        put(bare.join(path));
    }
    let second = world.commit(&[("d.py", "d")]);
    let bundle = world.bundle();
    assert_eq!(bundle.refresh(None).await.unwrap().commit, second);
    for path in leftovers {
        assert!(!bare.join(path).exists(), "{path}");
    }
    let tree = bundle.check_out(&commit, world.now()).await.unwrap();
    assert_eq!(files(&tree), expected());
    assert_eq!(fs::read_dir(drafts).unwrap().count(), 0);
    assert!(!world.base().join("bare.new").exists());
}

#[tokio::test]
async fn a_tree_that_airflow_left_half_made_is_made_anew() {
    let world = World::new();
    let commit = world.commit(&FILES);
    let version = world.base().join("versions").join(commit.as_str());
    fs::create_dir_all(version.join(".git")).unwrap();
    fs::write(version.join("a.py"), "half").unwrap();
    let tree = world
        .bundle()
        .check_out(&commit, world.now())
        .await
        .unwrap();
    assert_eq!(files(&tree), expected());
}

#[tokio::test]
async fn a_clone_that_is_none_is_moved_away() {
    let world = World::new();
    let commit = world.commit(&FILES);
    for _ in 0..2 {
        let bare = world.base().join("bare");
        let _ = fs::remove_dir_all(&bare);
        fs::create_dir_all(bare.join("objects")).unwrap();
        fs::write(bare.join("mine"), "x").unwrap();
        let found = world.bundle().refresh(None).await.unwrap();
        assert_eq!(found.commit, commit);
        assert!(world.base().join("bare.broken/mine").exists());
    }
}

/// A lock that another process holds is waited for, and its holder is named in the end.
#[tokio::test]
async fn a_lock_ends_with_its_holder() {
    let world = World::new();
    world.commit(&FILES);
    let bundle = world.bundle_with(|it| {
        it.settings.limits.lock_timeout = Duration::from_millis(200);
    });
    let path = world.storage().join("_locks/test.lock");
    let lock = crate::git::lock::Lock::take(&path, Duration::ZERO);
    let lock = lock.await.unwrap();
    let busy = bundle.refresh(None).await.unwrap_err().to_string();
    let holder = format!("process {}", std::process::id());
    assert!(busy.contains(&holder), "{busy}");
    // A git that was started under the lock holds it when we are gone.
    let orphan = std::process::Command::new("sleep")
        .arg("1000")
        .stdin(lock.file().try_clone().unwrap())
        .stdout(std::process::Stdio::null())
        .spawn();
    let mut orphan = orphan.unwrap();
    drop(lock);
    let busy = bundle.refresh(None).await.unwrap_err();
    assert!(matches!(busy, GitError::Busy { .. }), "{busy}");
    orphan.kill().unwrap();
    orphan.wait().unwrap();
    bundle.refresh(None).await.unwrap();
}
