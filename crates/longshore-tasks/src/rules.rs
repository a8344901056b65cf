//! What the executor does with which resources: the role that it needs is generated from this.

use longshore_api::flyte;

/// Verbs on resources of one API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API group, `""` for core.
    pub group: &'static str,
    /// Plural names, with `/` before a subresource.
    pub resources: &'static [&'static str],
    /// What is done with them.
    pub verbs: &'static [&'static str],
}

/// Everything that the executor does, and nothing else.
pub const RULES: &[Rule] = &[
    Rule {
        group: flyte::GROUP,
        resources: &["taskactions"],
        // Deleted by the collector.
        verbs: &["get", "list", "watch", "patch", "delete"],
    },
    Rule {
        group: flyte::GROUP,
        resources: &["taskactions/status"],
        verbs: &["patch"],
    },
    Rule {
        group: "",
        resources: &["pods"],
        // Patched for the finalizer of `inject-finalizer`.
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    Rule {
        group: "events.k8s.io",
        resources: &["events"],
        verbs: &["create", "patch"],
    },
];
