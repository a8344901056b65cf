//! Codes and pages agree, in both directions.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::{CliError, pages, render};
use crate::{
    output::{BAD, DIM},
    printable::is_direction,
};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The codes that production code mentions; the list of pages does not count.
fn codes_in_sources() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    let mut folders = vec![repository().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if !["tests", "testdata", "snapshots"].contains(&name) {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") && !["pages.rs", "tests.rs"].contains(&name) {
                let source = fs::read_to_string(&path).unwrap();
                codes.extend(quoted_codes(&source));
            }
        }
    }
    codes
}

/// `"LS1234"`, with its quotes: prose may mention a code without using it.
fn quoted_codes(source: &str) -> impl Iterator<Item = String> {
    source
        .split('"')
        .filter(|word| {
            word.len() == 6
                && word.starts_with("LS")
                && word[2..].bytes().all(|digit| digit.is_ascii_digit())
        })
        .map(str::to_owned)
}

#[test]
fn every_code_in_the_sources_has_a_page_and_every_page_a_code() {
    let pages: Vec<String> = pages::PAGES
        .iter()
        .map(|(code, _)| (*code).to_owned())
        .collect();
    let unique: BTreeSet<String> = pages.iter().cloned().collect();
    assert_eq!(unique.len(), pages.len(), "a code is listed twice");
    assert_eq!(codes_in_sources(), unique);

    let files: BTreeSet<String> = fs::read_dir(repository().join("docs/errors"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name != "README")
        .collect();
    assert_eq!(files, unique);
}

#[test]
fn every_page_has_the_same_three_parts() {
    for (code, page) in pages::PAGES {
        assert!(page.starts_with(&format!("# {code}: ")), "{code}: title");
        for part in ["\n## What happened\n", "\n## What to do\n"] {
            assert!(page.contains(part), "{code}: {part}");
        }
    }
}

#[test]
fn an_error_prints_its_causes_once_and_its_help_last() {
    let error = CliError::DataDirUnusable {
        path: "/data".into(),
        source: io::Error::other("read-only file system"),
    };
    insta::assert_snapshot!(anstream::adapter::strip_str(&render::text(&error)), @r"
    error[LS1701]: the data directory /data cannot be used
      caused by: read-only file system
    help: make it writable, choose another with --data-dir DIR, or leave nothing behind with --ephemeral
    ");
    insta::assert_json_snapshot!(render::object(&error), @r#"
    {
      "causes": [
        "read-only file system"
      ],
      "code": "LS1701",
      "exitCode": 1,
      "help": "make it writable, choose another with --data-dir DIR, or leave nothing behind with --ephemeral",
      "kind": "Error",
      "message": "the data directory /data cannot be used"
    }
    "#);
}

#[test]
fn a_misspelt_parameter_is_recognised() {
    let help = |name: &str, known: &[&str]| {
        CliError::UnknownParam {
            dag_id: "etl".to_owned(),
            name: name.to_owned(),
            known: known.iter().map(|name| (*name).to_owned()).collect(),
        }
        .help()
    };
    assert_eq!(help("titel", &["day", "title"]), "did you mean title?");
    assert_eq!(help("x", &["title", "region"]), "it has: title, region");
    assert_eq!(
        help("x", &[]),
        "the DAG has none; declare it under `params:` with a default"
    );
}

/// The commands to a terminal that a text contains, apart from the program's own colours.
fn commands(text: &str) -> String {
    let own = format!("{BAD}{BAD:#}{DIM}{DIM:#}");
    let own: Vec<&str> = own.split_inclusive('m').collect();
    let mut rest = text.to_owned();
    for color in own {
        rest = rest.replace(color, "");
    }
    let is_command = |c: &char| *c != '\n' && (c.is_control() || is_direction(*c));
    rest.chars().filter(is_command).collect()
}

#[test]
fn what_an_error_quotes_is_no_command_to_the_terminal_that_shows_it() {
    let escapes = "p\u{1b}[31mZZ\u{1b}]52;c;aGk=\u{7}\u{202e}\r";
    let quoting = [
        CliError::DataDirUnusable {
            path: escapes.into(),
            source: io::Error::other(escapes),
        },
        CliError::Usage {
            message: escapes.to_owned(),
            help: format!("first\nthen {escapes}"),
        },
    ];
    for error in quoting {
        let text = render::text(&error);
        assert_eq!(commands(&text), "", "{text:?}");
        assert!(text.contains("pZZ"), "{text:?}");
    }
    let line = render::headline("LS1201", &format!("task a failed: {escapes}\nand more"));
    assert_eq!(commands(&line), "", "{line:?}");
    assert!(line.ends_with("task a failed: pZZ\nand more"), "{line:?}");
}
