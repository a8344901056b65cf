//! Which question is sent next: kinds take turns, then the hosts of a kind, then the keys of a host. The kinds that share
//! a rate take turns within it, too. Pure: instants are passed in.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map},
    hash::Hash,
    ops::Bound::{Excluded, Unbounded},
};

use tokio::time::Instant;

use super::{AskLimits, rate::Rate};

/// Questions that wait, and how many are in flight.
///
/// A host that is at its limit keeps no place among those that take turns, so that choosing the next question takes no
/// longer with 10,000 questions to a silent host than with none.
#[derive(Debug)]
pub(super) struct FairQueue<K> {
    limits: AskLimits,
    kinds: BTreeMap<&'static str, Lane<K>>,
    rates: BTreeMap<&'static str, Rate>,
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
        let rates = limits.rates.iter();
        let rates = rates.map(|(name, limit)| (*name, Rate::new(*limit)));
        Self {
            rates: rates.collect(),
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

    pub(super) fn limits(&self) -> &AskLimits {
        &self.limits
    }

    /// The next question that may be sent, which is in flight from now on.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Share, K, u64)> {
        let is_open = |kind: &str| self.rate(kind).is_none_or(|(_, rate)| rate.is_open(now));
        let first = self.first_after(self.last, is_open)?;
        let kind = match self.rate(first) {
            None => first,
            Some((name, rate)) => {
                let shares = |kind: &str| self.limits.of(kind).rate == Some(name);
                self.first_after(rate.last(), shares)?
            }
        };
        let limits = self.limits.of(kind);
        let lane = self.kinds.get_mut(kind)?;
        let (host, key, ticket) = lane.pop(limits.in_flight_per_host)?;
        if let Some(rate) = limits.rate.and_then(|name| self.rates.get_mut(name)) {
            rate.take(kind, now);
        }
        self.last = kind;
        self.n_in_flight += 1;
        self.n_waiting -= 1;
        Some((Share { kind, host }, key, ticket))
    }

