use std::{collections::BTreeMap, fs};

use jiff::Timestamp;
use serde::Deserialize;

use super::*;
use crate::{Limits, Problem, Scanner, Snapshot};

/// What Airflow made of a tree.
#[derive(Deserialize)]
struct Case {
    name: String,
    syntax: String,
    files: Vec<String>,
    ignore: BTreeMap<String, String>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Expect {
    Listed(Vec<String>),
    Refused { error: String },
}

fn listed(case: &Case) -> Snapshot {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for file in &case.files {
        write(file, "");
    }
    for (folder, text) in &case.ignore {
        write(
            format!("{folder}/{IGNORE_FILE}").trim_start_matches('/'),
            text,
        );
    }
    let syntax = case.syntax.parse().unwrap();
    let scanner = Scanner::new(folder.path(), syntax, Limits::default());
    scanner
        .scan(&Snapshot::default(), Timestamp::UNIX_EPOCH)
        .unwrap()
}

/// Where we leave out a line that Airflow obeys.
const DIFFERENT: [&str; 1] = ["regexp: negative look"];

#[test]
fn trees_are_listed_as_airflow_lists_them() {
    let text = include_str!("../../testdata/airflowignore.json");
    let cases: Vec<Case> = serde_json::from_str(text).unwrap();
    assert_eq!(cases.len(), 420);
    let mut n_refused = 0;
    for case in &cases {
        let found = listed(case);
        let names: Vec<_> = found.files.keys().cloned().collect();
        let is_reported = !found.problems.is_empty();
        match &case.expect {
            Expect::Listed(expected) if DIFFERENT.contains(&case.name.as_str()) => {
                assert_ne!(&names, expected, "{}: not different any more", case.name);
                assert!(is_reported, "{}", case.name);
            }
            Expect::Listed(expected) => {
                assert_eq!(&names, expected, "{}: {:?}", case.name, case.ignore);
            }
            Expect::Refused { error } => {
                n_refused += 1;
                assert!(is_reported, "{} ({error})", case.name);
            }
        }
    }
    assert_eq!(n_refused, 4);
}

#[test]
fn a_line_that_is_no_rule_is_named_and_the_others_hold() {
    for (syntax, text, line, why) in [
        (
            IgnoreSyntax::Glob,
            "a\n\\\nb\n",
            2,
            "expected a character behind the `\\`",
        ),
        (
            IgnoreSyntax::Glob,
            "a\nb\n!",
            3,
            "expected a pattern behind the `!`",
        ),
        (
            IgnoreSyntax::Glob,
            "[z-a]\na\nb\n",
            1,
            "expected a range from low to high, found `z-a`",
        ),
        (IgnoreSyntax::Regexp, "a\n(\nb\n", 2, "unclosed group"),
        (
            IgnoreSyntax::Regexp,
            "a\n(?=x)\nb\n",
            2,
            "look-around, including look-ahead and look-behind, is not supported",
        ),
    ] {
        let (rules, invalid) = Rules::none(syntax).with("", text);
        assert_eq!(invalid.len(), 1, "{text}");
        assert_eq!((invalid[0].line, invalid[0].why.as_str()), (line, why));
        for (path, is_ignored) in [("a", true), ("b", true), ("c", false)] {
            assert_eq!(
                rules.ignores(path, Entry::File),
                is_ignored,
                "{text} {path}"
            );
        }
        let problem = Problem::Ignore(invalid).to_string();
        assert!(problem.contains(why), "{problem}");
    }
}

#[test]
fn a_huge_expression_is_left_out() {
    let (rules, invalid) = Rules::none(IgnoreSyntax::Regexp).with("", "(a{1000}){1000}\n");
    assert!(!rules.ignores("a", Entry::File));
    assert_eq!(invalid.len(), 1);
}

#[test]
fn only_two_syntaxes_exist() {
    for (text, expected) in [
        ("", Some(IgnoreSyntax::Glob)),
        ("glob", Some(IgnoreSyntax::Glob)),
        ("regexp", Some(IgnoreSyntax::Regexp)),
        ("regex", None),
    ] {
        assert_eq!(text.parse().ok(), expected, "{text}");
    }
}
