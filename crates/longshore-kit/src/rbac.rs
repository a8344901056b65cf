//! What controllers do with which resources, as data: the roles that they need are made from it, and nothing else.

/// Verbs on resources of one API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API group, `""` for core.
    pub group: &'static str,
    /// Plural names, with `/` before a subresource.
    pub resources: &'static [&'static str],
    /// What is done with them.
    pub verbs: &'static [&'static str],
    /// Only with objects of these names; all where it is empty. Kubernetes cannot restrict `create` and `list` so.
    pub names: &'static [&'static str],
    /// Where.
    pub reach: Reach,
}

/// Where a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// In the namespace that the controller works in.
    Namespace,
    /// In all namespaces, or on objects outside of them.
    Cluster,
}

impl Rule {
    /// These verbs on all objects of these resources in the namespace that the controller works in.
    pub const fn new(
        group: &'static str,
        resources: &'static [&'static str],
        verbs: &'static [&'static str],
    ) -> Self {
        Self {
            group,
            resources,
            verbs,
            names: &[],
            reach: Reach::Namespace,
        }
    }

    /// In the whole cluster.
    #[must_use]
    pub const fn cluster_wide(self) -> Self {
        Self {
            reach: Reach::Cluster,
            ..self
        }
    }

    /// Only with objects of these names.
    #[must_use]
    pub const fn named(self, names: &'static [&'static str]) -> Self {
        Self { names, ..self }
    }
}
