use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

fn later() -> Timestamp {
    Timestamp::MAX
}

struct Tree {
    folder: TempDir,
    last: Snapshot,
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let tree = Self {
            folder: tempfile::tempdir().unwrap(),
            last: Snapshot::default(),
        };
        for (path, text) in files {
            tree.write(path, text);
        }
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn scanner(&self, limits: Limits) -> Scanner {
        Scanner::new(self.folder.path(), IgnoreSyntax::Glob, limits)
    }

    fn scan_at(&mut self, now: Timestamp) -> crate::Diff {
        let next = self.scanner(Limits::default()).scan(&self.last, now);
        let next = next.unwrap();
        let diff = next.since(&self.last);
        self.last = next;
        diff
    }

    fn scan(&mut self) -> crate::Diff {
        self.scan_at(later())
    }

    fn names(&self) -> Vec<&str> {
        self.last.files.keys().map(String::as_str).collect()
    }
}

fn names(set: &BTreeSet<String>) -> Vec<&str> {
    set.iter().map(String::as_str).collect()
}

#[test]
fn changes_are_found_by_content() {
    let mut tree = Tree::new(&[("a.py", "a"), ("b/c.py", "c"), ("same.py", "same")]);
    assert_eq!(names(&tree.scan().added), ["a.py", "b/c.py", "same.py"]);
    assert!(tree.scan().is_empty());
    tree.write("a.py", "b");
    tree.write("same.py", "same");
    tree.write("new.py", "new");
    fs::remove_dir_all(tree.path("b")).unwrap();
    let diff = tree.scan();
    assert_eq!(names(&diff.changed), ["a.py"]);
    assert_eq!(names(&diff.added), ["new.py"]);
    assert_eq!(names(&diff.removed), ["b/c.py"]);
}

#[test]
fn a_file_whose_stamp_is_as_it_was_is_not_read() {
    let mut tree = Tree::new(&[("a.py", "a")]);
    tree.scan();
    let known = tree.last.files.get_mut("a.py").unwrap();
    known.fingerprint = Fingerprint::Content([7; 32]);
    assert!(tree.scan().is_empty());
    // The same bytes under another name take the path: only the inode tells.
    tree.write("other", "a");
    longshore_files::Disk::rename(
        &longshore_files::System,
        &tree.path("other"),
        &tree.path("a.py"),
    )
    .unwrap();
    assert_eq!(names(&tree.scan().changed), ["a.py"]);
}

#[test]
fn a_file_that_changed_just_now_is_read_again() {
    let mut tree = Tree::new(&[("a.py", "a")]);
    let changed_at = stamp(&fs::metadata(tree.path("a.py")).unwrap()).changed_at;
    for (after, is_settled) in [(0, false), (1_999, false), (2_000, true)] {
        tree.last = Snapshot::default();
        tree.scan_at(changed_at + SignedDuration::from_millis(after));
        assert_eq!(tree.last.files["a.py"].is_settled, is_settled, "{after} ms");
        // As if it had changed without another stamp.
        let known = tree.last.files.get_mut("a.py").unwrap();
        known.fingerprint = Fingerprint::Content([7; 32]);
        assert_eq!(tree.scan().is_empty(), is_settled, "{after} ms");
    }
}

#[test]
fn an_ignore_file_that_changes_takes_files_away_and_gives_them_back() {
    let mut tree = Tree::new(&[("a.py", ""), ("b.py", ""), ("sub/a.py", "")]);
    tree.scan();
    tree.write(IGNORE_FILE, "a.py\n");
    assert_eq!(names(&tree.scan().removed), ["a.py", "sub/a.py"]);
    tree.write("sub/.airflowignore", "!a.py\n");
    assert_eq!(names(&tree.scan().added), ["sub/a.py"]);
    tree.write(IGNORE_FILE, "\\\n");
    let diff = tree.scan();
    assert_eq!(names(&diff.added), ["a.py"]);
    assert!(matches!(diff.problems[IGNORE_FILE], Problem::Ignore(_)));
    fs::remove_file(tree.path(IGNORE_FILE)).unwrap();
    assert_eq!(names(&tree.scan().solved), [IGNORE_FILE]);
}

