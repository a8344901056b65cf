//! What came of a round, recorded in one place.

use std::sync::atomic::{AtomicU64, Ordering};

/// What came of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The plan had actions, and all of them were applied.
    Applied,
    /// Nothing to do now, but at a known time.
    Waiting,
    /// Nothing to do.
    Skipped,
    /// The round ended with an error or a panic.
    Failed,
    /// The round was dropped before its end: shutdown that took too long, or a killed process.
    Abandoned,
}

/// How many rounds ended how.
#[derive(Debug, Default)]
pub struct Counters {
    applied: AtomicU64,
    waiting: AtomicU64,
    skipped: AtomicU64,
    failed: AtomicU64,
    abandoned: AtomicU64,
}

impl Counters {
    /// Rounds that ended this way.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.counter(outcome).load(Ordering::Relaxed)
    }

    /// All rounds.
    pub fn total(&self) -> u64 {
        [
            Outcome::Applied,
            Outcome::Waiting,
            Outcome::Skipped,
            Outcome::Failed,
            Outcome::Abandoned,
        ]
        .map(|outcome| self.of(outcome))
        .iter()
        .sum()
    }

    pub(crate) fn record(&self, outcome: Outcome) {
        self.counter(outcome).fetch_add(1, Ordering::Relaxed);
        tracing::trace!(?outcome, "round ended");
    }

    fn counter(&self, outcome: Outcome) -> &AtomicU64 {
        match outcome {
            Outcome::Applied => &self.applied,
            Outcome::Waiting => &self.waiting,
            Outcome::Skipped => &self.skipped,
            Outcome::Failed => &self.failed,
            Outcome::Abandoned => &self.abandoned,
        }
    }
}
