//! Examples in documentation are tested; where there are none, rustdoc is not started for them in each test run.

use std::collections::BTreeSet;

use super::Finding;
use crate::repository::Source;

const WITHOUT_TESTS: &str = "doctest = false";
/// What follows the fence of a block that rustdoc compiles.
const COMPILED: [&str; 6] = [
    "",
    "rust",
    "no_run",
    "should_panic",
    "compile_fail",
    "ignore",
];

/// A library says `doctest = false` exactly where it has no example.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let with_examples: BTreeSet<&str> = sources
        .iter()
        .filter(|source| source.path.contains("/src/") && has_example(&source.text))
        .filter_map(Source::crate_name)
        .collect();
    let libraries: BTreeSet<&str> = sources
        .iter()
        .filter(|source| source.path.ends_with("/src/lib.rs"))
        .filter_map(Source::crate_name)
        .collect();
    let mut findings = Vec::new();
    for manifest in sources
        .iter()
        .filter(|source| source.name() == "Cargo.toml")
    {
        let Some(name) = manifest
            .crate_name()
            .filter(|name| libraries.contains(name))
        else {
            continue;
        };
        let line = manifest.text.lines().position(|line| line == WITHOUT_TESTS);
        let what = match (line, with_examples.contains(name)) {
            (Some(_), true) => {
                "the examples of this library are not tested: remove `doctest = false`"
            }
            (None, false) => "rustdoc looks for examples in vain: add `doctest = false` to `[lib]`",
            (Some(_), false) | (None, true) => continue,
        };
        findings.push(Finding::new(
            manifest,
            line.map_or(1, |line| line + 1),
            what,
        ));
    }
    findings
}

fn has_example(text: &str) -> bool {
    let mut is_open = false;
    for line in text.lines() {
        let line = line.trim_start();
        let doc = line
            .strip_prefix("//!")
            .or_else(|| line.strip_prefix("///"));
        let Some(fence) = doc.and_then(|doc| doc.trim().strip_prefix("```")) else {
            continue;
        };
        if !is_open && COMPILED.contains(&fence) {
            return true;
        }
        is_open = !is_open;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, sources};

    #[test]
    fn examples_are_tested_and_rustdoc_runs_for_nothing_else() {
        let off = "[lib]\ndoctest = false\n";
        let found = check(&sources(&[
            ("crates/tested/Cargo.toml", ""),
            ("crates/tested/src/lib.rs", "//! ```\n//! f();\n//! ```\n"),
            ("crates/silent/Cargo.toml", off),
            ("crates/silent/src/lib.rs", "mod a;\n"),
            (
                "crates/silent/src/a.rs",
                "/// ```no_run\n/// f();\n/// ```\n",
            ),
            ("crates/none/Cargo.toml", off),
            ("crates/none/src/lib.rs", "//! ```yaml\n//! a: b\n//! ```\n"),
            ("crates/vain/Cargo.toml", ""),
            ("crates/vain/src/lib.rs", ""),
            ("crates/program/Cargo.toml", ""),
            ("crates/program/src/main.rs", ""),
        ]));
        assert_eq!(
            places(&found),
            ["crates/silent/Cargo.toml:2", "crates/vain/Cargo.toml:1"]
        );
    }
}
