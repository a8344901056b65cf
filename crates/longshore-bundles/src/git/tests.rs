//! Against repositories that the program `git` makes on the spot.

mod failures;
mod hostile;
mod kills;
mod pruning;
mod world;

use jiff::Timestamp;

use super::*;
use crate::{IgnoreSyntax, Limits, Scanner, Snapshot};
use world::World;

#[test]
fn only_new_programs_are_good_enough() {
    for (text, expected) in [
        ("git version 2.39.5", true),
        ("git version 2.31.0.windows.1", true),
        ("git version 3.0", true),
        ("git version 2.30.9", false),
        ("git version 1.99", false),
        ("nonsense", false),
    ] {
        assert_eq!(is_new_enough(text), expected, "{text}");
    }
}

#[tokio::test]
async fn a_run_stays_at_its_commit_while_the_branch_goes_on() {
    let world = World::new();
    let bundle = world.bundle();
    bundle.check_program().await.unwrap();
    let first = world.commit(&[("dags/a.py", "one"), ("dags/b.py", "b"), ("README", "r")]);
    let refreshed = bundle.refresh(None).await.unwrap();
    assert_eq!(refreshed.commit, first);
    assert_eq!(refreshed.movement, Movement::First);
    let pinned = bundle.check_out(&first, world.now()).await.unwrap();
    assert_eq!(pinned.version().to_worker(), Some(first.as_str()));

    let second = world.commit(&[("dags/a.py", "two"), ("dags/c.py", "c")]);
    let refreshed = bundle.refresh(Some(&first)).await.unwrap();
    assert_eq!(refreshed.commit, second);
    assert_eq!(refreshed.movement, Movement::Forward);
    let next = bundle.check_out(&second, world.now()).await.unwrap();
    assert_eq!(world::read(&pinned, "dags/a.py"), "one");
    assert_eq!(world::read(&next, "dags/a.py"), "two");
    assert!(!pinned.root.join("dags/c.py").exists());
    assert!(!next.root.join(".git").exists());

    // What a new process finds is the same, and no step is done again.
    let same = world.bundle_with(|it| it.stop = world::stop_after(0));
    let again = same.check_out(&first, world.now()).await.unwrap();
    assert_eq!(again.root, pinned.root);
    let refreshed = bundle.refresh(Some(&second)).await.unwrap();
    assert_eq!(refreshed.movement, Movement::Same);
}

#[tokio::test]
async fn what_changed_between_two_commits_is_the_diff_of_their_trees() {
    let world = World::new();
    let bundle = world.bundle();
    let mut last = Snapshot::default();
    for (files, added, changed) in [
        (
            &[("a.py", "1"), ("b.py", "1")] as &[_],
            &["a.py", "b.py"] as &[&str],
            &[] as &[&str],
        ),
        (&[("a.py", "2"), ("c.py", "1")], &["c.py"], &["a.py"]),
    ] {
        let commit = world.commit(files);
        bundle.refresh(None).await.unwrap();
        let tree = bundle.check_out(&commit, world.now()).await.unwrap();
        let scanner = Scanner::new(&tree.root, IgnoreSyntax::Glob, Limits::default());
        let next = scanner.scan(&last, Timestamp::MAX).unwrap();
        let diff = next.since(&last);
        assert_eq!(diff.added.iter().collect::<Vec<_>>(), added);
        assert_eq!(diff.changed.iter().collect::<Vec<_>>(), changed);
        last = next;
    }
}

#[tokio::test]
async fn a_branch_comes_before_a_tag_and_a_tag_before_a_commit() {
    let world = World::new();
    let first = world.commit(&[("a", "1")]);
    let second = world.commit(&[("a", "2")]);
    world.git(&["tag", "-a", "-m", "x", "v1", first.as_str()]);
    world.git(&["tag", "both", first.as_str()]);
    world.git(&["branch", "both", second.as_str()]);
    world.git(&["branch", "team/x", first.as_str()]);
    for (tracked, expected) in [
        ("main", Some(&second)),
        ("v1", Some(&first)),
        ("both", Some(&second)),
        ("team/x", Some(&first)),
        ("refs/tags/both", Some(&first)),
        (first.as_str(), Some(&first)),
        (&first.as_str()[..10], Some(&first)),
        ("none", None),
        ("abcdef0123", None),
    ] {
        let bundle = world.bundle_with(|it| {
            it.settings.tracking_ref = TrackingRef::new(tracked).unwrap();
        });
        let found = bundle.refresh(None).await;
        match (&found, expected) {
            (Ok(found), Some(expected)) => assert_eq!(&found.commit, expected, "{tracked}"),
            (Err(GitError::RefMissing { tracking_ref }), None) => assert_eq!(tracking_ref, tracked),
            other => panic!("{tracked}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_folder_of_the_repository_is_the_root() {
    let world = World::new();
    let files = [
        ("top.py", "t"),
        ("dags/a.py", "a"),
        ("dags/x/b.py", "b"),
        ("big/c.py", "c"),
        ("dags/y/d.py", "d"),
    ];
    let commit = world.commit(&files);
    let folder = |text: &str| FolderPath::new(text).unwrap();
    for (subdir, sparse, expected) in [
        (
            "dags",
            &[] as &[&str],
            &["a.py", "x/b.py", "y/d.py"] as &[&str],
        ),
        ("dags/x/", &[], &["b.py"]),
        ("", &["dags/x"], &["dags/a.py", "dags/x/b.py", "top.py"]),
        (
            "",
            &["dags", "big"],
            &[
                "big/c.py",
                "dags/a.py",
                "dags/x/b.py",
                "dags/y/d.py",
                "top.py",
            ],
        ),
    ] {
        let world = world.same_remote();
        let bundle = world.bundle_with(|it| {
            it.settings.subdir = folder(subdir);
            it.settings.sparse_dirs = sparse.iter().filter_map(|it| folder(it)).collect();
        });
        let tree = bundle.check_out(&commit, world.now()).await.unwrap();
        let scanner = Scanner::new(&tree.root, IgnoreSyntax::Glob, Limits::default());
        let found = scanner.scan(&Snapshot::default(), Timestamp::MAX).unwrap();
        assert_eq!(
            found.files.keys().collect::<Vec<_>>(),
            expected,
            "{subdir} {sparse:?}"
        );
    }
}

#[tokio::test]
async fn two_processes_at_once_make_one_tree() {
    let world = World::new();
    let commit = world.commit(&[("a", "1")]);
    let (one, two) = (world.bundle(), world.bundle());
    let (one, two) = tokio::join!(
        one.check_out(&commit, world.now()),
        two.check_out(&commit, world.now())
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.root, two.root);
    assert_eq!(world::read(&one, "a"), "1");
}
