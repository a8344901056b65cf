//! Where the embedded server differs, and why: one table, which the documentation shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{compare::Found, scenario::folder};

/// An explained difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    subject: String,
    kubernetes: String,
    here: String,
    why: String,
    /// Where it shows: names of requests, and JSON pointers into their answers.
    at: BTreeMap<String, Vec<String>>,
}

/// Every explained difference, from `differences.json`.
fn all() -> Vec<Difference> {
    let path = folder().join("differences.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

const BEGIN: &str = "<!-- differential test: begin -->\n";
const END: &str = "<!-- differential test: end -->\n";

/// What is wrong: differences that nothing explains, explanations of nothing.
pub(super) fn judge(found: &[Found]) -> Vec<String> {
    let table = all();
    let places: BTreeSet<(&str, &str)> = table
        .iter()
        .flat_map(|entry| &entry.at)
        .flat_map(|(id, pointers)| pointers.iter().map(|it| (id.as_str(), it.as_str())))
        .collect();
    let explains = |(id, pointer): &(&str, &str), found: &Found| {
        found.id == *id && (pointer.is_empty() || found.pointer == *pointer)
    };
    let unexplained = found
        .iter()
        .filter(|found| !places.iter().any(|place| explains(place, found)))
        .map(ToString::to_string);
    let idle = places
        .iter()
        .filter(|place| !found.iter().any(|found| explains(place, found)))
        .map(|(id, pointer)| format!("{id} {pointer}\n  explained, but does not differ"));
    unexplained.chain(idle).collect()
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md")
}

/// The table in Markdown.
fn table() -> String {
    let mut text = "| | Kubernetes | here | why |\n|---|---|---|---|\n".to_owned();
    for Difference {
        subject,
        kubernetes,
        here,
        why,
        ..
    } in all()
    {
        text += &format!("| {subject} | {kubernetes} | {here} | {why} |\n");
    }
    text
}

/// The document before, in and after the table.
fn parts(text: &str) -> (&str, &str, &str) {
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    (before, table, after)
}

/// Writes the table into the documentation.
pub(super) fn write_document() {
    let text = fs::read_to_string(document()).unwrap();
    let (before, _, after) = parts(&text);
    let written = format!("{before}{BEGIN}{}{END}{after}", table());
    fs::write(document(), written).unwrap();
}

/// Fails when the documentation shows another table.
pub(super) fn check_document() {
    let text = fs::read_to_string(document()).unwrap();
    let (_, found, _) = parts(&text);
    assert_eq!(
        found,
        table(),
        "docs/compatibility.md: LONGSHORE_RECORD=1 writes the table"
    );
}
