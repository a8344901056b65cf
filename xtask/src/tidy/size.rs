//! Files that a newcomer can read in one sitting.

use super::Finding;
use crate::repository::Source;

/// Production lines that a file should not exceed.
const GUIDE: usize = 400;
/// Production lines that a file must not exceed.
const LIMIT: usize = 600;
/// A crate's `lib.rs` reads like a table of contents.
const LIB_LIMIT: usize = 100;

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    rust(sources)
        .filter_map(|(source, n_lines)| {
            let is_lib = source.path.ends_with("/src/lib.rs");
            let limit = if is_lib { LIB_LIMIT } else { LIMIT };
            let what = format!("{n_lines} production lines, at most {limit} are allowed here");
            (n_lines > limit).then(|| Finding::new(source, limit + 1, what))
        })
        .collect()
}

/// Files that are still allowed but too long to be pleasant.
pub(super) fn notes(sources: &[Source]) -> Vec<String> {
    rust(sources)
        .filter(|(_, n_lines)| (GUIDE + 1..=LIMIT).contains(n_lines))
        .map(|(source, n_lines)| format!("{}: {n_lines} production lines", source.path))
        .collect()
}

fn rust(sources: &[Source]) -> impl Iterator<Item = (&Source, usize)> {
    sources
        .iter()
        .filter(|source| source.path.ends_with(".rs"))
        .map(|source| (source, source.production_lines().count()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, sources};

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let lines = |n: usize| "// x\n".repeat(n);
        let tested = lines(300) + "#[cfg(test)]\nmod tests {\n" + &lines(900) + "}\n";
        let all = sources(&[
            ("crates/a/src/lib.rs", &lines(101)),
            ("crates/a/src/long.rs", &lines(601)),
            ("crates/a/src/guide.rs", &lines(401)),
            ("crates/a/src/tested.rs", &tested),
        ]);
        let found = check(&all);
        assert_eq!(
            places(&found),
            ["crates/a/src/lib.rs:101", "crates/a/src/long.rs:601"]
        );
        assert_eq!(notes(&all), ["crates/a/src/guide.rs: 401 production lines"]);
    }
}
