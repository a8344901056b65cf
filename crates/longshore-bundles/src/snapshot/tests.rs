use proptest::prelude::*;

use super::*;

fn stamp(n: u64) -> Stamp {
    Stamp {
        size: n,
        modified_at: Timestamp::UNIX_EPOCH,
        changed_at: Timestamp::UNIX_EPOCH,
        inode: n,
    }
}

fn file(content: u8, stamped: u64) -> File {
    File {
        kind: FileKind::Plain,
        stamp: stamp(stamped),
        fingerprint: Fingerprint::Content([content; 32]),
        is_settled: true,
    }
}

fn snapshot(files: &[(&str, File)]) -> Snapshot {
    let files = files.iter().map(|(path, file)| ((*path).to_owned(), *file));
    Snapshot {
        files: files.collect(),
        problems: BTreeMap::new(),
    }
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

#[test]
fn only_another_content_or_kind_is_a_change() {
    let archive = File {
        kind: FileKind::Archive,
        ..file(1, 1)
    };
    let unread = |n| File {
        fingerprint: Fingerprint::Unread(stamp(n)),
        ..file(1, n)
    };
    for (before, now, is_changed) in [
        (file(1, 1), file(1, 1), false),
        (file(1, 1), file(1, 2), false),
        (file(1, 1), file(2, 1), true),
        (file(1, 1), archive, true),
        (file(1, 1), unread(1), true),
        (unread(1), unread(1), false),
        (unread(1), unread(2), true),
    ] {
        let diff = snapshot(&[("a", now)]).since(&snapshot(&[("a", before)]));
        assert_eq!(diff.changed.contains("a"), is_changed, "{before:?} {now:?}");
        assert_eq!(diff.is_empty(), !is_changed);
    }
}

#[test]
fn files_come_and_go_and_problems_too() {
    let mut before = snapshot(&[("gone", file(1, 1)), ("same", file(1, 1))]);
    let unreadable = |why: &str| Problem::Unreadable(why.to_owned());
    before.problems = BTreeMap::from([
        ("gone".to_owned(), Problem::Dangling),
        ("other".to_owned(), unreadable("before")),
        ("still".to_owned(), Problem::LeadsOut),
    ]);
    let mut now = snapshot(&[("new", file(1, 1)), ("same", file(1, 1))]);
    now.problems = BTreeMap::from([
        ("other".to_owned(), unreadable("now")),
        ("still".to_owned(), Problem::LeadsOut),
    ]);
    let expected = Diff {
        added: set(&["new"]),
        changed: set(&[]),
        removed: set(&["gone"]),
        problems: BTreeMap::from([("other".to_owned(), unreadable("now"))]),
        solved: set(&["gone"]),
    };
    assert_eq!(now.since(&before), expected);
}

#[test]
fn below_a_folder_are_its_files_only() {
    let all = snapshot(&[
        ("a", file(1, 1)),
        ("a.py", file(1, 1)),
        ("b/c", file(1, 1)),
        ("b/d/e", file(1, 1)),
        ("bc", file(1, 1)),
    ]);
    for (path, expected) in [
        ("", &["a", "a.py", "b/c", "b/d/e", "bc"] as &[&str]),
        ("a", &["a"]),
        ("b", &["b/c", "b/d/e"]),
        ("b/d", &["b/d/e"]),
        ("c", &[]),
    ] {
        let found: Vec<_> = all.below(path).map(|(path, _)| path.as_str()).collect();
        assert_eq!(found, expected, "{path:?}");
    }
}

fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let files = prop::collection::btree_map("[a-d]", (0..3_u8, 0..3_u64), 0..4);
    files.prop_map(|files| Snapshot {
        files: files
            .into_iter()
            .map(|(path, (content, stamped))| (path, file(content, stamped)))
            .collect(),
        problems: BTreeMap::new(),
    })
}

proptest! {
    /// Applying a diff to the earlier paths and contents gives the later ones, and nothing is named twice.
    #[test]
    fn a_diff_leads_from_one_snapshot_to_the_other(before in any_snapshot(), now in any_snapshot()) {
        let diff = now.since(&before);
        let mut contents: BTreeMap<_, _> = before.files.iter().map(|(path, file)| (path, file.fingerprint)).collect();
        for path in &diff.removed {
            prop_assert!(contents.remove(path).is_some());
        }
        for path in &diff.added {
            prop_assert!(contents.insert(path, now.files[path].fingerprint).is_none());
        }
        for path in &diff.changed {
            let old = contents.insert(path, now.files[path].fingerprint);
            prop_assert!(old.is_some_and(|old| old != now.files[path].fingerprint));
        }
        let expected: BTreeMap<_, _> = now.files.iter().map(|(path, file)| (path, file.fingerprint)).collect();
        prop_assert_eq!(contents, expected);
        prop_assert!(now.since(&now).is_empty());
    }
}
