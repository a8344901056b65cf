//! Which action a head pod is of: operators own the pods that they make, so that nothing on the pod itself tells.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use longshore_plugins::HeadPod;

use crate::model::ActionKey;

/// The head pods that rounds have asked for. Kept in memory: the first round of an action asks again.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_action: BTreeMap<ActionKey, HeadPod>,
    /// By the namespace, and by how the name begins.
    by_start: BTreeMap<(String, String), ActionKey>,
}

impl Heads {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This action is interested in this pod, and in no other one.
    pub(crate) fn expect(&self, key: &ActionKey, head: Option<&HeadPod>) {
        let mut known = self.known();
        if known.by_action.get(key) == head {
            return;
        }
        known.forget(key);
        if let Some(head) = head {
            known.by_action.insert(key.clone(), head.clone());
            known.by_start.insert(place(key, head), key.clone());
        }
    }

    /// The action whose head this pod is.
    pub(crate) fn of(&self, namespace: &str, pod: &str) -> Option<ActionKey> {
        let known = self.known();
        if known.by_start.is_empty() {
            return None;
        }
        let starts = pod.char_indices().map(|(at, char)| at + char.len_utf8());
        starts.rev().find_map(|end| {
            let place = (namespace.to_owned(), pod[..end].to_owned());
            let key = known.by_start.get(&place)?;
            let is_head = match known.by_action.get(key)? {
                HeadPod::Named(name) => name == pod,
                HeadPod::Beginning(_) => true,
            };
            is_head.then(|| key.clone())
        })
    }

    /// There is no such action any more, or it ended.
    pub(crate) fn forget(&self, key: &ActionKey) {
        self.known().forget(key);
    }
}

impl Known {
    fn forget(&mut self, key: &ActionKey) {
        if let Some(head) = self.by_action.remove(key) {
            let place = place(key, &head);
            // Another action may have taken the name since.
            if self.by_start.get(&place) == Some(key) {
                self.by_start.remove(&place);
            }
        }
    }
}

fn place(key: &ActionKey, head: &HeadPod) -> (String, String) {
    let start = match head {
        HeadPod::Named(name) | HeadPod::Beginning(name) => name,
    };
    (key.namespace.clone(), start.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ActionKey {
        ActionKey {
            namespace: "flyte".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_head_pod_is_found_by_its_name_or_its_beginning() {
        let heads = Heads::default();
        heads.expect(&key("a"), Some(&HeadPod::Named("a-driver".to_owned())));
        heads.expect(&key("b"), Some(&HeadPod::Beginning("b-head".to_owned())));
        for (pod, expected) in [
            ("a-driver", Some("a")),
            ("a-driver-1", None),
            ("b-head", Some("b")),
            ("b-head-x7z", Some("b")),
            ("b-worker", None),
            ("", None),
        ] {
            let found = heads.of("flyte", pod).map(|key| key.name);
            assert_eq!(found.as_deref(), expected, "{pod}");
        }
        assert_eq!(heads.of("other", "a-driver"), None);
    }

    #[test]
    fn an_action_has_one_head_and_is_forgotten_with_it() {
        let heads = Heads::default();
        heads.expect(&key("a"), Some(&HeadPod::Named("old".to_owned())));
        heads.expect(&key("a"), Some(&HeadPod::Named("new".to_owned())));
        assert_eq!(heads.of("flyte", "old"), None);
        assert_eq!(heads.of("flyte", "new"), Some(key("a")));
        heads.forget(&key("a"));
        assert_eq!(heads.of("flyte", "new"), None);
        assert!(heads.known().by_start.is_empty(), "nothing is kept of it");
    }
}
