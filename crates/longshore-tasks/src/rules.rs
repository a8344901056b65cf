//! What the executor does with which resources: the role that it needs is made from this.

use longshore_api::flyte;
use longshore_kit::Rule;

/// What is done with the resources of attempts. Patched for the finalizer of `inject-finalizer`, and where a plugin has
/// an abort patch them.
const MADE: &[&str] = &["create", "delete", "get", "list", "patch", "watch"];

/// Everything that it asks of the Kubernetes API, and nothing else.
pub const RULES: &[Rule] = &[
    // Deleted by the collector.
    Rule::new(
        flyte::GROUP,
        &["taskactions"],
        &["delete", "get", "list", "patch", "watch"],
    ),
    Rule::new(flyte::GROUP, &["taskactions/status"], &["patch"]),
    Rule::new("", &["pods"], MADE),
    // What plugins make besides.
    Rule::new("sparkoperator.k8s.io", &["sparkapplications"], MADE),
    Rule::new("ray.io", &["rayjobs"], MADE),
    Rule::new("kubernetes.dask.org", &["daskjobs"], MADE),
    Rule::new("kubeflow.org", &["pytorchjobs", "tfjobs", "mpijobs"], MADE),
    Rule::new("jobset.x-k8s.io", &["jobsets"], MADE),
    Rule::new("flink.apache.org", &["flinkdeployments"], MADE),
    // Whether these kinds are served.
    Rule::new(
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["list", "watch"],
    )
    .named(&[
        "sparkapplications.sparkoperator.k8s.io",
        "rayjobs.ray.io",
        "daskjobs.kubernetes.dask.org",
        "pytorchjobs.kubeflow.org",
        "tfjobs.kubeflow.org",
        "mpijobs.kubeflow.org",
        "jobsets.jobset.x-k8s.io",
        "flinkdeployments.flink.apache.org",
    ])
    .cluster_wide(),
    // Pods are built on those that tasks name.
    Rule::new("", &["podtemplates"], &["list", "watch"]),
    // Those about what was made are told as reasons.
    Rule::new(
        "events.k8s.io",
        &["events"],
        &["create", "list", "patch", "watch"],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use longshore_plugins::{Config, Registry};

    use super::*;

    #[test]
    fn every_kind_that_plugins_make_and_no_other_one_may_be_made() {
        let registry = Registry::new(&Config::default()).unwrap();
        let made: BTreeSet<String> = registry
            .resources()
            .map(|resource| format!("{}.{}", resource.plural, resource.group))
            .collect();
        let may_be_made = RULES.iter().filter(|rule| rule.verbs == MADE);
        let may_be_made: BTreeSet<String> = may_be_made
            .flat_map(|rule| {
                rule.resources
                    .iter()
                    .map(move |it| format!("{it}.{}", rule.group))
            })
            .collect();
        assert_eq!(made, may_be_made);
        let defined = RULES
            .iter()
            .find(|rule| rule.resources.contains(&"customresourcedefinitions"));
        let defined: BTreeSet<String> = defined
            .iter()
            .flat_map(|rule| rule.names.iter().map(|name| (*name).to_owned()))
            .collect();
        let custom: BTreeSet<String> = made.into_iter().filter(|it| it != "pods.").collect();
        assert_eq!(custom, defined);
    }
}
