//! One style where Rust has several: how a doc comment names errors, and how a file imports.
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
        .flat_map(|source| headings(source).chain(imports(source)))
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
        let found = check(&sources(&[
            ("crates/longshore-kit/src/a.rs", &heading),
            ("crates/longshore-kit/src/b.rs", twice),
            ("crates/longshore-kit/src/c.rs", once),
            ("docs/a.md", &heading),
        ]));
        let expected = [
            "crates/longshore-kit/src/a.rs:3",
            "crates/longshore-kit/src/b.rs:2",
        ];
        assert_eq!(places(&found), expected);
    }
}
