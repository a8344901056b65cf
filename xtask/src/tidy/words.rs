//! Words that mean "not finished" or name a developer's machine and must not be committed.

use super::Finding;
use crate::repository::Source;

/// Half words, so that this list does not find itself.
const FORBIDDEN: [(&str, &str, &str); 8] = [
    ("TO", "DO", "write an issue, or do it"),
    ("FIX", "ME", "write an issue, or fix it"),
    ("to", "do!(", "finish it"),
    ("unimpl", "emented!(", "finish it"),
    ("db", "g!(", "remove it"),
    ("/wo", "rk/", "a path of a developer's machine"),
    ("/ho", "me/", "a path of a developer's machine"),
    ("<<<<", "<<< ", "a merge that was not finished"),
];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| is_ours(source)) {
        for (at, text) in source.text.lines().enumerate() {
            for (start, end, advice) in FORBIDDEN {
                let word = format!("{start}{end}");
                if contains_word(text, &word) {
                    let what = format!("`{word}`: {advice}");
                    findings.push(Finding::new(source, at + 1, what));
                }
            }
        }
    }
    findings
}

/// Vendored data keep the words of their authors.
fn is_ours(source: &Source) -> bool {
    !source.path.split('/').any(|part| part == "testdata")
        && source.name() != "Cargo.lock"
        && ![".csv", ".snap"]
            .iter()
            .any(|end| source.path.ends_with(end))
}

/// Whether the word stands alone, and is no part of a longer one or of a host's address.
fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || before == '_' || before == '.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, sources};

    #[test]
    fn unfinished_work_and_local_paths_are_found() {
        let unfinished = format!("// {}{}: later\n", "TO", "DO");
        let local = format!("let p = \"{}{}x\";\n", "/wo", "rk/");
        let found = check(&sources(&[
            ("crates/a/src/lib.rs", &unfinished),
            ("docs/a.md", &local),
            ("crates/a/testdata/a.yaml", &unfinished),
            (
                "crates/a/src/fine.rs",
                "// a todo list at example.org/work/x\n",
            ),
        ]));
        assert_eq!(places(&found), ["crates/a/src/lib.rs:1", "docs/a.md:1"]);
    }
}
