//! Labels, annotations and finalizers are constants of `longshore-api`: written anywhere else, they drift.

use super::Finding;
use crate::repository::Source;

/// Beginnings of keys that belong to a wire contract.
const KEY_PREFIXES: [&str; 7] = [
    "longshore.dev/",
    "flyte.org/",
    "flyte/",
    "kubernetes_executor",
    "airflow-worker",
    "airflow_",
    "podopslifecycle.kusionstack.io/",
];
/// Environment variables that merely begin like one of them are upper case, and none of them is in this list.
const HOME: &str = "crates/longshore-api/";

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_production()) {
        if source.path.starts_with(HOME) {
            continue;
        }
        for (line, text) in source.production_lines() {
            if text.trim_start().starts_with("//") {
                continue;
            }
            for prefix in KEY_PREFIXES {
                if text.contains(&format!("\"{prefix}")) {
                    let what =
                        format!("\"{prefix}…\" is written out; use longshore-api's constant");
                    findings.push(Finding::new(source, line, what));
                }
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
    fn a_key_outside_the_api_crate_is_found() {
        let label = "const L: &str = \"airflow-worker\";\n";
        let found = check(&sources(&[
            ("crates/longshore-api/src/airflow.rs", label),
            ("crates/longshore-dags/src/pods.rs", label),
            (
                "crates/longshore-dags/src/doc.rs",
                "// the label \"airflow-worker\"\n",
            ),
            ("crates/longshore-dags/src/pods/tests.rs", label),
            (
                "crates/longshore-dags/src/end.rs",
                "fn f() {}\n#[cfg(test)]\nmod tests {\n    const A: &str = \"longshore.dev/x\";\n}\n",
            ),
        ]));
        assert_eq!(places(&found), ["crates/longshore-dags/src/pods.rs:1"]);
    }
}
