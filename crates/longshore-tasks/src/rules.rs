//! What the executor does with which resources: the role that it needs is made from this.

use longshore_api::flyte;
use longshore_kit::Rule;

/// Everything that it asks of the Kubernetes API, and nothing else.
pub const RULES: &[Rule] = &[
    // Deleted by the collector.
    Rule::new(
        flyte::GROUP,
        &["taskactions"],
        &["delete", "get", "list", "patch", "watch"],
    ),
    Rule::new(flyte::GROUP, &["taskactions/status"], &["patch"]),
    // Patched for the finalizer of `inject-finalizer`.
    Rule::new(
        "",
        &["pods"],
        &["create", "delete", "get", "list", "patch", "watch"],
    ),
    // Those about pods are told as reasons.
    Rule::new(
        "events.k8s.io",
        &["events"],
        &["create", "list", "patch", "watch"],
    ),
];
