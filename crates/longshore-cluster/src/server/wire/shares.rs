//! Places, shared fairly: nobody can hold so many that none is left for somebody who holds none.
//!
//! A user gets a place while the user holds fewer than are free (dynamic thresholds): one user alone gets half of them, and
//! the next one half of the rest, until the first gives some back. An eighth of all places is for users who hold none, so
//! that many greedy users together do not shut out the next one. Another eighth is a reserve for members of
//! `system:masters`.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::server::auth::{GROUP_MASTERS, GROUP_UNAUTHENTICATED, UserInfo};

/// Who wants a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimant<'a> {
    /// The user of this name.
    User(&'a str),
    /// A member of `system:masters` of this name.
    Master(&'a str),
}

impl<'a> Claimant<'a> {
    /// `None` for somebody without credentials, who gets no place and needs none: probes and the version, which are
    /// answered at once, are all that there is without credentials. Upstream exempts probes from its limits, too.
    pub(super) fn of(user: &'a UserInfo) -> Option<Claimant<'a>> {
        let is_in = |group: &str| user.groups.iter().any(|it| it == group);
        if is_in(GROUP_UNAUTHENTICATED) {
            None
        } else if is_in(GROUP_MASTERS) {
            Some(Claimant::Master(&user.username))
        } else {
            Some(Claimant::User(&user.username))
        }
    }

    pub(super) fn name(self) -> &'a str {
        match self {
            Claimant::User(name) | Claimant::Master(name) => name,
        }
    }
}

/// How many places there are, and for whom.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    common: usize,
    /// Those of the common places that are for users who hold none.
    first: usize,
    reserve: usize,
}

impl Sizes {
    fn of(n: usize) -> Sizes {
        let eighth = n / 8;
        Sizes {
            common: n - eighth,
            first: eighth,
            reserve: eighth,
        }
    }
}

/// Where a place was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The common places, by the user with this key.
    Common(u64),
    Reserve,
}

/// The places that are taken.
#[derive(Debug, Default)]
struct Taken {
    common: usize,
    reserve: usize,
    /// Common places by the key of a user, so that no request copies a name. Users without a place are not here.
    by_user: HashMap<u64, usize>,
}

impl Taken {
    fn take(&mut self, sizes: Sizes, user: u64, is_master: bool) -> Option<Source> {
        let n_held = self.by_user.get(&user).copied().unwrap_or(0);
        let kept_back = if n_held == 0 { 0 } else { sizes.first };
        if n_held < sizes.common.saturating_sub(self.common + kept_back) {
            self.common += 1;
            self.by_user.insert(user, n_held + 1);
            return Some(Source::Common(user));
        }
        if is_master && self.reserve < sizes.reserve {
            self.reserve += 1;
            return Some(Source::Reserve);
        }
        None
    }

    fn give_back(&mut self, source: Source) {
        match source {
            Source::Common(user) => {
                self.common -= 1;
                if let Some(n) = self.by_user.get_mut(&user) {
                    *n -= 1;
                    if *n == 0 {
                        self.by_user.remove(&user);
                    }
                }
            }
            Source::Reserve => self.reserve -= 1,
        }
    }
}

/// A number of places.
#[derive(Debug)]
pub(super) struct Shares {
    sizes: Sizes,
    keys: RandomState,
    taken: Mutex<Taken>,
}

impl Shares {
    pub(super) fn new(n: usize) -> Arc<Shares> {
        Arc::new(Shares {
            sizes: Sizes::of(n),
            keys: RandomState::new(),
            taken: Mutex::default(),
        })
    }

    /// A place, until the returned value is dropped; `None` when this one can have no more.
    pub(super) fn take(self: &Arc<Self>, claimant: Claimant<'_>) -> Option<Share> {
        let user = self.keys.hash_one(claimant.name());
        let is_master = matches!(claimant, Claimant::Master(_));
        let source = self.taken().take(self.sizes, user, is_master)?;
        Some(Share {
            shares: Arc::clone(self),
            source,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is taken.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    source: Source,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.taken().give_back(self.source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many places as this one gets.
    fn all(shares: &Arc<Shares>, claimant: Claimant<'_>) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(claimant)).collect()
    }

    #[test]
    fn whoever_comes_later_finds_a_place_however_much_the_others_want() {
        // 350 common places, 50 of them for users without one; 50 for masters.
        let shares = Shares::new(400);
        let first = all(&shares, Claimant::User("a"));
        assert_eq!(first.len(), 150);
        let second = all(&shares, Claimant::User("b"));
        assert_eq!(second.len(), 75);
        let names: Vec<String> = (0..40).map(|n| format!("c{n}")).collect();
        let mut held = Vec::new();
        for name in &names {
            let more = all(&shares, Claimant::User(name));
            assert!(!more.is_empty(), "{name}");
            held.extend(more);
        }
        assert!(shares.take(Claimant::User("a")).is_none());
        drop((first, second, held));
        let taken = shares.taken();
        assert_eq!((taken.common, taken.reserve), (0, 0));
        assert!(taken.by_user.is_empty());
    }

    #[test]
    fn all_users_together_leave_the_reserve_to_masters() {
        let shares = Shares::new(16);
        let names: Vec<String> = (0..40).map(|n| format!("u{n}")).collect();
        let held: Vec<Share> = names
            .iter()
            .flat_map(|name| all(&shares, Claimant::User(name)))
            .collect();
        assert_eq!(held.len(), 14);
        assert_eq!(all(&shares, Claimant::Master("m")).len(), 2);
    }

    #[test]
    fn few_places_are_still_some() {
        for (n, expected) in [(0, 0), (1, 1), (2, 1), (3, 2), (8, 3), (16, 6)] {
            let found = all(&Shares::new(n), Claimant::User("a")).len();
            assert_eq!(found, expected, "{n}");
        }
    }

    #[test]
    fn a_user_is_what_the_groups_say() {
        let of = |groups: &[&str]| UserInfo {
            username: "jane".to_owned(),
            groups: groups.iter().map(|it| (*it).to_owned()).collect(),
            ..UserInfo::default()
        };
        assert_eq!(Claimant::of(&UserInfo::anonymous()), None);
        let master = of(&["system:masters"]);
        assert_eq!(Claimant::of(&master), Some(Claimant::Master("jane")));
        let user = of(&["system:authenticated"]);
        assert_eq!(Claimant::of(&user), Some(Claimant::User("jane")));
    }
}
