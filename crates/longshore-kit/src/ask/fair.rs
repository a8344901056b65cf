//! Which question is sent next: kinds take turns, then the hosts of a kind, then the keys of a host. The kinds that share
//! a rate take turns within it, too. Pure: instants are passed in.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map},
    hash::Hash,
    ops::Bound::{Excluded, Unbounded},
};

use tokio::time::Instant;

use super::{AskLimits, KindLimits, rate::Rate};

/// Questions that wait, and how many are in flight.
///
/// Choosing the next question takes no longer with 10,000 questions to a silent host than with none: the hosts of a kind
/// stand in one line for each number of questions that they have in flight, and there are few such numbers.
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
    /// Hosts with questions that wait.
    lines: Lines,
    n_in_flight: usize,
    n_waiting: usize,
}

/// The questions of one kind to one host.
#[derive(Debug)]
struct Host<K> {
    keys: HashMap<K, VecDeque<u64>>,
    turns: Turns<K>,
    n_in_flight: usize,
    /// Its place in a line, while a question waits.
    place: Option<u64>,
}

/// Hosts in the order of their arrival: one line for each number of questions that a host has in flight.
#[derive(Debug, Default)]
struct Lines {
    by_load: BTreeMap<usize, BTreeMap<u64, String>>,
    n_arrivals: u64,
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
        let lane = self.kinds.entry(share.kind).or_default();
        let host = lane.hosts.entry(share.host.clone()).or_default();
        host.keys.entry(key.clone()).or_default().push_back(ticket);
        host.turns.arrive(key);
        if host.place.is_none() {
            host.place = Some(lane.lines.arrive(&share.host, host.n_in_flight));
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
        let (host, key, ticket) = lane.pop(limits)?;
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
            let load = lane.hosts.get(&share.host)?.n_in_flight;
            self.limits
                .of(share.kind)
                .have_place(load, lane.n_in_flight)
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
            let least = lane.lines.by_load.keys().next();
            let limits = self.limits.of(kind);
            least.is_some_and(|load| limits.have_place(*load, lane.n_in_flight))
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
        let Some(lane) = self.kinds.get_mut(share.kind) else {
            return;
        };
        let Some(host) = lane.hosts.get_mut(&share.host) else {
            return;
        };
        let load = host.n_in_flight;
        host.n_in_flight -= 1;
        lane.n_in_flight -= 1;
        self.n_in_flight -= 1;
        if let Some(place) = host.place {
            lane.lines.step_down(place, load);
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
        let is_idle = |lane: &Lane<K>| lane.hosts.is_empty() && lane.lines.by_load.is_empty();
        self.n_waiting == 0 && self.n_in_flight == 0 && self.kinds.values().all(is_idle)
    }
}

impl<K: Clone + Eq + Hash> Lane<K> {
    fn pop(&mut self, limits: KindLimits) -> Option<(String, K, u64)> {
        let n_in_flight = self.n_in_flight;
        let has_place = |load| limits.have_place(load, n_in_flight);
        let name = self.lines.next(has_place)?;
        let host = self.hosts.get_mut(&name)?;
        host.place = None;
        let key = host.turns.next()?;
        let tickets = host.keys.get_mut(&key)?;
        let ticket = tickets.pop_front()?;
        if tickets.is_empty() {
            host.keys.remove(&key);
        } else {
            host.turns.arrive(&key);
        }
        host.n_in_flight += 1;
        if !host.keys.is_empty() {
            host.place = Some(self.lines.arrive(&name, host.n_in_flight));
        }
        self.n_in_flight += 1;
        self.n_waiting -= 1;
        Some((name, key, ticket))
    }

    /// Forgets a host of which nothing waits or is in flight.
    fn tidy(&mut self, name: &String) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        if host.keys.is_empty() {
            if let Some(place) = host.place.take() {
                self.lines.leave(place, host.n_in_flight);
            }
            if host.n_in_flight == 0 {
                self.hosts.remove(name);
            }
        }
    }
}

impl Lines {
    /// Takes a place at the end of the line of the hosts with so many questions in flight.
    fn arrive(&mut self, host: &str, load: usize) -> u64 {
        self.n_arrivals += 1;
        self.stand(self.n_arrivals, load, host.to_owned());
        self.n_arrivals
    }

    /// Takes out whose turn it is, of the hosts that may have one more in flight.
    fn next(&mut self, has_place: impl Fn(usize) -> bool) -> Option<String> {
        let lines = self.by_load.iter();
        let lines = lines.take_while(|(load, _)| has_place(**load));
        let firsts = lines.filter_map(|(load, line)| Some((*line.first_key_value()?.0, *load)));
        let (place, load) = firsts.min()?;
        self.leave(place, load)
    }

    /// A host that waits has one fewer in flight. It keeps its turn.
    fn step_down(&mut self, place: u64, load: usize) {
        if let Some(host) = self.leave(place, load) {
            self.stand(place, load.saturating_sub(1), host);
        }
    }

    fn stand(&mut self, place: u64, load: usize, host: String) {
        self.by_load.entry(load).or_default().insert(place, host);
    }

    fn leave(&mut self, place: u64, load: usize) -> Option<String> {
        let line = self.by_load.get_mut(&load)?;
        let host = line.remove(&place);
        if line.is_empty() {
            self.by_load.remove(&load);
        }
        host
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
            lines: Lines::default(),
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
            place: None,
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
mod tests;
