//! Which resources this server has: one row each, the same structure for built-ins and (later) custom resources.

mod conversion;
mod fields;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::hub::Collection;
use super::names::NameRule;

pub(crate) use conversion::Conversion;
pub(crate) use fields::Field;

/// Where the objects of a resource live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Cluster,
    Namespaced,
}

/// What a write through `/status` may touch besides the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusWrites {
    /// No status subresource.
    Nothing,
    /// Labels, annotations and finalizers too.
    Metadata,
    /// Annotations and finalizers too.
    MetadataWithoutLabels,
}

/// Behaviour that a resource does not share with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Plain,
    Pod,
    Namespace,
    Node,
    Service,
    /// Status starts as `phase: Pending`.
    Claim,
    /// Configuration data: `immutable`, `stringData` and the size limit.
    Data,
}

/// What immediate deletion answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeletionAnswer {
    Status,
    Object,
}

/// One resource.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// API group, empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    /// Lower-case plural, as in paths.
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) scope: Scope,
    pub(crate) short_names: Vec<&'static str>,
    pub(crate) status: StatusWrites,
    /// Objects count the changes of their spec.
    pub(crate) has_generation: bool,
    pub(crate) has_scale: bool,
    /// A PUT to a missing name creates it.
    pub(crate) creates_on_update: bool,
    pub(crate) deletion_answer: DeletionAnswer,
    pub(crate) names: NameRule,
    pub(crate) strategy: Strategy,
    /// Fields that selectors may name, besides the name and the namespace.
    pub(crate) fields: Vec<Field>,
    /// Set when the objects are those of another resource in another form.
    pub(crate) conversion: Option<Conversion>,
}

/// A resource as clients address it, and the objects behind it.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) resource: Arc<Resource>,
    pub(crate) collection: Arc<Collection>,
}

impl Resource {
    /// `group/version`, or `version` alone for the core group.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group`, as messages name a resource.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The path of its objects in the store, the same for every version.
    pub(crate) fn storage_path(&self) -> String {
        let group = if self.group.is_empty() {
            "core"
        } else {
            &self.group
        };
        format!("{group}/{}", self.plural)
    }

    pub(crate) fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    pub(crate) fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub(crate) fn has_status(&self) -> bool {
        self.status != StatusWrites::Nothing
    }
}

/// Address of a resource: group, version, plural.
type Address = (String, String, String);

/// The resources that are served now.
pub(crate) struct Registry {
    served: RwLock<BTreeMap<Address, Served>>,
}

impl Registry {
    /// All built-in resources, empty.
    pub(crate) fn built_in(window_length: usize) -> Registry {
        let mut served = BTreeMap::new();
        for resource in table::built_in() {
            let resource = Arc::new(resource);
            let collection = Arc::new(Collection::new(Arc::clone(&resource), window_length));
            served.insert(
                address(&resource),
                Served {
                    resource,
                    collection,
                },
            );
        }
        for (resource, stored) in table::converted() {
            let stored = (stored.group, stored.version, stored.plural);
            if let Some(Served { collection, .. }) = served.get(&stored).cloned() {
                let resource = Arc::new(resource);
                served.insert(
                    address(&resource),
                    Served {
                        resource,
                        collection,
                    },
                );
            }
        }
        Registry {
            served: RwLock::new(served),
        }
    }

    /// A resource, if there is such a one.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Served> {
        let address = (group.to_owned(), version.to_owned(), plural.to_owned());
        self.served
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&address)
            .cloned()
    }

    /// Every resource, ordered by group, version and plural.
    pub(crate) fn all(&self) -> Vec<Served> {
        self.served
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// The objects of every resource, each once.
    pub(crate) fn collections(&self) -> Vec<Arc<Collection>> {
        let stored = self
            .all()
            .into_iter()
            .filter(|served| served.resource.conversion.is_none());
        stored.map(|served| served.collection).collect()
    }
}

fn address(resource: &Resource) -> Address {
    (
        resource.group.clone(),
        resource.version.clone(),
        resource.plural.clone(),
    )
}
