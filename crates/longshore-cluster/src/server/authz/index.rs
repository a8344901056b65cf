//! The policy of a cluster, kept up with the stored objects.

use std::sync::{Arc, Mutex};

use super::policy::{Policy, PolicyKind};
use crate::server::{
    hub::{Collection, Cursor, EventType, Hub, Lost, lock},
    registry::Registry,
};

/// The group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// The policy, and where the writes that it has seen end.
struct State {
    policy: Policy,
    cursors: Vec<(PolicyKind, Cursor)>,
}

/// Gives the policy as it is now: each use takes in the writes since the last one, so a role that was written counts
/// for every request after the answer to that write.
pub(crate) struct Index {
    hub: Arc<Hub>,
    collections: Vec<(PolicyKind, Arc<Collection>)>,
    /// None before the first use.
    state: Mutex<Option<State>>,
}

impl Index {
    pub(crate) fn new(hub: &Arc<Hub>, registry: &Registry) -> Index {
        let collections = PolicyKind::ALL.into_iter().filter_map(|kind| {
            let served = registry.find(GROUP, "v1", kind.plural())?;
            Some((kind, served.collection))
        });
        Index {
            hub: Arc::clone(hub),
            collections: collections.collect(),
            state: Mutex::new(None),
        }
    }

    /// The objects of a kind.
    pub(super) fn collection(&self, kind: PolicyKind) -> Option<&Arc<Collection>> {
        let mut collections = self.collections.iter();
        collections
            .find(|(of, _)| *of == kind)
            .map(|(_, collection)| collection)
    }

    /// Reads the policy.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Policy) -> T) -> T {
        let mut state = lock(&self.state);
        let kept = state.take().and_then(|kept| caught_up(kept).ok());
        let current = state.insert(kept.unwrap_or_else(|| self.load()));
        read(&current.policy)
    }

    /// The policy of all stored objects.
    fn load(&self) -> State {
        let mut policy = Policy::default();
        let cursors = self.collections.iter().map(|(kind, collection)| {
            let (objects, cursor) = Cursor::behind_snapshot(&self.hub, collection);
            for (key, object) in &*objects {
                policy.put(*kind, key.as_str(), &object.value());
            }
            (*kind, cursor)
        });
        let cursors = cursors.collect();
        State { policy, cursors }
    }
}

/// Takes in the writes since the last use; fails when there were more than the collections remember.
fn caught_up(mut state: State) -> Result<State, Lost> {
    for (kind, cursor) in &mut state.cursors {
        loop {
            let events = cursor.take()?;
            if events.is_empty() {
                break;
            }
            for event in events {
                let key = event.object.key.as_str();
                match event.kind {
                    EventType::Added | EventType::Modified => {
                        state.policy.put(*kind, key, &event.object.value());
                    }
                    EventType::Deleted => state.policy.remove(*kind, key),
                }
            }
        }
    }
    Ok(state)
}
