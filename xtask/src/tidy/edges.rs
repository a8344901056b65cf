//! Which crate may depend on which: arrows go down only, subsystems meet in objects and never in code.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Finding;
use crate::repository;

/// A dependency of one of our crates: on another one of ours, or on a crate of the registry.
#[derive(Debug)]
pub(super) struct Edge {
    from: String,
    to: String,
    is_dev: bool,
}

/// What each crate may use of ours, in production. A crate that is not listed may not exist yet: add its row with it.
const ALLOWED: [(&str, &[&str]); 29] = [
    ("longshore-api", &[]),
    ("longshore-files", &[]),
    ("longshore-k8s", &[]),
    ("longshore-bundles", &["longshore-files", "longshore-k8s"]),
    ("longshore-proto", &[]),
    (
        "longshore-python",
        &["longshore-airflow", "longshore-core", "longshore-k8s"],
    ),
    ("longshore-core", &["longshore-k8s"]),
    ("longshore-flink-core", &["longshore-api", "longshore-k8s"]),
    (
        "longshore-airflow",
        &["longshore-api", "longshore-core", "longshore-k8s"],
    ),
    (
        "longshore-plugins",
        &[
            "longshore-api",
            "longshore-proto",
            "longshore-k8s",
            "longshore-core",
        ],
    ),
    (
        "longshore-kit",
        &["longshore-api", "longshore-core", "longshore-k8s"],
    ),
    (
        "longshore-airflow-api",
        &["longshore-airflow", "longshore-core", "longshore-kit"],
    ),
    ("longshore-store", &["longshore-core"]),
    (
        "longshore-dags",
        &[
            "longshore-airflow",
            "longshore-airflow-api",
            "longshore-api",
            "longshore-bundles",
            "longshore-core",
            "longshore-files",
            "longshore-k8s",
            "longshore-kit",
            "longshore-plugins",
            "longshore-python",
            "longshore-store",
        ],
    ),
    (
        "longshore-tasks",
        &[
            "longshore-api",
            "longshore-connect",
            "longshore-proto",
            "longshore-core",
            "longshore-files",
            "longshore-k8s",
            "longshore-kit",
            "longshore-object-store",
            "longshore-outbound",
            "longshore-plugins",
            "longshore-webhook",
        ],
    ),
    ("longshore-webhook", &["longshore-core", "longshore-kit"]),
    (
        "longshore-flink",
        &[
            "longshore-api",
            "longshore-core",
            "longshore-flink-core",
            "longshore-k8s",
            "longshore-kit",
            "longshore-outbound",
            "longshore-webhook",
        ],
    ),
    (
        "longshore-podops",
        &[
            "longshore-api",
            "longshore-core",
            "longshore-k8s",
            "longshore-kit",
            "longshore-outbound",
            "longshore-webhook",
        ],
    ),
    (
        "longshore-podops-client",
        &[
            "longshore-api",
            "longshore-core",
            "longshore-k8s",
            "longshore-kit",
        ],
    ),
    ("longshore-cluster", &["longshore-files", "longshore-k8s"]),
    (
        "longshore-node",
        &[
            "longshore-api",
            "longshore-core",
            "longshore-files",
            "longshore-k8s",
            "longshore-kit",
        ],
    ),
    ("longshore-client", &["longshore-outbound"]),
    ("longshore-outbound", &[]),
    (
        "longshore-connect",
        &["longshore-core", "longshore-outbound"],
    ),
    (
        "longshore-object-store",
        &["longshore-core", "longshore-files", "longshore-outbound"],
    ),
    (
        "longshore-console",
        &[
            "longshore-api",
            "longshore-core",
            "longshore-files",
            "longshore-k8s",
            "longshore-kit",
        ],
    ),
    ("longshore-test", ANY),
    ("longshore-bench", ANY),
    ("longshore", ANY_BUT_DEV),
];
const ANY: &[&str] = &["*"];
const ANY_BUT_DEV: &[&str] = &["* but the development-only ones"];
/// Development only: nothing that ships may use them.
const DEVELOPMENT: [&str; 2] = ["longshore-test", "longshore-bench"];
/// Crates of others that the pure crates must not use.
const IMPURE: [&str; 6] = ["kube", "tokio", "reqwest", "sqlx", "tracing", "axum"];
const PURE: [&str; 6] = [
    "longshore-airflow",
    "longshore-api",
    "longshore-core",
    "longshore-flink-core",
    "longshore-k8s",
    "longshore-plugins",
];

pub(super) fn check(edges: &[Edge]) -> Vec<Finding> {
    edges
        .iter()
        .filter_map(|edge| {
            let what = forbidden(edge)?;
            Some(Finding {
                path: format!("crates/{}/Cargo.toml", edge.from),
                line: 1,
                what,
            })
        })
        .collect()
}

fn forbidden(edge: &Edge) -> Option<String> {
    let Edge { from, to, is_dev } = edge;
    if *is_dev || !from.starts_with("longshore") {
        return None;
    }
    if PURE.contains(&from.as_str()) && IMPURE.contains(&to.as_str()) {
        return Some(format!("{from} is pure and must not use {to}"));
    }
    if !to.starts_with("longshore") {
        return None;
    }
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == from) else {
        return Some(format!(
            "{from} has no row in the dependency rules (xtask/src/tidy/edges.rs)"
        ));
    };
    let is_allowed = *allowed == ANY
        || *allowed == ANY_BUT_DEV && !DEVELOPMENT.contains(&to.as_str())
        || allowed.contains(&to.as_str());
    (!is_allowed).then(|| format!("{from} must not depend on {to}"))
}

/// The dependencies of all crates of the workspace.
pub(super) fn of_workspace() -> Result<Vec<Edge>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(repository::root())
        .output()
        .context("cargo metadata cannot be run")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let mut edges = Vec::new();
    for package in list(&metadata["packages"]) {
        for dependency in list(&package["dependencies"]) {
            edges.push(Edge {
                from: text(&package["name"]),
                to: text(&dependency["name"]),
                is_dev: dependency["kind"] == "dev",
            });
        }
    }
    Ok(edges)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_go_down_only() {
        for (from, to, is_dev, is_fine) in [
            ("longshore-dags", "longshore-store", false, true),
            ("longshore-dags", "longshore-tasks", false, false),
            ("longshore-dags", "longshore-tasks", true, true),
            ("longshore-core", "tokio", false, false),
            ("longshore-core", "serde", false, true),
            ("longshore-kit", "longshore-cluster", false, false),
            ("longshore-cluster", "longshore-core", false, false),
            ("longshore-cluster", "longshore-k8s", false, true),
            ("longshore-k8s", "longshore-api", false, false),
            ("longshore-k8s", "kube", false, false),
            ("longshore-flink-core", "tokio", false, false),
            ("longshore-flink-core", "longshore-kit", false, false),
            ("longshore-files", "longshore-core", false, false),
            ("longshore-new", "longshore-core", false, false),
            ("longshore", "longshore-node", false, true),
            ("longshore", "longshore-test", false, false),
            ("longshore-test", "longshore-cluster", false, true),
            ("xtask", "longshore", false, true),
        ] {
            let edge = Edge {
                from: from.to_owned(),
                to: to.to_owned(),
                is_dev,
            };
            assert_eq!(forbidden(&edge).is_none(), is_fine, "{edge:?}");
        }
    }
}
