//! What only one object of a collection may have: the address of a Service, a port of the nodes.
//!
//! **Invariant:** two objects of a collection never have the same. The sequencer checks that inside the write, so
//! nothing is reserved before it or left over after it, and a restart reads everything from the objects themselves.

use std::{collections::BTreeMap, net::Ipv4Addr};

use super::{Key, Object};

/// Something that at most one object of a collection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// An address inside the cluster.
    Address(Ipv4Addr),
    /// A port of every node.
    NodePort(u16),
}

/// Which object has what.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<Claim, Key>);

impl Claims {
    /// What these objects have.
    pub(super) fn of<'a>(objects: impl Iterator<Item = &'a Object>) -> Claims {
        let mut claims = Claims::default();
        for object in objects {
            claims.add(object);
        }
        claims
    }

    /// Records what an object has.
    pub(super) fn add(&mut self, object: &Object) {
        for claim in &object.facets.claims {
            self.0.insert(*claim, object.key.clone());
        }
    }

    /// Forgets what an object had.
    pub(super) fn remove(&mut self, object: &Object) {
        for claim in &object.facets.claims {
            if self.0.get(claim) == Some(&object.key) {
                self.0.remove(claim);
            }
        }
    }

    /// Whether no object but this one has it.
    pub(super) fn is_free(&self, claim: Claim, key: &Key) -> bool {
        self.0.get(&claim).is_none_or(|holder| holder == key)
    }
}
