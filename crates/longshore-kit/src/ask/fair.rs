//! Which question is sent next: kinds take turns, then the hosts of a kind, then the keys of a host. Pure.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map},
    hash::Hash,
    ops::Bound::{Excluded, Unbounded},
};

use super::AskLimits;

/// Questions that wait, and how many are in flight.
///
/// A host that is at its limit keeps no place among those that take turns, so that choosing the next question takes no
/// longer with 10,000 questions to a silent host than with none.
#[derive(Debug)]
pub(super) struct FairQueue<K> {
    limits: AskLimits,
    kinds: BTreeMap<&'static str, Lane<K>>,
    n_in_flight: usize,
    n_waiting: usize,
    /// Whose turn it was last.
    last: &'static str,
}

/// The questions of one kind.
#[derive(Debug)]
struct Lane<K> {
    hosts: HashMap<String, Host<K>>,
    /// Hosts with questions that may be sent.
    ready: Turns<String>,
    n_in_flight: usize,
    n_waiting: usize,
}

/// The questions of one kind to one host.
#[derive(Debug)]
struct Host<K> {
    keys: HashMap<K, VecDeque<u64>>,
    turns: Turns<K>,
    n_in_flight: usize,
}

/// Members that take turns, in the order of their arrival.
#[derive(Debug)]
struct Turns<T> {
    order: BTreeMap<u64, T>,
    places: HashMap<T, u64>,
    n_arrivals: u64,
}

/// What a question counts against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) kind: &'static str,
    pub(super) host: String,
}

impl<K: Clone + Eq + Hash> FairQueue<K> {
    pub(super) fn new(limits: AskLimits) -> Self {
        Self {
            limits,
            kinds: BTreeMap::new(),
            n_in_flight: 0,
            n_waiting: 0,
            last: "",
        }
    }

    /// A question waits. `ticket` is its own.
    pub(super) fn push(&mut self, share: &Share, key: &K, ticket: u64) {
        let most = self.limits.of(share.kind).in_flight_per_host;
        let lane = self.kinds.entry(share.kind).or_default();
        let host = lane.hosts.entry(share.host.clone()).or_default();
        host.keys.entry(key.clone()).or_default().push_back(ticket);
        host.turns.arrive(key);
        if host.n_in_flight < most {
            lane.ready.arrive(&share.host);
        }
        lane.n_waiting += 1;
        self.n_waiting += 1;
    }

    /// A question waits no more, without being sent.
    pub(super) fn remove(&mut self, share: &Share, key: &K, ticket: u64) {
        let Some(lane) = self.kinds.get_mut(share.kind) else {
            return;
        };
        let Some(host) = lane.hosts.get_mut(&share.host) else {
            return;
        };
        let hash_map::Entry::Occupied(mut tickets) = host.keys.entry(key.clone()) else {
            return;
        };
        let n_before = tickets.get().len();
        tickets.get_mut().retain(|waiting| *waiting != ticket);
        let n_removed = n_before - tickets.get().len();
        if tickets.get().is_empty() {
            tickets.remove();
            host.turns.leave(key);
        }
        lane.n_waiting -= n_removed;
        self.n_waiting -= n_removed;
        lane.tidy(&share.host);
    }

    /// The next question that may be sent, which is in flight from now on.
    pub(super) fn pop(&mut self) -> Option<(Share, K, u64)> {
        if self.n_in_flight >= self.limits.in_flight {
            return None;
        }
        let after = self
            .kinds
            .range::<&str, _>((Excluded(self.last), Unbounded));
        let kinds = after.chain(self.kinds.range::<&str, _>(..=self.last));
        let mut free = kinds.filter(|(kind, lane)| {
            lane.n_in_flight < self.limits.of(kind).in_flight && !lane.ready.order.is_empty()
        });
        let kind = *free.next()?.0;
        let most = self.limits.of(kind).in_flight_per_host;
        let lane = self.kinds.get_mut(kind)?;
        let (host, key, ticket) = lane.pop(most)?;
        self.last = kind;
        self.n_in_flight += 1;
        self.n_waiting -= 1;
        Some((Share { kind, host }, key, ticket))
    }

    /// A question is in flight no more.
    pub(super) fn ended(&mut self, share: &Share) {
        let most = self.limits.of(share.kind).in_flight_per_host;
        let Some(lane) = self.kinds.get_mut(share.kind) else {
            return;
        };
        let Some(host) = lane.hosts.get_mut(&share.host) else {
            return;
        };
        host.n_in_flight -= 1;
        lane.n_in_flight -= 1;
        self.n_in_flight -= 1;
        if !host.keys.is_empty() && host.n_in_flight < most {
            lane.ready.arrive(&share.host);
        }
        lane.tidy(&share.host);
    }

    /// By kind: how many wait, and how many are in flight. A kind stays in the list once there was a question of it.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, usize, usize)> {
        let kinds = self.kinds.iter();
        kinds.map(|(kind, lane)| (*kind, lane.n_waiting, lane.n_in_flight))
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        let is_idle = |lane: &Lane<K>| lane.hosts.is_empty() && lane.ready.order.is_empty();
        self.n_waiting == 0 && self.n_in_flight == 0 && self.kinds.values().all(is_idle)
    }
}

