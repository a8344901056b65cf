//! The graph of owner references, as the watches report them. Pure: knows no client.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

pub(super) const FINALIZER_FOREGROUND: &str = "foregroundDeletion";
pub(super) const FINALIZER_ORPHAN: &str = "orphan";

/// A uid.
pub(super) type Uid = String;

/// One object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Position of its resource in the list of watched ones.
    pub(super) resource: usize,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) is_deleting: bool,
    pub(super) finalizers: Vec<String>,
}

impl Node {
    pub(super) fn of(resource: usize, metadata: &ObjectMeta) -> Node {
        Node {
            resource,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
            owners: metadata.owner_references.clone().unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
        }
    }

    /// Deleted, and waiting until what it owns is gone.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.is_deleting && self.finalizers.iter().any(|it| it == FINALIZER_FOREGROUND)
    }

    /// Deleted, and what it owns shall stay.
    pub(super) fn orphans_dependents(&self) -> bool {
        self.is_deleting && self.finalizers.iter().any(|it| it == FINALIZER_ORPHAN)
    }

    fn is_blocking(&self, owner: &str) -> bool {
        let is_blocking = |it: &OwnerReference| it.block_owner_deletion.unwrap_or(false);
        self.owners
            .iter()
            .any(|reference| reference.uid == owner && is_blocking(reference))
    }
}

/// All objects and their ownership.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: BTreeMap<Uid, Node>,
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
    /// Uids that a list in progress has named, by resource.
    listing: BTreeMap<usize, BTreeSet<Uid>>,
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The objects that name this one as their owner.
    pub(super) fn dependents(&self, uid: &str) -> Vec<Uid> {
        self.dependents
            .get(uid)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// The dependents whose presence keeps a foreground deletion waiting.
    pub(super) fn blocking_dependents(&self, uid: &str) -> Vec<Uid> {
        let is_blocking = |it: &Uid| self.nodes.get(it).is_some_and(|node| node.is_blocking(uid));
        self.dependents(uid)
            .into_iter()
            .filter(is_blocking)
            .collect()
    }

    /// Records the newest state of an object. Returns the uids of the objects to examine now.
    pub(super) fn apply(&mut self, uid: Uid, node: Node) -> Vec<Uid> {
        if let Some(listed) = self.listing.get_mut(&node.resource) {
            listed.insert(uid.clone());
        }
        let mut affected = Vec::new();
        if let Some(old) = self.nodes.get(&uid).cloned() {
            self.unlink(&uid, &old);
            // An owner that waits may have waited for the reference that is gone now.
            affected.extend(self.waiting_owners(&old));
        }
        for owner in &node.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        // An owner in another namespace is none.
        let concerns_owner = |owner: &OwnerReference| {
            self.nodes.get(&owner.uid).is_none_or(|owner| {
                let is_foreign = owner.namespace.is_some() && owner.namespace != node.namespace;
                is_foreign || owner.waits_for_dependents()
            })
        };
        let is_candidate = !node.is_deleting && node.owners.iter().any(concerns_owner);
        if is_candidate || node.waits_for_dependents() || node.orphans_dependents() {
            affected.push(uid.clone());
        }
        self.nodes.insert(uid, node);
        affected
    }

    /// Forgets an object that is gone. Returns the uids of the objects to examine now.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<Uid> {
        let Some(node) = self.nodes.remove(uid) else {
            return Vec::new();
        };
        self.unlink(uid, &node);
        let mut affected = self.dependents(uid);
        affected.extend(self.waiting_owners(&node));
        affected
    }

    fn unlink(&mut self, uid: &str, node: &Node) {
        for owner in &node.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    fn waiting_owners(&self, node: &Node) -> Vec<Uid> {
        let is_waiting = |uid: &Uid| self.nodes.get(uid).is_some_and(Node::waits_for_dependents);
        node.owners
            .iter()
            .map(|owner| owner.uid.clone())
            .filter(is_waiting)
            .collect()
    }

    /// A list of a resource starts.
    pub(super) fn start_listing(&mut self, resource: usize) {
        self.listing.insert(resource, BTreeSet::new());
    }

    /// The list is complete: whatever it did not name is gone.
    pub(super) fn finish_listing(&mut self, resource: usize) -> Vec<Uid> {
        let Some(listed) = self.listing.remove(&resource) else {
            return Vec::new();
        };
        let is_gone =
            |(uid, node): &(&Uid, &Node)| node.resource == resource && !listed.contains(*uid);
        let gone: Vec<Uid> = self
            .nodes
            .iter()
            .filter(is_gone)
            .map(|(uid, _)| uid.clone())
            .collect();
        gone.iter().flat_map(|uid| self.remove(uid)).collect()
    }
}
