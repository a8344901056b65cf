//! Decisions are pure: no `async`, no clock, no client in the files and crates whose names promise it.

use super::Finding;
use crate::repository::Source;

/// Files that are pure in every subsystem, and folders of the same name.
const PURE: [&str; 5] = ["model", "decide", "build", "status", "admit"];
/// Crates that are pure throughout.
const PURE_CRATES: [&str; 6] = [
    "longshore-airflow",
    "longshore-api",
    "longshore-core",
    "longshore-flink-core",
    "longshore-k8s",
    "longshore-plugins",
];
/// Subsystems whose files keep that shape.
const CONTROLLERS: [&str; 6] = [
    "longshore-tasks",
    "longshore-dags",
    "longshore-flink",
    "longshore-podops",
    "longshore-podops-client",
    "longshore-store",
];
/// What a pure file cannot contain, and what to call it.
const IMPURE: [(&str, &str); 9] = [
    ("async fn", "async"),
    ("async move", "async"),
    ("async {", "async"),
    (".await", "async"),
    ("tokio::", "tokio"),
    ("kube::", "a client"),
    ("::now()", "a clock"),
    ("std::collections::HashMap", "a map without order"),
    ("std::collections::HashSet", "a set without order"),
];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources
        .iter()
        .filter(|source| source.is_production() && is_pure(source))
    {
        for (line, text) in source.production_lines() {
            if text.trim_start().starts_with("//") {
                continue;
            }
            for (pattern, name) in IMPURE {
                if text.contains(pattern) {
                    let what = format!("{name} (`{pattern}`) in a pure file");
                    findings.push(Finding::new(source, line, what));
                }
            }
        }
    }
    findings
}

fn is_pure(source: &Source) -> bool {
    let crate_name = source.crate_name().unwrap_or_default();
    let is_named_so = source
        .path
        .split('/')
        .any(|part| PURE.contains(&part.strip_suffix(".rs").unwrap_or(part)));
    PURE_CRATES.contains(&crate_name) || (CONTROLLERS.contains(&crate_name) && is_named_so)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, sources};

    #[test]
    fn impure_lines_in_pure_files_are_found() {
        let impure = "//! Never async fn.\nasync fn f() {}\n";
        let found = check(&sources(&[
            ("crates/longshore-dags/src/scheduler/decide.rs", impure),
            (
                "crates/longshore-dags/src/decide/slots.rs",
                "fn f() { Timestamp::now(); }\n",
            ),
            ("crates/longshore-dags/src/observe.rs", impure),
            ("crates/longshore-core/src/seen.rs", "use tokio::sync;\n"),
            ("crates/longshore-cluster/src/model.rs", impure),
        ]));
        assert_eq!(
            places(&found),
            [
                "crates/longshore-dags/src/scheduler/decide.rs:2",
                "crates/longshore-dags/src/decide/slots.rs:1",
                "crates/longshore-core/src/seen.rs:1",
            ]
        );
    }
}
