//! What has happened since the last commit, in order, together with the watch position that it reaches.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use longshore_store::RunKey;
use tokio::sync::Notify;
use uuid::Uuid;

use super::{clear::Clearing, facts::Fact};
use crate::base::position::Reached;

/// Facts that one round takes at most: bounds a round's transaction.
const ROUND_LIMIT: usize = 2_000;

/// The watch stops reading while this many facts wait: memory stays bounded, the API server buffers or closes.
const CAPACITY: usize = 10_000;

/// The scheduler's queue of facts. A fact leaves it only when the commit that holds its effect has succeeded, so a
/// failed commit loses nothing.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    arrived: Notify,
    left: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Each fact with what the watches have reached with it.
    facts: VecDeque<(Fact, Reached)>,
    /// How many of them are about what a try was launched as.
    about: BTreeMap<Uuid, usize>,
    /// The position that all facts which have left reach.
    reached: Reached,
    /// The position that the database has.
    stored: Reached,
}

impl Waiting {
    fn push(&mut self, fact: Fact, position: Reached) {
        if let Fact::Launched(launched) = &fact {
            *self.about.entry(launched.ti_id).or_default() += 1;
        }
        self.facts.push_back((fact, position));
    }

    /// The watches have come this far with the last fact.
    fn note(&mut self, position: Reached) {
        let last = self.facts.back_mut().map(|(_, reached)| reached);
        let reached = last.unwrap_or(&mut self.reached);
        *reached = reached.then(position);
    }

    fn pop(&mut self) {
        let Some((fact, position)) = self.facts.pop_front() else {
            return;
        };
        if let Fact::Launched(launched) = &fact
            && let Some(n_facts) = self.about.get_mut(&launched.ti_id)
        {
            *n_facts -= 1;
            if *n_facts == 0 {
                self.about.remove(&launched.ti_id);
            }
        }
        self.reached = self.reached.then(position);
    }
}

/// What one round works on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    /// The facts, in order.
    pub(crate) facts: Vec<Fact>,
    /// The watch position once these facts are committed, where it differs from the stored one.
    pub(crate) position: Option<Reached>,
}

impl Inbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which position the database has, so that no commit stores it again.
    pub(crate) fn stored(&self, position: Reached) {
        self.waiting().stored = position;
    }

    /// Adds a fact that no watch event carried: never waits.
    pub(crate) fn push(&self, fact: Fact) {
        self.waiting().push(fact, Reached::default());
        self.arrived.notify_one();
    }

    /// Adds a fact of the watch and the position that it reaches; waits while the inbox is full.
    ///
    /// *Cancellation*: dropping it before it returns may leave the fact out; the watch then resumes before it.
    pub(crate) async fn push_watched(&self, fact: Fact, position: Reached) {
        loop {
            let left = self.left.notified();
            {
                let mut waiting = self.waiting();
                if waiting.facts.len() < CAPACITY {
                    waiting.push(fact, position);
                    break;
                }
            }
            left.await;
        }
        self.arrived.notify_one();
    }

    /// Notes that the watch has come this far without a fact. Does not wake the scheduler: the position goes along
    /// with the next commit, and a restart from an older one only replays what is known.
    pub(crate) fn reached(&self, position: Reached) {
        self.waiting().note(position);
    }

    /// The runs that are wanted.
    pub(crate) fn requested(&self) -> Vec<RunKey> {
        let waiting = self.waiting();
        let facts = waiting.facts.iter();
        facts.filter_map(|(fact, _)| fact.requested()).collect()
    }

    /// The clears that are asked for.
    pub(crate) fn clearings(&self) -> Vec<Clearing> {
        let waiting = self.waiting();
        let facts = waiting.facts.iter();
        facts
            .filter_map(|(fact, _)| fact.clearing().cloned())
            .collect()
    }

    /// Whether this clear has not been decided upon.
    pub(crate) fn is_waiting_to_clear(&self, clearing: &Clearing) -> bool {
        let waiting = self.waiting();
        let mut facts = waiting.facts.iter();
        facts.any(|(fact, _)| fact.clearing() == Some(clearing))
    }

    /// Forgets facts of no watch whose effects are on record already.
    pub(crate) fn forget(&self, is_settled: impl Fn(&Fact) -> bool) {
        let mut waiting = self.waiting();
        for (fact, position) in std::mem::take(&mut waiting.facts) {
            if !is_settled(&fact) {
                waiting.facts.push_back((fact, position));
            } else {
                // The position that was noted with it goes to what is before it.
                waiting.note(position);
            }
        }
    }

    /// Whether something about what this try was launched as waits to be decided upon.
    pub(crate) fn is_waiting_for(&self, ti_id: &Uuid) -> bool {
        self.waiting().about.contains_key(ti_id)
    }

    /// Whether it has not been decided upon yet that this is another cluster.
    pub(crate) fn has_cluster_change(&self) -> bool {
        let waiting = self.waiting();
        let mut facts = waiting.facts.iter();
        facts.any(|(fact, _)| *fact == Fact::ClusterChanged)
    }

    /// Lets the scheduler look again, at what is in no fact.
    pub(crate) fn wake(&self) {
        self.arrived.notify_one();
    }

    /// Waits until there is something to do.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// The facts of the next round. They stay in the inbox until [`consume`](Self::consume).
    pub(crate) fn peek(&self) -> Batch {
        let waiting = self.waiting();
        let taken = || waiting.facts.iter().take(ROUND_LIMIT);
        let begin = waiting.stored.then(waiting.reached);
        let position = taken().fold(begin, |before, (_, reached)| before.then(*reached));
        Batch {
            facts: taken().map(|(fact, _)| fact.clone()).collect(),
            position: Some(position).filter(|position| *position != waiting.stored),
        }
    }

    /// Removes the first `n_facts`, whose effects are committed, with the position that was committed along.
    pub(crate) fn consume(&self, n_facts: usize, position: Option<Reached>) {
        let mut waiting = self.waiting();
        for _ in 0..n_facts {
            waiting.pop();
        }
        if let Some(position) = position {
            waiting.stored = position;
        }
        let has_more = !waiting.facts.is_empty();
        drop(waiting);
        self.left.notify_waiters();
        if has_more {
            self.arrived.notify_one();
        }
    }
}