#[test]
fn what_python_and_git_keep_for_themselves_is_not_listed() {
    let mut tree = Tree::new(&[
        (".git/config", ""),
        ("sub/.git", "gitdir: elsewhere"),
        ("__pycache__/a.pyc", ""),
        ("__pycache__/a.py", ""),
        ("a.pyc", ""),
        (".hidden/a.py", ""),
    ]);
    tree.scan();
    assert_eq!(tree.names(), [".hidden/a.py", "__pycache__/a.py", "a.pyc"]);
}

#[test]
fn an_archive_is_one_unit_whatever_its_name() {
    let record = |comment: usize| {
        let mut bytes = b"content PK\x05\x06".to_vec();
        bytes.extend([0; 18]);
        bytes.extend(vec![b'c'; comment]);
        bytes
    };
    let mut tree = Tree::new(&[("no.zip", "PK\x03\x04 but no end")]);
    tree.write("a.zip", record(0));
    tree.write("b.bin", record(65_535));
    tree.write("c.zip", record(65_536));
    tree.write("short.zip", &record(0)[..20]);
    tree.scan();
    let archives = tree.last.files.iter();
    let archives = archives.filter(|(_, file)| file.kind == FileKind::Archive);
    let archives: Vec<_> = archives.map(|(path, _)| path.as_str()).collect();
    assert_eq!(archives, ["a.zip", "b.bin"]);
}

#[test]
fn links_are_followed_inside_the_bundle_only() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.py"), "secret").unwrap();
    let mut tree = Tree::new(&[
        (".airflowignore", "kept/\n"),
        ("real/a.py", "a"),
        ("kept/v1/b.py", "b"),
    ]);
    for (target, link) in [
        (outside.path().join("secret.py"), "out.py"),
        (outside.path().to_owned(), "out"),
        (PathBuf::from("/etc/passwd"), "real/passwd"),
        (PathBuf::from("real/a.py"), "file.py"),
        (PathBuf::from("kept/v1"), "current"),
        (PathBuf::from("real"), "again"),
        (PathBuf::from(".."), "real/up"),
        (PathBuf::from("nothing"), "dangling.py"),
        (PathBuf::from("loop"), "loop"),
    ] {
        symlink(target, tree.path(link)).unwrap();
    }
    symlink("../a.py", tree.path("kept/v1/c.py")).unwrap();
    tree.scan();
    assert_eq!(tree.names(), ["current/b.py", "file.py", "real/a.py"]);
    let problems = tree.last.problems.iter();
    let problems = problems.map(|(path, problem)| (path.as_str(), problem.clone()));
    let loops = tree.last.problems["loop"].clone();
    assert!(matches!(&loops, Problem::Unreadable(_)), "{loops}");
    let twice = |name: &str| Problem::ListedTwice(name.to_owned());
    let expected = [
        ("again", twice("real")),
        ("current/c.py", Problem::Dangling),
        ("dangling.py", Problem::Dangling),
        ("loop", loops),
        ("out", Problem::LeadsOut),
        ("out.py", Problem::LeadsOut),
        ("real/passwd", Problem::LeadsOut),
        ("real/up", twice("")),
    ];
    assert_eq!(problems.collect::<Vec<_>>(), expected);
}

#[test]
fn a_pipe_is_not_read() {
    let mut tree = Tree::new(&[("a.py", "")]);
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&tree.path("pipe.py"), mode).unwrap();
    tree.scan();
    assert_eq!(tree.names(), ["a.py"]);
    assert_eq!(tree.last.problems["pipe.py"], Problem::NotRegular);
}

