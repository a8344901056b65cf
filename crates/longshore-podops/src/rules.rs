//! What the controllers do with which resources: the role that they need is made from this.

use longshore_api::podops;
use longshore_kit::Rule;

/// Everything that they ask of the Kubernetes API, and nothing else.
pub const RULES: &[Rule] = &[
    Rule::new("", &["pods"], &["delete", "get", "list", "patch", "watch"]),
    Rule::new("", &["pods/status"], &["patch"]),
    // A Service that is gone is waited for by nobody.
    Rule::new("", &["services"], &["get"]),
    Rule::new(
        podops::GROUP,
        &["podtransitionrules"],
        &["get", "list", "patch", "watch"],
    ),
    Rule::new(podops::GROUP, &["podtransitionrules/status"], &["patch"]),
    Rule::new("events.k8s.io", &["events"], &["create", "patch"]),
];
