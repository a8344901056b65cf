//! What controllers and webhooks do with which resources: the role that they need is made from this.
//!
//! Pods take part by a label, wherever they are: all of it is about the whole cluster but for the certificates.

use longshore_api::podops;
use longshore_kit::Rule;

use crate::webhooks;

/// Everything that they ask of the Kubernetes API, and nothing else.
pub const RULES: &[Rule] = &[
    Rule::new("", &["pods"], &["delete", "get", "list", "patch", "watch"]).cluster_wide(),
    Rule::new("", &["pods/status"], &["patch"]).cluster_wide(),
    // No pod waits for a Service that is gone; those that are there protect the pods that they select.
    Rule::new("", &["services"], &["get", "list", "watch"]).cluster_wide(),
    Rule::new("discovery.k8s.io", &["endpointslices"], &["list", "watch"]).cluster_wide(),
    // Namespaces that go, with all their pods.
    Rule::new("", &["namespaces"], &["list", "watch"]).cluster_wide(),
    // Evictions begin within the budgets of their pods, after a disruption was reserved in the status, and pods whose
    // evictor is gone are evicted. A budget that another client wrote first is read again.
    Rule::new(
        "policy",
        &["poddisruptionbudgets"],
        &["get", "list", "watch"],
    )
    .cluster_wide(),
    Rule::new("policy", &["poddisruptionbudgets/status"], &["patch"]).cluster_wide(),
    Rule::new("", &["pods/eviction"], &["create"]).cluster_wide(),
    // How many pods there should be.
    Rule::new("apps", &["replicasets", "statefulsets"], &["list", "watch"]).cluster_wide(),
    Rule::new(
        podops::GROUP,
        &["podtransitionrules"],
        &["get", "list", "patch", "watch"],
    )
    .cluster_wide(),
    Rule::new(podops::GROUP, &["podtransitionrules/status"], &["patch"]).cluster_wide(),
    Rule::new("events.k8s.io", &["events"], &["create", "patch"]).cluster_wide(),
    // Whether the role was uninstalled.
    Rule::new("coordination.k8s.io", &["leases"], &["get"]).named(&["longshore-podops"]),
    // The certificates of the webhooks. Kubernetes cannot restrict `create` to a name: a user who may create Secrets
    // can have the token of any service account of the namespace written into one. The manifest with the roles has this
    // Secret, and both configurations, without content.
    Rule::new("", &["secrets"], &["get", "patch"]).named(&[webhooks::SECRET]),
    Rule::new(
        "admissionregistration.k8s.io",
        &["mutatingwebhookconfigurations"],
        &["get", "patch"],
    )
    .named(&[webhooks::MUTATING])
    .cluster_wide(),
    Rule::new(
        "admissionregistration.k8s.io",
        &["validatingwebhookconfigurations"],
        &["get", "patch"],
    )
    .named(&[webhooks::VALIDATING])
    .cluster_wide(),
];