    /// When the next question may be sent that waits for nothing but its rate.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let rates = self.kinds.keys().filter(|kind| self.has_next(kind));
        let rates = rates.filter_map(|kind| self.rate(kind)?.1.opens_at());
        rates.min()
    }

    /// The rate that a waiting question waits for; `None` where the number of questions in flight holds it, too.
    pub(super) fn holding_rate(&self, share: &Share, now: Instant) -> Option<&'static str> {
        let (name, rate) = self.rate(share.kind)?;
        let is_ready = self.has_next(share.kind) && {
            let lane = self.kinds.get(share.kind)?;
            let most = self.limits.of(share.kind).in_flight_per_host;
            lane.hosts.get(&share.host)?.n_in_flight < most
        };
        (is_ready && !rate.is_open(now)).then_some(name)
    }

    /// The first kind after `last`, of those of `kinds` that have a question which may be sent, rates aside.
    fn first_after(
        &self,
        last: &'static str,
        kinds: impl Fn(&str) -> bool,
    ) -> Option<&'static str> {
        let after = self.kinds.range::<&str, _>((Excluded(last), Unbounded));
        let in_turn = after.chain(self.kinds.range::<&str, _>(..=last));
        let mut in_turn = in_turn.map(|(kind, _)| *kind);
        in_turn.find(|kind| kinds(kind) && self.has_next(kind))
    }

    /// Whether a question of this kind may be sent, its rate aside.
    fn has_next(&self, kind: &str) -> bool {
        let is_free = |lane: &Lane<K>| {
            lane.n_in_flight < self.limits.of(kind).in_flight && !lane.ready.order.is_empty()
        };
        self.n_in_flight < self.limits.in_flight && self.kinds.get(kind).is_some_and(is_free)
    }

    /// The rate of a kind, and its name.
    fn rate(&self, kind: &str) -> Option<(&'static str, &Rate)> {
        let name = self.limits.of(kind).rate?;
        Some((name, self.rates.get(name)?))
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

    /// A question that had its turn is not sent: its place, and its part of the rate, are for another one.
    pub(super) fn give_back(&mut self, share: &Share) {
        let rate = self.limits.of(share.kind).rate;
        if let Some(rate) = rate.and_then(|name| self.rates.get_mut(name)) {
            rate.give_back();
        }
        self.ended(share);
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
    use std::time::Duration;

    use super::*;
    use crate::ask::{KindLimits, RateLimit};

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
        all_at(queue, Instant::now())
    }

    fn all_at<K: Clone + Eq + Hash>(
        queue: &mut FairQueue<K>,
        now: Instant,
    ) -> Vec<(Share, K, u64)> {
        std::iter::from_fn(|| queue.pop(now)).collect()
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
        let now = Instant::now();
        let (in_flight, ..) = queue.pop(now).unwrap();
        queue.remove(&share("get", "a"), &1, 1);
        queue.remove(&share("get", "a"), &1, 3);
        queue.remove(&share("get", "a"), &1, 3);
        queue.remove(&share("get", "elsewhere"), &1, 3);
        queue.ended(&in_flight);
        let (in_flight, key, ticket) = queue.pop(now).unwrap();
        assert_eq!((key, ticket), (0, 2));
        queue.ended(&in_flight);
        assert!(queue.is_empty());
        assert_eq!(queue.counts().collect::<Vec<_>>(), [("get", 0, 0)]);
    }

    /// Kinds `begin` and `end` share a rate of ten a second, one at once; `get` has none.
    fn rated() -> AskLimits {
        let limit = RateLimit {
            per_second: 10,
            burst: 1,
        };
        let of_rate = KindLimits {
            rate: Some("writes"),
            ..limits(100, 100, 50).each
        };
        let limits = limits(100, 100, 50).rate("writes", limit);
        limits.kind("begin", of_rate).kind("end", of_rate)
    }

    #[test]
    fn the_kinds_of_a_rate_and_their_hosts_take_turns_within_it() {
        let mut queue = FairQueue::new(rated());
        let mut tickets = 0..;
        let mut push = |queue: &mut FairQueue<u64>, kind: &'static str, host: &str, n: usize| {
            for ticket in tickets.by_ref().take(n) {
                queue.push(&share(kind, host), &ticket, ticket);
            }
        };
        push(&mut queue, "end", "broken", 40);
        push(&mut queue, "begin", "broken", 40);
        push(&mut queue, "begin", "well", 1);
        push(&mut queue, "get", "broken", 1);
        let began = Instant::now();
        let mut sent = Vec::new();
        for tenth in 0..6 {
            // What other kinds send in between changes nothing about whose turn it is.
            push(&mut queue, "get", "well", 1);
            let now = began + Duration::from_millis(100 * tenth);
            let popped = all_at(&mut queue, now).into_iter();
            let popped = popped.filter(|(share, ..)| share.kind != "get");
            let popped: Vec<_> = popped
                .map(|(share, ..)| format!("{} {}", share.kind, share.host))
                .collect();
            assert_eq!(popped.len(), 1, "ten a second");
            sent.extend(popped);
            assert_eq!(queue.next_due(), Some(now + Duration::from_millis(100)));
        }
        let expected = [
            "begin broken",
            "end broken",
            "begin well",
            "end broken",
            "begin broken",
            "end broken",
        ];
        assert_eq!(sent, expected);
    }

    #[test]
    fn what_waits_for_a_rate_only_is_told_from_what_waits_for_those_in_flight() {
        let mut queue = FairQueue::new(rated());
        let now = Instant::now();
        assert_eq!(queue.next_due(), None);
        for ticket in 0..60 {
            queue.push(&share("end", "a"), &ticket, ticket);
        }
        assert_eq!(
            queue.holding_rate(&share("end", "a"), now),
            None,
            "its turn"
        );
        all_at(&mut queue, now);
        let holding = queue.holding_rate(&share("end", "a"), now);
        assert_eq!(holding, Some("writes"));
        let later = now + Duration::from_secs(60);
        for _ in 1..50 {
            let now = queue.next_due().unwrap();
            assert_eq!(all_at(&mut queue, now).len(), 1);
        }
        assert_eq!(queue.next_due(), None, "fifty are in flight to the host");
        let holding = queue.holding_rate(&share("end", "a"), now);
        assert_eq!(holding, None, "fifty are in flight to the host");
        assert_eq!(all_at(&mut queue, later).len(), 0);
        let unrated = share("get", "a");
        queue.push(&unrated, &0, 100);
        assert_eq!(queue.holding_rate(&unrated, now), None);
    }
}
