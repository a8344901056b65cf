//! The kind and the address of an object.

use std::fmt;

use serde::Serialize;

/// Whether objects of a resource live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Scope {
    /// `…/namespaces/<namespace>/<plural>`.
    Namespaced,
    /// The path is `…/<plural>`.
    Cluster,
}

/// A kind of the Kubernetes API with all that its address needs. Subsystems declare theirs as constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Resource {
    /// API group, `""` for core.
    pub group: &'static str,
    /// API version, as `v1`.
    pub version: &'static str,
    /// Kind, as `Pod`.
    pub kind: &'static str,
    /// Plural name in the path, as `pods`.
    pub plural: &'static str,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
}

impl Resource {
    /// `v1` Pod.
    pub const POD: Self = Self::core("Pod", "pods");
    /// `v1` ConfigMap.
    pub const CONFIG_MAP: Self = Self::core("ConfigMap", "configmaps");
    /// `v1` PersistentVolumeClaim.
    pub const PERSISTENT_VOLUME_CLAIM: Self =
        Self::core("PersistentVolumeClaim", "persistentvolumeclaims");
    const fn core(kind: &'static str, plural: &'static str) -> Self {
        Self {
            group: "",
            version: "v1",
            kind,
            plural,
            scope: Scope::Namespaced,
        }
    }

    /// The `apiVersion` of its objects: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// The address of one object, with the incarnation that was decided upon.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ObjectRef {
    /// The kind of the object.
    pub resource: Resource,
    /// The namespace of the object; empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The incarnation decided upon: deletes and patches of another uid are refused (rule R3 of the reliability
    /// spec). `None` only where no object of that name was seen yet.
    pub uid: Option<String>,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.resource.kind, self.namespace, self.name)
    }
}
