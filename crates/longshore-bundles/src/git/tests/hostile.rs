//! Repositories that mean harm.

use std::{fs, os::unix::fs::symlink};

use super::*;
use crate::Problem;

#[tokio::test]
async fn links_out_of_the_tree_are_not_followed() {
    let world = World::new();
    world.commit(&[("a.py", "a"), ("dags/b.py", "b")]);
    symlink("/etc", world.remote().join("etc")).unwrap();
    symlink("/etc/passwd", world.remote().join("passwd.py")).unwrap();
    symlink("../../bare/config", world.remote().join("config.py")).unwrap();
    symlink("dags", world.remote().join("linked")).unwrap();
    let commit = world.commit_all();
    let tree = world
        .bundle()
        .check_out(&commit, world.now())
        .await
        .unwrap();
    let scanner = Scanner::new(&tree.root, IgnoreSyntax::Glob, Limits::default());
    let found = scanner.scan(&Snapshot::default(), Timestamp::MAX).unwrap();
    assert_eq!(
        found.files.keys().collect::<Vec<_>>(),
        ["a.py", "dags/b.py"]
    );
    for path in ["etc", "passwd.py", "config.py"] {
        assert_eq!(found.problems[path], Problem::LeadsOut, "{path}");
    }
    // The root is no link either.
    let linked = world.bundle_with(|it| it.settings.subdir = FolderPath::new("linked").unwrap());
    let error = linked.check_out(&commit, world.now()).await.unwrap_err();
    assert!(matches!(error, GitError::SubdirMissing { .. }), "{error}");
}

#[tokio::test]
async fn nothing_of_a_repository_is_run() {
    let world = World::new();
    let ran = world.beside("ran");
    let touch = format!("touch {}", ran.display());
    world.commit(&[("a.py", "a"), (".gitattributes", "*.py filter=evil\n")]);
    let module = World::new();
    module.commit(&[("m.py", "m")]);
    let url = module.remote();
    world.git(&[
        "submodule",
        "--quiet",
        "add",
        url.to_str().unwrap(),
        "module",
    ]);
    let commit = world.commit_all();
    let bundle = world.bundle();
    bundle.refresh(None).await.unwrap();
    // Somebody who can write into the clone cannot make us run anything by these two ways.
    let bare = world.base().join("bare");
    for hook in [
        "post-checkout",
        "reference-transaction",
        "post-index-change",
    ] {
        let path = bare.join("hooks").join(hook);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{touch}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&path, mode).unwrap();
    }
    let tree = bundle.check_out(&commit, world.now()).await.unwrap();
    bundle.refresh(None).await.unwrap();
    assert!(!ran.exists());
    assert_eq!(world::read(&tree, "a.py"), "a");
    assert!(!tree.root.join("module/m.py").exists());
}

#[tokio::test]
async fn too_many_and_too_large_files_are_refused_before_they_are_written() {
    let world = World::new();
    let commit = world.commit(&[("a", "12345"), ("b", "123"), ("c", "")]);
    let limits = GitLimits::default();
    for (limits, is_fine) in [
        (
            GitLimits {
                max_files: 3,
                max_file_bytes: 5,
                max_tree_bytes: 8,
                ..limits
            },
            true,
        ),
        (
            GitLimits {
                max_files: 2,
                ..limits
            },
            false,
        ),
        (
            GitLimits {
                max_file_bytes: 4,
                ..limits
            },
            false,
        ),
        (
            GitLimits {
                max_tree_bytes: 7,
                ..limits
            },
            false,
        ),
    ] {
        let world = world.same_remote();
        let bundle = world.bundle_with(|it| it.settings.limits = limits);
        let made = bundle.check_out(&commit, world.now()).await;
        let versions = world.base().join("versions");
        match made {
            Ok(_) => assert!(is_fine),
            Err(GitError::TooLarge { .. }) => {
                assert!(!is_fine && !versions.join(commit.as_str()).exists());
            }
            Err(other) => panic!("{other}"),
        }
    }
    let small = world.same_remote();
    let bundle = small.bundle_with(|it| it.settings.limits.max_clone_bytes = 100);
    let error = bundle.refresh(None).await.unwrap_err();
    assert!(
        matches!(error, GitError::TooLarge { limit: 100, .. }),
        "{error}"
    );
}
