//! Asks foreign systems beside the rounds: whatever a foreign system does, no round waits for it.
//!
//! 1. A plan has an [`Action::Ask`](longshore_core::Action::Ask) with a [`Question`]. The plan goes on at once.
//! 2. The runner sends the question when it is its turn ([`AskLimits`]), through [`Controller::ask`], for as long as
//!    the lease is held. One question of a kind, and about the same thing, is in flight for a key at a time.
//!    Where a question [is recorded first](longshore_core::Question::is_recorded_first), its turn leads to a round: the
//!    plan records the question and asks again, and only then it is sent. Until that round nothing is on record, so that
//!    the next process just asks. A [turn](Turn) that no plan uses lapses, and is the next question's.
//! 3. The answer, or the reason why there is none, leads to a round of the key. `observe` finds it in [`Answers`] and
//!    cannot take it: it stays until a plan says [`Action::Used`](longshore_core::Action::Used), after the record of
//!    what it means, or asks again.
//!    Only an answer that may be asked for again and for which there is no room goes before that
//!    ([`AskLimits::answer_bytes`]): the kit asks for it again.
//! 4. What was asked about an object that is gone, or about another
//!    [incarnation](longshore_core::Incarnation) of it, is cancelled and forgotten.
//!
//! A foreign system that never answers costs its own questions a [`Failed`](longshore_core::Asked::Failed) after their
//! time limit, and holds its own share of the limits. Kinds, hosts and keys take turns, so that its other questions
//! wait behind each other and no other system's wait behind them. However many hosts never answer, each further one has
//! a share of what is left only, so that a host without a question in flight finds a place. The same holds for the rates
//! that kinds may share: a question waits for its rate here, before it is sent. At shutdown the questions in flight are
//! aborted, but for those that are recorded first: the answers that come within 2 s still lead to rounds.

mod answers;
mod asks;
mod fair;
mod rate;
mod room;
mod table;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

#[cfg(doc)]
use longshore_core::Question;
use longshore_k8s::Backoff;

#[cfg(doc)]
use crate::controller::Controller;
pub use answers::{Answers, Failures, Turn, Unanswered, WaitsFor};
pub(crate) use asks::{Asks, News, Questions};
pub use rate::RateLimit;

/// Before a question that failed is sent again, however soon a plan asks again: a controller does not loop with a
/// foreign system that refuses at once.
const NOT_AT_ONCE: Backoff = Backoff {
    first: Duration::from_millis(100),
    max: Duration::from_secs(5),
};

/// A host may have one more question in flight while this many times what it has is less than the places that are free.
const SHARE: usize = 4;

/// How many questions of a controller may be in flight, and how long each may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskLimits {
    /// In all; default 256.
    pub in_flight: usize,
    /// How many bytes of large answers may wait for their use; default 64 MiB. Where an answer has no room, those that have
    /// waited the longest give theirs back, and are asked for again later.
    pub answer_bytes: usize,
    /// Of each kind that has no limits of its own.
    pub each: KindLimits,
    /// Of kinds with limits of their own.
    pub kinds: BTreeMap<&'static str, KindLimits>,
    /// Limits of the rates that kinds name; default none.
    pub rates: BTreeMap<&'static str, RateLimit>,
}

/// Limits of the questions of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindLimits {
    /// How many may be in flight; default 128.
    pub in_flight: usize,
    /// How many of them to one host; default 16. A host has no more than a quarter of the places that are free, or one:
    /// each further host that never answers takes a share of the rest. Where this is `in_flight`, the kind has one host,
    /// which may have all of them.
    pub in_flight_per_host: usize,
    /// Time from the sending to the end of the answer; default 10 s.
    pub timeout: Duration,
    /// The most bytes of an answer that the transport reads; default 1 MiB.
    pub answer_bytes: usize,
    /// From a failure to the next sending of the same question, at least; default 100 ms, doubling to 5 s.
    pub backoff: Backoff,
    /// The rate that its questions count against, one of [`AskLimits::rates`], which kinds may share; default none.
    pub rate: Option<&'static str>,
}

impl Default for AskLimits {
    fn default() -> Self {
        Self {
            in_flight: 256,
            answer_bytes: 64 << 20,
            each: KindLimits::default(),
            kinds: BTreeMap::new(),
            rates: BTreeMap::new(),
        }
    }
}

impl Default for KindLimits {
    fn default() -> Self {
        Self {
            in_flight: 128,
            in_flight_per_host: 16,
            timeout: Duration::from_secs(10),
            answer_bytes: 1 << 20,
            backoff: NOT_AT_ONCE,
            rate: None,
        }
    }
}

impl KindLimits {
    /// Whether a host with so many questions in flight may have one more, where the kind has so many. If it may, so may
    /// any host with fewer.
    fn have_place(&self, of_host: usize, of_kind: usize) -> bool {
        let n_free = self.in_flight.saturating_sub(of_kind);
        let has_share = if self.in_flight_per_host < self.in_flight {
            of_host.saturating_mul(SHARE) < n_free
        } else {
            n_free > 0
        };
        has_share && of_host < self.in_flight_per_host
    }
}

impl AskLimits {
    /// The same with these limits of one kind.
    #[must_use]
    pub fn kind(mut self, kind: &'static str, limits: KindLimits) -> Self {
        self.kinds.insert(kind, limits);
        self
    }

    /// The same with this limit of a rate that kinds name.
    #[must_use]
    pub fn rate(mut self, name: &'static str, limit: RateLimit) -> Self {
        self.rates.insert(name, limit);
        self
    }

    /// The limits of a kind.
    pub fn of(&self, kind: &str) -> KindLimits {
        self.kinds.get(kind).copied().unwrap_or(self.each)
    }
}
