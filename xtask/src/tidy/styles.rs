//! One style where Rust has several: how a doc comment names errors, and how a file imports. One type for the name `Seen`,
//! which all controllers use.
//!
//! Clippy holds the third choice, `mod.rs` for a module with files of its own (`self_named_module_files`).

use std::collections::BTreeMap;

use super::Finding;
use crate::repository::Source;

/// In two parts, so that this rule does not find itself.
const OTHER_HEADING: &str = concat!("*Err", "ors*");

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let sources = sources.iter().filter(|source| source.path.ends_with(".rs"));
    sources
        .flat_map(|source| {
            let styles = headings(source).chain(imports(source));
            styles.chain(other_seen(source))
        })
        .collect()
}

fn headings(source: &Source) -> impl Iterator<Item = Finding> {
    let lines = (1..).zip(source.text.lines());
    let other = lines.filter(|(_, line)| line.contains(OTHER_HEADING));
    other.map(|(line, _)| {
        let what = "a doc comment names errors below the heading `# Errors`";
        Finding::new(source, line, what)
    })
}

/// All that a file imports from one crate stands in one `use`. Imports with an attribute of their own, and of the modules
/// in the file, are left alone.
fn imports(source: &Source) -> impl Iterator<Item = Finding> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut findings = Vec::new();
    let mut before = "";
    for (line, text) in (1..).zip(source.text.lines()) {
        if let Some(path) = text.strip_prefix("use ")
            && !before.starts_with("#[")
        {
            let root = path.split([':', ';', ' ']).next().unwrap_or(path);
            if let Some(first) = first.get(root) {
                let what = format!(
                    "`use {root}` stands in line {first} already: one `use` for each crate"
                );
                findings.push(Finding::new(source, line, what));
            } else {
                first.insert(root, line);
            }
        }
        before = text;
    }
    findings.into_iter()
}

/// The name of what a controller has read stands for nothing else.
fn other_seen(source: &Source) -> impl Iterator<Item = Finding> {
    let is_core = source.path.starts_with("crates/longshore-core/");
    let lines = (1..).zip(source.text.lines());
    let others = lines.filter(move |(_, line)| !is_core && declares_seen(line));
    others.map(|(line, _)| {
        let what = "`Seen` is the type of longshore-core: this one needs another name";
        Finding::new(source, line, what)
    })
}

fn declares_seen(line: &str) -> bool {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut words = words.filter(|word| !word.is_empty());
    words.any(|word| ["struct", "enum", "type"].contains(&word)) && words.next() == Some("Seen")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, sources};

    #[test]
    fn the_other_style_is_found() {
        let heading =
            format!("/// Reads.\n///\n/// {OTHER_HEADING}: where it cannot.\nfn read() {{}}\n");
        let twice = "use std::fmt;\nuse std::io;\n\nuse crate::a;\n";
        let once =
            "use std::{fmt, io};\n#[cfg(test)]\nuse std::fs;\n\nmod tests {\n    use std::fs;\n}\n";
        // In two parts, so that the rule does not find this test.
        let seen = format!(
            "struct SeenOnce;\nfn of(seen: Seen<Pod>) {{}}\nstruct {}<T>(T);\n",
            "Seen"
        );
        let found = check(&sources(&[
            ("crates/longshore-kit/src/a.rs", &heading),
            ("crates/longshore-kit/src/b.rs", twice),
            ("crates/longshore-kit/src/c.rs", once),
            ("docs/a.md", &heading),
            ("crates/longshore-kit/src/d.rs", &seen),
            ("crates/longshore-core/src/seen.rs", &seen),
        ]));
        let expected = [
            "crates/longshore-kit/src/a.rs:3",
            "crates/longshore-kit/src/b.rs:2",
            "crates/longshore-kit/src/d.rs:3",
        ];
        assert_eq!(places(&found), expected);
    }
}
