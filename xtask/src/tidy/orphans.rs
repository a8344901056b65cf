//! A Rust file that no module declares is never compiled, and no other check reports it.

use std::collections::BTreeSet;

use super::Finding;
use crate::repository::Source;

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let paths: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    sources
        .iter()
        .filter(|source| is_module(&source.path))
        .filter(|source| !is_declared(source, sources, &paths))
        .map(|source| Finding::new(source, 1, "no module declares this file"))
        .collect()
}

/// Whether the file must be declared by another one: targets of Cargo are not.
fn is_module(path: &str) -> bool {
    let Some((_, inside)) = path
        .strip_prefix("crates/")
        .or_else(|| path.strip_prefix("xtask").and(Some(path)))
        .and_then(|rest| rest.split_once('/'))
    else {
        return false;
    };
    let is_target = ["src/main.rs", "src/lib.rs", "build.rs"].contains(&inside)
        || inside.ends_with("/main.rs") && !inside.starts_with("src/")
        || ["src/bin/", "benches/", "examples/"]
            .iter()
            .any(|folder| inside.starts_with(folder));
    path.ends_with(".rs") && !is_target && !inside.contains("testdata/")
}

fn is_declared(source: &Source, sources: &[Source], paths: &BTreeSet<&str>) -> bool {
    let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    // `a/b.rs` and `a/b/mod.rs` are both declared as `mod b;` by the module of `a`.
    let (parent, module) = if stem == "mod" {
        folder.rsplit_once('/').unwrap_or(("", folder))
    } else {
        (folder, stem)
    };
    ["mod.rs", "lib.rs", "main.rs"]
        .map(|root| format!("{parent}/{root}"))
        .into_iter()
        .chain([format!("{parent}.rs")])
        .filter(|path| paths.contains(path.as_str()) && *path != source.path)
        .any(|path| {
            sources
                .iter()
                .filter(|candidate| candidate.path == path)
                .any(|candidate| declares(&candidate.text, module))
        })
}

fn declares(text: &str, module: &str) -> bool {
    let declaration = format!("mod {module};");
    text.lines().any(|line| {
        let line = line.trim();
        line == declaration
            || line
                .strip_suffix(&declaration)
                .is_some_and(|before| before.starts_with("pub"))
            || line.contains(&format!("/{module}.rs\"]"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, sources};

    #[test]
    fn a_file_without_a_declaration_is_found() {
        let found = check(&sources(&[
            (
                "crates/a/src/lib.rs",
                "mod used;\npub mod folder;\npub(crate) mod both;\n",
            ),
            ("crates/a/src/used.rs", ""),
            ("crates/a/src/unused.rs", ""),
            ("crates/a/src/folder/mod.rs", "mod inside;"),
            ("crates/a/src/folder/inside.rs", ""),
            ("crates/a/src/folder/lost.rs", ""),
            ("crates/a/src/both.rs", "#[cfg(test)]\nmod tests;"),
            ("crates/a/src/both/tests.rs", ""),
            ("crates/a/src/bin/tool.rs", ""),
            ("crates/a/tests/it/main.rs", "mod case;"),
            ("crates/a/tests/it/case.rs", ""),
            ("crates/a/tests/it/lost.rs", ""),
            ("xtask/src/main.rs", "mod chore;"),
            ("xtask/src/chore.rs", ""),
            ("xtask/src/lost.rs", ""),
        ]));
        assert_eq!(
            places(&found),
            [
                "crates/a/src/unused.rs:1",
                "crates/a/src/folder/lost.rs:1",
                "crates/a/tests/it/lost.rs:1",
                "xtask/src/lost.rs:1",
            ]
        );
    }
}
