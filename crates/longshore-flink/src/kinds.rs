//! The kinds of resources that the controllers watch and write, and the keys of the controllers.

use std::fmt;

use longshore_api::flink;
use longshore_core::{Resource, Scope};

/// `flink.apache.org/v1beta1` FlinkDeployment.
pub const FLINK_DEPLOYMENT: Resource = of_flink(flink::KIND_DEPLOYMENT, "flinkdeployments");
/// `flink.apache.org/v1beta1` FlinkSessionJob.
pub const FLINK_SESSION_JOB: Resource = of_flink(flink::KIND_SESSION_JOB, "flinksessionjobs");
/// `flink.apache.org/v1beta1` FlinkStateSnapshot.
pub const FLINK_STATE_SNAPSHOT: Resource =
    of_flink(flink::KIND_STATE_SNAPSHOT, "flinkstatesnapshots");
/// `apps/v1` Deployment.
pub const DEPLOYMENT: Resource = Resource {
    group: "apps",
    version: "v1",
    kind: "Deployment",
    plural: "deployments",
    scope: Scope::Namespaced,
};
/// `v1` Service.
pub const SERVICE: Resource = Resource {
    group: "",
    version: "v1",
    kind: "Service",
    plural: "services",
    scope: Scope::Namespaced,
};

const fn of_flink(kind: &'static str, plural: &'static str) -> Resource {
    Resource {
        group: flink::GROUP,
        version: flink::VERSION,
        kind,
        plural,
        scope: Scope::Namespaced,
    }
}

/// The namespace and the name of an object that a controller works on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlinkKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl FlinkKey {
    /// The key of this namespace and name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for FlinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
