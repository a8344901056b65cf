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

    /// The same rule for one installation.
    pub fn granted(self) -> Grant {
        Grant {
            names: self.names.iter().map(|name| (*name).to_owned()).collect(),
            rule: self,
            elsewhere: None,
        }
    }

    /// The same rule for one installation whose configuration names the objects.
    pub fn granted_on(self, names: &[&str]) -> Grant {
        Grant {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..self.granted()
        }
    }

    /// The same rule for one installation whose configuration names another namespace than the controller's own.
    pub fn granted_in(self, namespace: &str) -> Grant {
        Grant {
            elsewhere: Some(namespace.to_owned()),
            ..self.granted()
        }
    }
}

/// A rule as one installation needs it: names of objects and namespaces may come from its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Verbs and resources. Its names are not used: [`Grant::names`] are.
    pub rule: Rule,
    /// Only with objects of these names; all where it is empty.
    pub names: Vec<String>,
    /// The namespace where it holds, if the configuration names one. It may be the controller's own, and stays a grant
    /// of its own then: an administrator gives it on purpose.
    pub elsewhere: Option<String>,
}
