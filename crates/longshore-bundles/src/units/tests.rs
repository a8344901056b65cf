use std::fs;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{
    ignore::IgnoreSyntax,
    local::{LocalFolder, Pace},
    scan::{Limits, Scanner},
};

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

fn reads(paths: &[&str]) -> Reads {
    Reads::of(paths.iter().map(|path| (*path).to_owned()).collect())
}

fn changed(paths: &[&str]) -> Diff {
    Diff {
        changed: set(paths),
        ..Diff::default()
    }
}

fn added(paths: &[&str]) -> Diff {
    Diff {
        added: set(paths),
        ..Diff::default()
    }
}

fn removed(paths: &[&str]) -> Diff {
    Diff {
        removed: set(paths),
        ..Diff::default()
    }
}

#[test]
fn a_unit_is_parsed_again_for_what_it_has_read_and_for_nothing_else() {
    let known = reads(&[
        "u.py",
        "team/helper.py",
        "missing.txt",
        "z.zip/m.py",
        "conf/",
    ]);
    let listed_root = reads(&["u.py", ""]);
    for (diff, of_known, of_root, of_unknown) in [
        (Diff::default(), false, false, false),
        (changed(&["team/helper.py"]), true, false, true),
        (removed(&["team/helper.py"]), true, true, true),
        (changed(&["team/unused.py"]), false, false, true),
        (added(&["missing.txt"]), true, true, true),
        (changed(&["z.zip"]), true, false, true),
        (changed(&["z.zi"]), false, false, true),
        (added(&["conf/b.yaml"]), true, true, true),
        (removed(&["conf/new/b.yaml"]), true, true, true),
        (added(&["config/b.yaml"]), false, true, true),
        // Its name is known from the list, what it says was not read.
        (changed(&["conf/a.yaml"]), false, false, true),
    ] {
        let found = [&known, &listed_root, &Reads::Unknown].map(|it| it.has_any(&diff));
        assert_eq!(found, [of_known, of_root, of_unknown], "{diff:?}");
    }
}

#[test]
fn changed_units_come_before_those_that_read_them() {
    let before = set(&["a.py", "b.py", "c.py", "gone.py", "new_helper.py"]);
    let now = set(&["a.py", "b.py", "c.py", "new.py"]);
    let diff = Diff {
        added: set(&["new.py"]),
        changed: set(&["b.py", "new_helper.py"]),
        removed: set(&["gone.py"]),
        ..Diff::default()
    };
    let reads = BTreeMap::from([
        ("a.py".to_owned(), reads(&["a.py", "new_helper.py"])),
        ("b.py".to_owned(), reads(&["b.py", "new_helper.py"])),
        ("c.py".to_owned(), reads(&["c.py"])),
    ]);
    let expected = Affected {
        changed: vec!["b.py".to_owned(), "new.py".to_owned()],
        dependants: vec!["a.py".to_owned()],
        gone: vec!["gone.py".to_owned(), "new_helper.py".to_owned()],
    };
    assert_eq!(affected(&before, &now, &diff, &reads), expected);
    // One that was never parsed to its end.
    let unknown = affected(&now, &now, &changed(&["x.md"]), &BTreeMap::new());
    assert_eq!(unknown.dependants.len(), 4);
}

#[test]
fn units_are_found_by_their_words_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &[u8]| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("dag.py", b"from AirFlow import DAG");
    write("asset.py", b"from airflow.sdk import Asset");
    write("helper.py", b"# no words: dag");
    write("airflow_only.py", b"import airflow");
    write("notes.md", b"airflow dag");
    write("bytes.py", b"\xff airflow \xfe dag");
    let empty_zip = [b"PK\x05\x06".as_slice(), &[0; 18]].concat();
    write("pack.zip", &empty_zip);
    write("egg", &empty_zip);
    let scanner = Scanner::new(folder.path(), IgnoreSyntax::Glob, Limits::default());
    let mut local = LocalFolder::new(scanner.clone(), Pace::default());
    let mut units = Units::new(Discovery::SafeMode);
    let first = units.take(&local.look(Timestamp::MAX).unwrap(), &BTreeMap::new());
    let expected = ["asset.py", "bytes.py", "dag.py", "egg", "pack.zip"];
    assert_eq!(first.changed, expected);
    assert!(units.paths().iter().eq(expected));

    let reads = expected.map(|path| (path.to_owned(), reads(&[path])));
    let reads = BTreeMap::from(reads);
    write("helper.py", b"airflow dag");
    write("dag.py", b"nothing");
    write("notes.md", b"other");
    fs::remove_file(folder.path().join("egg")).unwrap();
    let second = units.take(&local.look(Timestamp::MAX).unwrap(), &reads);
    let expected = Affected {
        changed: vec!["helper.py".to_owned()],
        dependants: Vec::new(),
        gone: vec!["dag.py".to_owned(), "egg".to_owned()],
    };
    assert_eq!(second, expected);
    let third = units.take(&local.look(Timestamp::MAX).unwrap(), &reads);
    assert!(third.is_empty(), "{third:?}");

    let mut all = Units::new(Discovery::Everything);
    let mut local = LocalFolder::new(scanner, Pace::default());
    all.take(&local.look(Timestamp::MAX).unwrap(), &BTreeMap::new());
    let modules = [
        "airflow_only.py",
        "asset.py",
        "bytes.py",
        "dag.py",
        "helper.py",
        "pack.zip",
    ];
    assert!(all.paths().iter().eq(modules), "{:?}", all.paths());
}

fn any_paths() -> impl Strategy<Value = BTreeSet<String>> {
    prop::collection::btree_set("[ab]/[a-c]|[a-c]", 0..5)
}

fn any_reads() -> impl Strategy<Value = Reads> {
    prop_oneof![
        Just(Reads::Unknown),
        prop::collection::vec("[ab]/[a-c]|[a-c]|[ab]/|", 0..4).prop_map(Reads::of),
    ]
}

proptest! {
    /// No path is in two lists, every changed unit is parsed, and one whose reads are untouched is not.
    #[test]
    fn the_lists_are_disjoint_and_complete(
        before in any_paths(), now in any_paths(), changed in any_paths(), reads in any_reads(),
    ) {
        let diff = Diff { changed, ..Diff::default() };
        let of_all = now.iter().map(|unit| (unit.clone(), reads.clone())).collect();
        let found = affected(&before, &now, &diff, &of_all);
        let mut all: Vec<_> = [&found.changed, &found.dependants, &found.gone].into_iter().flatten().collect();
        let n = all.len();
        all.sort();
        all.dedup();
        prop_assert_eq!(all.len(), n);
        for unit in &now {
            let is_new = !before.contains(unit) || diff.changed.contains(unit);
            prop_assert_eq!(found.changed.contains(unit), is_new);
            let is_dependant = !is_new && reads.has_any(&diff);
            prop_assert_eq!(found.dependants.contains(unit), is_dependant);
        }
        prop_assert!(found.gone.iter().all(|unit| !now.contains(unit)));
    }
}
