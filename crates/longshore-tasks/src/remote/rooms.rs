//! How many jobs of connectors there may be at the same time, and which actions wait for the end of others.
//!
//! Which jobs take room is said by the states of their actions; nothing else is kept of it. So a process that begins
//! counts the actions that it finds, and then follows each of its own rounds. Whoever waits is let in in the order of
//! arrival, as far as the limits of its project and domain allow.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, stream};
use longshore_core::{Seen, Unknown};
use longshore_plugins::Quota;
use tokio::sync::mpsc;

use crate::model::ActionKey;

/// Room for jobs.
#[derive(Debug)]
pub(crate) struct Rooms {
    quota: Quota,
    known: Mutex<Known>,
    let_in: mpsc::UnboundedSender<ActionKey>,
}

/// Whose limits a job counts against.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    pub(crate) project: String,
    pub(crate) domain: String,
}

#[derive(Debug, Default)]
struct Known {
    /// Whether those were counted that were there before this process.
    is_counted: bool,
    taken: BTreeMap<ActionKey, Scope>,
    /// How many of them each scope has.
    counts: BTreeMap<Scope, u32>,
    /// In the order of arrival.
    waiting: Vec<(ActionKey, Scope)>,
}

impl Rooms {
    /// Also answers the actions that are let in, which have to have a round.
    pub(crate) fn new(quota: Quota) -> (Self, impl Stream<Item = ActionKey> + Send + 'static) {
        let (sender, mut let_in) = mpsc::unbounded_channel();
        let rooms = Self {
            quota,
            known: Mutex::default(),
            let_in: sender,
        };
        let let_in = stream::poll_fn(move |context| let_in.poll_recv(context));
        (rooms, let_in)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job of this action takes room.
    pub(crate) fn take(&self, key: &ActionKey, scope: &Scope) {
        if !self.quota.is_unlimited() {
            self.known().take(key, scope);
        }
    }

    /// Takes room for a job if there is some; or else waits for it, and is let in later. `before` are the jobs of all
    /// actions that take room, of which only the first question asks.
    ///
    /// # Errors
    /// Why nobody knows whether there is room.
    pub(crate) fn ask(
        &self,
        key: &ActionKey,
        scope: &Scope,
        before: impl FnOnce() -> Seen<Vec<(ActionKey, Scope)>>,
    ) -> Result<bool, Unknown> {
        if self.quota.is_unlimited() {
            return Ok(true);
        }
        let mut known = self.known();
        if !known.is_counted {
            match before() {
                Seen::Present(taken) => {
                    taken.iter().for_each(|(key, scope)| known.take(key, scope));
                }
                Seen::Absent => {}
                Seen::Unknown(why) => return Err(why),
            }
            known.is_counted = true;
        }
        if known.taken.contains_key(key) {
            return Ok(true);
        }
        if known.has_room(self.quota, scope) {
            known.take(key, scope);
            return Ok(true);
        }
        if !known.waiting.iter().any(|(waiting, _)| waiting == key) {
            known.waiting.push((key.clone(), scope.clone()));
        }
        Ok(false)
    }

    /// This action has no job, and waits for none.
    pub(crate) fn leave(&self, key: &ActionKey) {
        if self.quota.is_unlimited() {
            return;
        }
        let mut known = self.known();
        known.waiting.retain(|(waiting, _)| waiting != key);
        if known.leave(key) {
            for key in known.let_in(self.quota) {
                // Nobody listens where no round will come.
                let _ = self.let_in.send(key);
            }
        }
    }
}

impl Known {
    fn take(&mut self, key: &ActionKey, scope: &Scope) {
        self.waiting.retain(|(waiting, _)| waiting != key);
        if self.taken.insert(key.clone(), scope.clone()).is_none() {
            *self.counts.entry(scope.clone()).or_default() += 1;
        }
    }

    /// Whether it had any room.
    fn leave(&mut self, key: &ActionKey) -> bool {
        let Some(scope) = self.taken.remove(key) else {
            return false;
        };
        let count = self.counts.entry(scope).or_default();
        *count = count.saturating_sub(1);
        true
    }

    fn has_room(&self, quota: Quota, scope: &Scope) -> bool {
        let of = |is_meant: &dyn Fn(&Scope) -> bool| -> u32 {
            let counts = self.counts.iter().filter(|(scope, _)| is_meant(scope));
            counts.map(|(_, count)| count).sum()
        };
        let is_below = |limit: Option<u32>, is_meant: &dyn Fn(&Scope) -> bool| {
            limit.is_none_or(|limit| of(is_meant) < limit)
        };
        is_below(quota.total, &|_| true)
            && is_below(quota.of_project, &|other| other.project == scope.project)
            && is_below(quota.of_domain, &|other| other == scope)
    }

