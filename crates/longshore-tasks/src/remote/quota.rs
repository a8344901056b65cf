//! The quota of connectors' jobs: how many may run at the same time, and which actions wait for a slot.
//!
//! A slot belongs to the memory of its action: the [`Facts`](crate::facts::Facts) hold a [`Slot`], and the slot is free
//! again once that is dropped. So an action that has ended, or whose object is gone, frees its slot when the runner forgets
//! it. The pool has one lock, because each grant depends on all slots that are taken. Plans request and release slots;
//! [`observe`](crate::observe) only looks.
//!
//! Which jobs run is said by the statuses of their actions, so that nothing of the pool is durable.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, stream};
use longshore_plugins::Quota;
use tokio::sync::mpsc;

use crate::model::{ActionKey, QuotaScope, SlotState};

/// The slots of all jobs. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    quota: Quota,
    state: Mutex<State>,
    granted: mpsc::UnboundedSender<ActionKey>,
}

#[derive(Debug, Default)]
struct State {
    next_ticket: u64,
    /// How many slots of each scope are taken.
    taken: BTreeMap<QuotaScope, u32>,
    /// By ticket, which is the order of arrival.
    waiting: BTreeMap<u64, (ActionKey, QuotaScope)>,
}

/// A slot of one action, or its place among those that wait for one.
#[derive(Debug)]
pub(crate) struct Slot {
    pool: Arc<Pool>,
    ticket: u64,
    scope: QuotaScope,
}

impl Slots {
    /// The slots of a quota, and the actions that are granted one after they have waited for it: each of them needs a round.
    pub(crate) fn new(quota: Quota) -> (Self, impl Stream<Item = ActionKey> + Send + 'static) {
        let (sender, mut granted) = mpsc::unbounded_channel();
        let pool = Pool {
            quota,
            state: Mutex::default(),
            granted: sender,
        };
        let granted = stream::poll_fn(move |context| granted.poll_recv(context));
        (Self { pool: pool.into() }, granted)
    }

    /// What an action with this slot has of the quota.
    pub(crate) fn state_of(&self, slot: Option<&Arc<Slot>>) -> SlotState {
        match slot {
            None if self.pool.quota.is_unlimited() => SlotState::Unlimited,
            None => SlotState::NotRequested,
            Some(slot) if self.pool.state().waiting.contains_key(&slot.ticket) => {
                SlotState::Waiting
            }
            Some(_) => SlotState::Granted,
        }
    }

    /// The slot of a job that runs: it counts even where the quota is used up.
    pub(crate) fn take(&self, scope: &QuotaScope) -> Arc<Slot> {
        let mut state = self.pool.state();
        state.take(scope);
        self.slot(&mut state, scope)
    }

    /// A slot for a job that is to begin. If none is free, the action waits for one.
    pub(crate) fn request(&self, key: &ActionKey, scope: &QuotaScope) -> Arc<Slot> {
        let mut state = self.pool.state();
        let slot = self.slot(&mut state, scope);
        if state.has_free(self.pool.quota, scope) {
            state.take(scope);
        } else {
            let waiting = (key.clone(), scope.clone());
            state.waiting.insert(slot.ticket, waiting);
        }
        slot
    }

    /// Has a round of this action come.
    pub(crate) fn wake(&self, key: ActionKey) {
        self.pool.wake(key);
    }

    fn slot(&self, state: &mut State, scope: &QuotaScope) -> Arc<Slot> {
        state.next_ticket += 1;
        Arc::new(Slot {
            pool: Arc::clone(&self.pool),
            ticket: state.next_ticket,
            scope: scope.clone(),
        })
    }
}

impl Drop for Slot {
    /// Frees the slot, and grants what is free to the actions that have waited the longest.
    fn drop(&mut self) {
        let mut state = self.pool.state();
        if state.waiting.remove(&self.ticket).is_some() {
            return;
        }
        if let Some(count) = state.taken.get_mut(&self.scope) {
            *count = count.saturating_sub(1);
        }
        for (ticket, (key, scope)) in std::mem::take(&mut state.waiting) {
            if state.has_free(self.pool.quota, &scope) {
                state.take(&scope);
                self.pool.wake(key);
            } else {
                state.waiting.insert(ticket, (key, scope));
            }
        }
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.ticket == other.ticket
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, key: ActionKey) {
        // The receiver is gone once no more rounds come.
        let _ = self.granted.send(key);
    }
}

