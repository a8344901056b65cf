//! Which resources this server has: one row each, the same structure for built-ins and
//! custom resources.

mod autoscalers;
mod claims;
mod conversion;
mod fields;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, RwLock},
};

use serde_json::Value;

use super::{
    crd::{Catalog, Column, Custom},
    hub::{Claim, Collection},
    names::NameRule,
};

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
    /// The status alone, no metadata.
    StatusOnly,
}

/// Behaviour that a resource does not share with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Plain,
    Pod,
    Namespace,
    Node,
    Service,
    /// Has a pod template.
    Workload,
    /// Status starts as `phase: Pending`.
    Claim,
    /// Configuration data: `immutable`, `stringData` and the size limit.
    Data,
    /// How much of an application may be missing.
    Budget,
    /// The addresses that answer for a Service.
    Endpoints,
    /// Grants rights: a role, or a binding of one.
    Access,
    /// How a node runs pods.
    Runtime,
    /// A configuration of the API server.
    Control,
    /// A request for a certificate.
    SigningRequest,
    /// A configuration of admission webhooks.
    Webhooks,
    /// A CustomResourceDefinition.
    Definition,
    /// An object of such a definition.
    Custom,
}

/// The body of the answer to an immediate deletion.
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
    /// The name of one object on a command line.
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    /// Groups of resources that clients list together, `all`.
    pub(crate) categories: Vec<String>,
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
    /// Objects go by themselves some time after their last write.
    pub(crate) expires: bool,
    /// Set when the objects are those of another resource in another form.
    pub(crate) conversion: Option<Conversion>,
    /// Set when a definition describes the objects.
    pub(crate) custom: Option<Custom>,
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
        match &self.custom {
            Some(custom) => custom.list_kind.clone(),
            None => format!("{}List", self.kind),
        }
    }

    /// The columns of a custom resource's table, after the name; built-in resources have none here.
    pub(crate) fn columns(&self) -> Option<&[Column]> {
        self.custom.as_ref().map(|custom| &*custom.columns)
    }

    /// Completes an object of this resource that a client has sent, and converts it to the stored
    /// form.
    pub(crate) fn to_stored(&self, mut object: Value) -> Value {
        match (&self.custom, self.conversion) {
            (Some(custom), _) => {
                custom.admit(&mut object);
                custom.to_stored(object)
            }
            (None, Some(conversion)) => conversion.to_stored(object),
            (None, None) => object,
        }
    }

    /// A stored object in the form that clients of this resource get.
    pub(crate) fn to_served(&self, object: Value) -> Value {
        match (&self.custom, self.conversion) {
            (Some(custom), _) => custom.to_served(object),
            (None, Some(conversion)) => conversion.to_served(object),
            (None, None) => object,
        }
    }

    /// What an object has that no other object of this resource may have.
    pub(crate) fn claims(&self, object: &Value) -> BTreeSet<Claim> {
        if self.strategy == Strategy::Service {
            claims::of_service(object)
        } else {
            BTreeSet::new()
        }
    }

    /// Whether clients of this resource get exactly the bytes that were stored by a revision.
    pub(crate) fn shows_stored(&self, revision: u64) -> bool {
        match &self.custom {
            Some(custom) => custom.shows_stored(revision),
            None => self.conversion.is_none(),
        }
    }

    /// Whether a change of the status counts as a change of the spec: there is no other way to
    /// write it.
    pub(crate) fn counts_status(&self) -> bool {
        self.custom.is_some() && !self.has_status()
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
    catalog: Catalog,
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
            catalog: Catalog::new(definitions(&served), window_length),
            served: RwLock::new(served),
        }
    }

    /// What the stored definitions serve.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// A resource, if there is such a one.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Served> {
        let address = (group.to_owned(), version.to_owned(), plural.to_owned());
        self.served
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&address)
            .cloned()
            .or_else(|| self.catalog.find(group, version, plural))
    }

    /// Every resource, ordered by group, version and plural.
    pub(crate) fn all(&self) -> Vec<Served> {
        let mut all = self.built_ins();
        all.extend(self.catalog.served());
        all.sort_by_cached_key(|served| address(&served.resource));
        all
    }

    /// The resources in whose form the objects of a collection are served.
    pub(crate) fn forms_of(&self, collection: &Collection) -> Vec<Arc<Resource>> {
        let path = collection.resource.storage_path();
        let all = self.all().into_iter();
        all.filter(|served| served.collection.resource.storage_path() == path)
            .map(|served| served.resource)
            .collect()
    }

    fn built_ins(&self) -> Vec<Served> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.values().cloned().collect()
    }

    /// The objects of every resource, each once.
    pub(crate) fn collections(&self) -> Vec<Arc<Collection>> {
        let stored = self
            .built_ins()
            .into_iter()
            .filter(|served| served.resource.conversion.is_none());
        let mut collections: Vec<_> = stored.map(|served| served.collection).collect();
        collections.extend(self.catalog.collections());
        collections
    }
}

/// The collection of the definitions of custom resources.
#[expect(clippy::expect_used, reason = "a row of the built-in table")]
fn definitions(served: &BTreeMap<Address, Served>) -> Arc<Collection> {
    let address = ["apiextensions.k8s.io", "v1", "customresourcedefinitions"].map(str::to_owned);
    let found = served.get(&address.into());
    Arc::clone(&found.expect("find a built-in resource").collection)
}

fn address(resource: &Resource) -> Address {
    (
        resource.group.clone(),
        resource.version.clone(),
        resource.plural.clone(),
    )
}