    /// Gives room to those who wait for it, as far as there is some.
    fn let_in(&mut self, quota: Quota) -> Vec<ActionKey> {
        let mut let_in = Vec::new();
        for (key, scope) in std::mem::take(&mut self.waiting) {
            if self.has_room(quota, &scope) {
                self.take(&key, &scope);
                let_in.push(key);
            } else {
                self.waiting.push((key, scope));
            }
        }
        let_in
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use longshore_core::UnknownCause;

    use super::*;

    fn key(name: &str) -> ActionKey {
        ActionKey {
            namespace: "flyte".to_owned(),
            name: name.to_owned(),
        }
    }

    fn scope(project: &str, domain: &str) -> Scope {
        Scope {
            project: project.to_owned(),
            domain: domain.to_owned(),
        }
    }

    fn nobody() -> Seen<Vec<(ActionKey, Scope)>> {
        Seen::Present(Vec::new())
    }

    fn total(total: u32) -> Quota {
        Quota {
            total: Some(total),
            ..Quota::default()
        }
    }

    #[test]
    fn whoever_waits_is_let_in_in_the_order_of_arrival() {
        let (rooms, mut let_in) = Rooms::new(total(1));
        let mut next = || let_in.next().now_or_never().flatten();
        let ask = |name: &str| rooms.ask(&key(name), &scope("p", "d"), nobody).unwrap();
        let asked = ["a", "b", "c", "b", "a"].map(ask);
        assert_eq!(asked, [true, false, false, false, true]);
        rooms.leave(&key("somebody"));
        assert_eq!(next(), None);
        rooms.leave(&key("a"));
        assert_eq!((next(), next()), (Some(key("b")), None));
        assert_eq!(["c", "b"].map(ask), [false, true], "it is not asked again");
        rooms.leave(&key("c"));
        rooms.leave(&key("b"));
        assert_eq!(next(), None, "who waited is gone");
        assert!(ask("d"));
    }

    #[test]
    fn a_project_and_a_domain_have_limits_of_their_own() {
        let (rooms, mut let_in) = Rooms::new(Quota {
            total: Some(4),
            of_project: Some(3),
            of_domain: Some(2),
        });
        let ask = |name: &str, (project, domain): (&str, &str)| {
            rooms
                .ask(&key(name), &scope(project, domain), nobody)
                .unwrap()
        };
        for (name, of, expected) in [
            ("a", ("p", "d"), true),
            ("b", ("p", "d"), true),
            ("c", ("p", "d"), false),
            ("d", ("p", "e"), true),
            ("e", ("p", "f"), false),
            ("f", ("q", "d"), true),
            ("g", ("r", "d"), false),
        ] {
            assert_eq!(ask(name, of), expected, "{name}");
        }
        // There is room for another one of the project, but not of its domain.
        rooms.leave(&key("d"));
        assert_eq!(let_in.next().now_or_never(), Some(Some(key("e"))));
        assert_eq!(let_in.next().now_or_never(), None);
    }

    #[test]
    fn those_that_were_there_before_are_counted_first() {
        let (rooms, mut let_in) = Rooms::new(total(2));
        let of = scope("p", "d");
        let before = || Seen::Present(vec![(key("a"), of.clone()), (key("b"), of.clone())]);
        let unknown = || Seen::unknown(UnknownCause::NotListedYet, "no list yet");
        assert!(rooms.ask(&key("c"), &of, unknown).is_err());
        rooms.take(&key("a"), &of);
        assert_eq!(rooms.ask(&key("c"), &of, before), Ok(false));
        rooms.leave(&key("b"));
        assert_eq!(let_in.next().now_or_never(), Some(Some(key("c"))));
    }

    #[test]
    fn without_limits_nobody_waits_and_nothing_is_kept() {
        let (rooms, _) = Rooms::new(Quota::default());
        let nobody_knows = || Seen::unknown(UnknownCause::NotListedYet, "no list yet");
        for name in ["a", "b"] {
            assert_eq!(
                rooms.ask(&key(name), &Scope::default(), nobody_knows),
                Ok(true)
            );
        }
        assert!(rooms.known().taken.is_empty());
    }
}