impl State {
    fn take(&mut self, scope: &QuotaScope) {
        *self.taken.entry(scope.clone()).or_default() += 1;
    }

    fn has_free(&self, quota: Quota, scope: &QuotaScope) -> bool {
        let is_below = |limit: Option<u32>, is_meant: &dyn Fn(&QuotaScope) -> bool| {
            let taken = self.taken.iter().filter(|(scope, _)| is_meant(scope));
            let n_taken: u32 = taken.map(|(_, count)| count).sum();
            limit.is_none_or(|limit| n_taken < limit)
        };
        is_below(quota.total, &|_| true)
            && is_below(quota.of_project, &|other| other.project == scope.project)
            && is_below(quota.of_domain, &|other| other == scope)
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    fn key(name: &str) -> ActionKey {
        ActionKey {
            namespace: "flyte".to_owned(),
            name: name.to_owned(),
        }
    }

    fn scope(project: &str, domain: &str) -> QuotaScope {
        QuotaScope {
            project: project.to_owned(),
            domain: domain.to_owned(),
        }
    }

    fn total(total: u32) -> Quota {
        Quota {
            total: Some(total),
            ..Quota::default()
        }
    }

    #[test]
    fn whoever_waits_is_granted_a_slot_in_the_order_of_arrival() {
        let (slots, mut granted) = Slots::new(total(1));
        let mut next = || granted.next().now_or_never().flatten();
        let request = |name: &str| slots.request(&key(name), &scope("p", "d"));
        let is_granted = |slot: &Arc<Slot>| slots.state_of(Some(slot)) == SlotState::Granted;
        let [a, b, c] = ["a", "b", "c"].map(request);
        assert_eq!([&a, &b, &c].map(is_granted), [true, false, false]);
        assert_eq!(slots.state_of(Some(&b)), SlotState::Waiting);
        assert_eq!(next(), None);
        drop(a);
        assert_eq!((next(), next()), (Some(key("b")), None));
        assert_eq!([&b, &c].map(is_granted), [true, false]);
        drop(c);
        drop(b);
        assert_eq!(next(), None, "who waited is gone");
        assert!(is_granted(&request("d")));
    }

    #[test]
    fn a_project_and_a_domain_have_limits_of_their_own() {
        let (slots, mut granted) = Slots::new(Quota {
            total: Some(4),
            of_project: Some(3),
            of_domain: Some(2),
        });
        let mut held = BTreeMap::new();
        for (name, (project, domain), expected) in [
            ("a", ("p", "d"), true),
            ("b", ("p", "d"), true),
            ("c", ("p", "d"), false),
            ("d", ("p", "e"), true),
            ("e", ("p", "f"), false),
            ("f", ("q", "d"), true),
            ("g", ("r", "d"), false),
        ] {
            let slot = slots.request(&key(name), &scope(project, domain));
            let is_granted = slots.state_of(Some(&slot)) == SlotState::Granted;
            assert_eq!(is_granted, expected, "{name}");
            held.insert(name, slot);
        }
        // There is a slot for another one of the project, but not of its domain.
        held.remove("d");
        assert_eq!(granted.next().now_or_never(), Some(Some(key("e"))));
        assert_eq!(granted.next().now_or_never(), None);
    }

    #[test]
    fn jobs_that_run_count_even_beyond_the_quota() {
        let (slots, mut granted) = Slots::new(total(1));
        let of = scope("p", "d");
        let [a, b] = [slots.take(&of), slots.take(&of)];
        let c = slots.request(&key("c"), &of);
        drop(b);
        assert_eq!(granted.next().now_or_never(), None);
        drop(a);
        assert_eq!(granted.next().now_or_never(), Some(Some(key("c"))));
        assert_eq!(slots.state_of(Some(&c)), SlotState::Granted);
    }

    #[test]
    fn without_limits_no_slot_is_requested() {
        let (slots, _) = Slots::new(Quota::default());
        assert_eq!(slots.state_of(None), SlotState::Unlimited);
        let (slots, _) = Slots::new(total(1));
        assert_eq!(slots.state_of(None), SlotState::NotRequested);
    }
}
