//! Which namespaces a controller works in.

use std::collections::BTreeSet;

use tokio::sync::watch;

/// Which namespaces a controller works in.
#[derive(Clone, Debug)]
pub enum Namespaces {
    /// All that there are.
    All,
    /// These. Each has lists and watches of its own, so that rights in these namespaces suffice.
    These(BTreeSet<String>),
    /// The namespaces of a set that changes. The lists and watches of a namespace start when it joins the set and stop
    /// when it leaves: then its objects leave the caches, and their keys come.
    Following(watch::Receiver<BTreeSet<String>>),
}

impl Namespaces {
    /// One namespace.
    pub fn one(namespace: impl Into<String>) -> Self {
        Self::These(BTreeSet::from([namespace.into()]))
    }

    /// One namespace, or all.
    pub fn one_or_all(namespace: Option<&str>) -> Self {
        namespace.map_or(Self::All, Self::one)
    }

    /// The namespaces at the moment; `None` for all.
    pub fn now(&self) -> Option<BTreeSet<String>> {
        match self {
            Self::All => None,
            Self::These(set) => Some(set.clone()),
            Self::Following(set) => Some(set.borrow().clone()),
        }
    }

    /// Whether it works in this namespace at the moment.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(set) => set.contains(namespace),
            Self::Following(set) => set.borrow().contains(namespace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_it_is_at_the_moment() {
        let set = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let (namespaces, following) = watch::channel(set(&["a"]));
        let following = Namespaces::Following(following);
        for (namespaces, now, has_b) in [
            (Namespaces::one_or_all(None), None, true),
            (Namespaces::one_or_all(Some("a")), Some(set(&["a"])), false),
            (
                Namespaces::These(set(&["a", "b"])),
                Some(set(&["a", "b"])),
                true,
            ),
            (following.clone(), Some(set(&["a"])), false),
        ] {
            assert_eq!(namespaces.now(), now, "{namespaces:?}");
            assert!(namespaces.contains("a"), "{namespaces:?}");
            assert_eq!(namespaces.contains("b"), has_b, "{namespaces:?}");
        }
        namespaces.send_replace(set(&["b"]));
        assert!(following.contains("b") && !following.contains("a"));
    }
}
