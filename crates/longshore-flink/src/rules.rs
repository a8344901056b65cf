//! What the controllers do with which resources, and what JobManagers do: the roles that they need are made from this.

use longshore_api::flink;
use longshore_kit::Rule;

/// Everything that the controllers ask of the Kubernetes API, and nothing else.
pub const RULES: &[Rule] = &[
    // Patched for their finalizers.
    Rule::new(
        flink::GROUP,
        &["flinkdeployments", "flinksessionjobs"],
        &["get", "list", "patch", "watch"],
    ),
    // Made for nonces, schedules and upgrades, and deleted when they are old. Their labels follow their status.
    Rule::new(
        flink::GROUP,
        &["flinkstatesnapshots"],
        &["create", "delete", "get", "list", "patch", "watch"],
    ),
    Rule::new(
        flink::GROUP,
        &[
            "flinkdeployments/status",
            "flinksessionjobs/status",
            "flinkstatesnapshots/status",
        ],
        &["patch"],
    ),
    // The owner of a JobManager's Deployment is not deleted before it: who says so needs this where the admission plugin
    // OwnerReferencesPermissionEnforcement is on.
    Rule::new(flink::GROUP, &["flinkdeployments/finalizers"], &["update"]),
    Rule::new(
        "apps",
        &["deployments"],
        &["create", "delete", "get", "list", "patch", "watch"],
    ),
    Rule::new("apps", &["deployments/finalizers"], &["update"]),
    Rule::new("", &["services"], &["create", "get"]),
    // Those of clusters, and the metadata of high availability, which Flink leaves.
    Rule::new(
        "",
        &["configmaps"],
        &["create", "delete", "get", "list", "patch", "watch"],
    ),
    // Why a JobManager does not start.
    Rule::new("", &["pods"], &["list", "watch"]),
    Rule::new("events.k8s.io", &["events"], &["create", "patch"]),
    // Whether our kinds are served.
    Rule::new(
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["list", "watch"],
    )
    .named(&[
        "flinkdeployments.flink.apache.org",
        "flinksessionjobs.flink.apache.org",
        "flinkstatesnapshots.flink.apache.org",
    ])
    .cluster_wide(),
];

/// What a JobManager asks of the Kubernetes API, for its TaskManagers and its high availability: the rights that the service
/// account of a FlinkDeployment needs in its namespace.
pub const RULES_OF_JOBS: &[Rule] = &[
    Rule::new("", &["pods"], &["create", "delete", "get", "list", "watch"]),
    Rule::new(
        "",
        &["configmaps"],
        &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ],
    ),
    // Its TaskManagers belong to its Deployment.
    Rule::new("apps", &["deployments"], &["get"]),
    Rule::new("apps", &["deployments/finalizers"], &["update"]),
];