#[test]
fn what_cannot_be_read_is_not_removed() {
    // A link to itself cannot be read by root either.
    let mut tree = Tree::new(&[("a.py", "a"), ("sub/b.py", "b"), ("sub/deep/c.py", "c")]);
    tree.scan();
    for path in ["a.py", "sub/deep"] {
        let _ = fs::remove_file(tree.path(path));
        let _ = fs::remove_dir_all(tree.path(path));
        symlink(tree.path(path), tree.path(path)).unwrap();
    }
    let diff = tree.scan();
    assert_eq!(tree.names(), ["a.py", "sub/b.py", "sub/deep/c.py"]);
    let problems: Vec<_> = diff.problems.keys().map(String::as_str).collect();
    assert_eq!(problems, ["a.py", "sub/deep"]);
    for path in ["a.py", "sub/deep"] {
        fs::remove_file(tree.path(path)).unwrap();
    }
    let diff = tree.scan();
    assert_eq!(names(&diff.removed), ["a.py", "sub/deep/c.py"]);
    assert_eq!(names(&diff.solved), ["a.py", "sub/deep"]);
}

#[test]
fn a_closed_folder_is_not_empty() {
    let mut tree = Tree::new(&[("sub/b.py", "b")]);
    tree.scan();
    let mode = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(tree.path("sub"), mode(0o000)).unwrap();
    let diff = tree.scan();
    fs::set_permissions(tree.path("sub"), mode(0o700)).unwrap();
    // Root reads closed folders.
    let is_root = nix::unistd::Uid::effective().is_root();
    assert_eq!(diff.problems.contains_key("sub"), !is_root);
    assert_eq!(tree.names(), ["sub/b.py"]);
}

#[test]
fn a_folder_that_cannot_be_listed_is_an_error() {
    let tree = Tree::new(&[("a.py", ""), ("b/c.py", "")]);
    let scan = |path: &str, limits| {
        let scanner = Scanner::new(&tree.path(path), IgnoreSyntax::Glob, limits);
        scanner
            .scan(&Snapshot::default(), later())
            .map(|it| it.files.len())
    };
    let limits = |max_entries| Limits {
        max_entries,
        ..Limits::default()
    };
    assert!(matches!(scan("", limits(3)), Ok(2)));
    assert!(matches!(
        scan("", limits(2)),
        Err(ScanError::TooMany { limit: 2, .. })
    ));
    let none = scan("none", limits(9));
    assert!(matches!(none, Err(ScanError::Missing { .. })), "{none:?}");
    let file = scan("a.py", limits(9));
    assert!(
        matches!(file, Err(ScanError::NotAFolder { .. })),
        "{file:?}"
    );
}

#[test]
fn a_huge_file_is_listed_and_not_read() {
    let tree = Tree::new(&[("big", "123456789"), ("small", "12345678")]);
    let limits = Limits {
        max_hashed_bytes: 8,
        ..Limits::default()
    };
    let scan = |last: &Snapshot| tree.scanner(limits).scan(last, later()).unwrap();
    let first = scan(&Snapshot::default());
    let big = first.files["big"];
    assert_eq!(big.fingerprint, Fingerprint::Unread(big.stamp));
    assert!(matches!(
        first.files["small"].fingerprint,
        Fingerprint::Content(_)
    ));
    tree.write("big", "987654321");
    assert_eq!(names(&scan(&first).since(&first).changed), ["big"]);
}

#[test]
fn a_root_that_is_a_link_may_turn() {
    let mut tree = Tree::new(&[
        ("v1/a.py", "a"),
        ("v1/b.py", "b"),
        ("v2/a.py", "a"),
        ("v2/b.py", "c"),
    ]);
    let link = tempfile::tempdir().unwrap();
    let link = link.path().join("dags");
    let scanner = Scanner::new(&link, IgnoreSyntax::Glob, Limits::default());
    for (target, expected) in [("v1", &[] as &[&str]), ("v2", &["b.py"])] {
        longshore_files::replace_link(&link, &tree.path(target)).unwrap();
        let next = scanner.scan(&tree.last, later()).unwrap();
        assert_eq!(names(&next.since(&tree.last).changed), expected);
        tree.last = next;
    }
}
