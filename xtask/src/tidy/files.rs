//! Files are replaced in one place, which knows what a loss of power may take; quantities, percentages and selectors of
//! Kubernetes are read in one place.

use super::Finding;
use crate::repository::Source;

/// The files that may rename files: the crate for that; and a log that is cut off, where nothing is
/// replaced and nothing must survive.
const RENAMES: [&str; 3] = [
    "crates/longshore-files/",
    "crates/longshore/src/logging/bounded.rs",
    // The one for directories that are open, for the one place.
    "crates/longshore-object-store/src/beneath.rs",
];
const RENAMING: [&str; 4] = ["fs::rename(", " rename(", "renameat(", "renameat2("];
/// Where the values of Kubernetes are read.
const VALUES: &str = "crates/longshore-k8s/";
/// Texts that only code with a parser of its own for such a value contains.
const READING: [(&str, &str); 4] = [
    ("\"Ki\"", "a suffix of quantities"),
    ("strip_suffix('%')", "a percentage"),
    ("\"NotIn\" =>", "the operators of selectors"),
    ("\"DoesNotExist\" =>", "the operators of selectors"),
];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_production()) {
        if !source.path.starts_with("crates/") {
            continue;
        }
        let may_rename = RENAMES.iter().any(|it| source.path.starts_with(it));
        // A function of that name of its own hides the system's.
        let has_own = source.text.contains("fn rename(");
        let may_read = source.path.starts_with(VALUES);
        for (line, text) in source.production_lines() {
            let is_code = !text.trim_start().starts_with("//");
            let mut renaming = RENAMING
                .iter()
                .filter(|it| !has_own || !it.starts_with(' '));
            if is_code && !may_rename && renaming.any(|it| text.contains(it)) {
                let what = "a file is renamed outside of longshore-files".to_owned();
                findings.push(Finding::new(source, line, what));
            }
            let read = READING.iter().find(|(pattern, _)| text.contains(pattern));
            if let Some((_, name)) = read.filter(|_| is_code && !may_read) {
                let what = format!("{name} outside of longshore-k8s");
                findings.push(Finding::new(source, line, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, sources};

    #[test]
    fn second_ways_to_replace_files_and_to_read_values_are_found() {
        let renames = "// fs::rename(a, b)\nfs::rename(a, b)\n";
        let found = check(&sources(&[
            ("crates/longshore-dags/src/logs.rs", renames),
            ("crates/longshore-files/src/disk.rs", renames),
            ("xtask/src/kube_build.rs", renames),
            ("crates/longshore-node/src/a.rs", "\"Ki\" => 1024,\n"),
            (
                "crates/longshore-cluster/src/a.rs",
                "text.strip_suffix('%')\nmatch a {\n    \"NotIn\" => b,\n}\n",
            ),
            ("crates/longshore-k8s/src/a.rs", "\"Ki\" => 1024,\n"),
            (
                "crates/longshore-kit/src/a.rs",
                "fn rename(a: A) {\n    rename(b);\n    fs::rename(c, d);\n}\n",
            ),
        ]));
        assert_eq!(
            places(&found),
            [
                "crates/longshore-dags/src/logs.rs:2",
                "crates/longshore-node/src/a.rs:1",
                "crates/longshore-cluster/src/a.rs:1",
                "crates/longshore-cluster/src/a.rs:3",
                "crates/longshore-kit/src/a.rs:3",
            ]
        );
    }
}