impl<K: Clone + Eq + Hash> Lane<K> {
    fn pop(&mut self, most: usize) -> Option<(String, K, u64)> {
        let name = self.ready.next()?;
        let host = self.hosts.get_mut(&name)?;
        let key = host.turns.next()?;
        let tickets = host.keys.get_mut(&key)?;
        let ticket = tickets.pop_front()?;
        if tickets.is_empty() {
            host.keys.remove(&key);
        } else {
            host.turns.arrive(&key);
        }
        host.n_in_flight += 1;
        if !host.keys.is_empty() && host.n_in_flight < most {
            self.ready.arrive(&name);
        }
        self.n_in_flight += 1;
        self.n_waiting -= 1;
        Some((name, key, ticket))
    }

    /// Forgets a host of which nothing waits or is in flight.
    fn tidy(&mut self, name: &String) {
        let Some(host) = self.hosts.get(name) else {
            return;
        };
        if host.keys.is_empty() {
            self.ready.leave(name);
            if host.n_in_flight == 0 {
                self.hosts.remove(name);
            }
        }
    }
}

impl<T: Clone + Eq + Hash> Turns<T> {
    /// Takes a place at the end, unless it has one.
    fn arrive(&mut self, member: &T) {
        if let hash_map::Entry::Vacant(place) = self.places.entry(member.clone()) {
            self.n_arrivals += 1;
            place.insert(self.n_arrivals);
            self.order.insert(self.n_arrivals, member.clone());
        }
    }

    /// Takes out whose turn it is.
    fn next(&mut self) -> Option<T> {
        let (_, member) = self.order.pop_first()?;
        self.places.remove(&member);
        Some(member)
    }

    fn leave(&mut self, member: &T) {
        if let Some(place) = self.places.remove(member) {
            self.order.remove(&place);
        }
    }
}

impl<K> Default for Lane<K> {
    fn default() -> Self {
        Self {
            hosts: HashMap::new(),
            ready: Turns::default(),
            n_in_flight: 0,
            n_waiting: 0,
        }
    }
}

impl<K> Default for Host<K> {
    fn default() -> Self {
        Self {
            keys: HashMap::new(),
            turns: Turns::default(),
            n_in_flight: 0,
        }
    }
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            order: BTreeMap::new(),
            places: HashMap::new(),
            n_arrivals: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::KindLimits;

    fn limits(all: usize, kind: usize, host: usize) -> AskLimits {
        let each = KindLimits {
            in_flight: kind,
            in_flight_per_host: host,
            ..KindLimits::default()
        };
        AskLimits {
            in_flight: all,
            each,
            ..AskLimits::default()
        }
    }

    fn share(kind: &'static str, host: &str) -> Share {
        let host = host.to_owned();
        Share { kind, host }
    }

    fn all<K: Clone + Eq + Hash>(queue: &mut FairQueue<K>) -> Vec<(Share, K, u64)> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn kinds_hosts_and_keys_take_turns() {
        let mut queue = FairQueue::new(limits(100, 100, 100));
        for ticket in 0..3 {
            queue.push(&share("get", "a"), &"greedy", ticket);
        }
        queue.push(&share("get", "a"), &"modest", 3);
        queue.push(&share("get", "b"), &"modest", 4);
        queue.push(&share("put", "a"), &"modest", 5);
        let order: Vec<u64> = all(&mut queue).iter().map(|(.., ticket)| *ticket).collect();
        assert_eq!(order, [0, 5, 4, 3, 1, 2]);
    }

    #[test]
    fn each_limit_holds_and_the_others_go_on() {
        let mut queue = FairQueue::new(limits(5, 4, 2));
        for ticket in 0..10 {
            queue.push(&share("get", "a"), &ticket, ticket);
        }
        let of_a = all(&mut queue);
        assert_eq!(of_a.len(), 2, "of one host");
        for ticket in 10..20 {
            queue.push(&share("get", "b"), &ticket, ticket);
            queue.push(&share("get", "c"), &ticket, ticket + 10);
        }
        assert_eq!(all(&mut queue).len(), 2, "of one kind");
        queue.push(&share("put", "d"), &30, 30);
        queue.push(&share("put", "d"), &31, 31);
        let put = all(&mut queue);
        assert_eq!(put.len(), 1, "of all");
        // The last one was a `put`, so that the place that gets free is for a `get`, and the next one for a `put`.
        queue.ended(&of_a[0].0);
        let get = all(&mut queue);
        assert_eq!(get.len(), 1, "of all");
        assert_eq!(get[0].0.kind, "get");
        queue.ended(&get[0].0);
        assert_eq!(all(&mut queue)[0].0, share("put", "d"));
    }

    #[test]
    fn what_ends_or_is_removed_leaves_nothing_behind() {
        let mut queue = FairQueue::new(limits(10, 10, 1));
        for ticket in 0..4 {
            queue.push(&share("get", "a"), &(ticket % 2), ticket);
        }
        let (in_flight, ..) = queue.pop().unwrap();
        queue.remove(&share("get", "a"), &1, 1);
        queue.remove(&share("get", "a"), &1, 3);
        queue.remove(&share("get", "a"), &1, 3);
        queue.remove(&share("get", "elsewhere"), &1, 3);
        queue.ended(&in_flight);
        let (in_flight, key, ticket) = queue.pop().unwrap();
        assert_eq!((key, ticket), (0, 2));
        queue.ended(&in_flight);
        assert!(queue.is_empty());
        assert_eq!(queue.counts().collect::<Vec<_>>(), [("get", 0, 0)]);
    }
}
