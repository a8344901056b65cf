//! What the scheduler does with which resources: the role that it needs is made from this.

use longshore_api::flyte;
use longshore_kit::Rule;

/// Everything that it asks of the Kubernetes API, and nothing else.
pub const RULES: &[Rule] = &[
    // Read alone where a create met a pod of the same name, or a delete another incarnation.
    // Patched with the time limit of a task that has started.
    Rule::new(
        "",
        &["pods"],
        &["create", "delete", "get", "list", "patch", "watch"],
    ),
    Rule::new("", &["pods/log"], &["get"]),
    // Tasks with a plugin.
    Rule::new(
        flyte::GROUP,
        &["taskactions"],
        &["create", "delete", "get", "list", "watch"],
    ),
    // When TaskActions are installed, where they are not.
    Rule::new(
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["list", "watch"],
    )
    .named(&["taskactions.flyte.org"])
    .cluster_wide(),
    // The files of a run, removed after its end.
    Rule::new("", &["configmaps"], &["create", "delete", "get", "list"]),
    // The workspace of a run, which stays.
    Rule::new("", &["persistentvolumeclaims"], &["create", "get"]),
    // The uid of this namespace identifies the cluster.
    Rule::new("", &["namespaces"], &["get"])
        .named(&["kube-system"])
        .cluster_wide(),
];
