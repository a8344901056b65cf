//! Which key is due when. Pure: the runner passes the instants in.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use longshore_core::{Class, Next};
use longshore_k8s::Backoff;
use tokio::time::Instant;

use crate::controller::Key;

/// Back-off after a conflict, from the second one in a row on.
const CONFLICT: Backoff = Backoff {
    first: Duration::from_millis(50),
    max: Duration::from_secs(5),
};
/// Back-off after errors that do not pass by themselves, from the second one in a row on.
const SLOW: Backoff = Backoff {
    first: Duration::from_secs(10),
    max: Duration::from_secs(300),
};

/// The keys that wait, run, or came again while they ran.
///
/// One key is in one place only: a trigger for a waiting key brings it forward, one for a running key brings it back
/// after the round. A key in back-off is not brought forward past the back-off, else a round that writes before it
/// fails would trigger itself without end.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    /// By due time, then in the order of arrival.
    schedule: BTreeSet<(Instant, u64, K)>,
    entries: HashMap<K, Entry>,
    n_arrivals: u64,
}

#[derive(Debug)]
struct Entry {
    state: State,
    n_failures: u32,
    /// No trigger brings it forward past this.
    not_before: Option<Instant>,
}

#[derive(Debug)]
enum State {
    Waiting { due: Instant, arrival: u64 },
    Running { again: bool },
}

/// What a round left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    Well(Next),
    Badly(Class, Option<Duration>),
}

impl<K: Key> Queue<K> {
    pub(crate) fn new() -> Self {
        Self {
            schedule: BTreeSet::new(),
            entries: HashMap::new(),
            n_arrivals: 0,
        }
    }

    /// Something about `key` changed. Where `now` is earlier, it goes before those that have waited since then.
    pub(crate) fn trigger(&mut self, key: K, now: Instant) {
        match self.entries.get_mut(&key) {
            None => self.wait(key, now, 0, None),
            Some(entry) => match &mut entry.state {
                State::Running { again } => *again = true,
                State::Waiting { due, .. } => {
                    let wanted = entry.not_before.map_or(now, |at| at.max(now));
                    if wanted < *due {
                        let (n_failures, not_before) = (entry.n_failures, entry.not_before);
                        self.wait(key, wanted, n_failures, not_before);
                    }
                }
            },
        }
    }

    /// Takes the key that is due for the longest time; it runs until [`finish`](Self::finish).
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        if self.schedule.first()?.0 > now {
            return None;
        }
        let (_, _, key) = self.schedule.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = State::Running { again: false };
        }
        Some(key)
    }

    /// How many keys wait, those that are due later included.
    pub(crate) fn n_waiting(&self) -> usize {
        self.schedule.len()
    }

    /// When the next key is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.schedule.first().map(|(due, _, _)| *due)
    }

    /// A round of `key` ended; answers how many failures in a row that makes.
    pub(crate) fn finish(&mut self, key: K, finished: Finished, now: Instant) -> u32 {
        let Some(entry) = self.entries.remove(&key) else {
            return 0;
        };
        let is_again = matches!(entry.state, State::Running { again: true });
        match finished {
            Finished::Well(next) => {
                let due = match next {
                    _ if is_again => Some(now),
                    Next::After(wait) => now.checked_add(wait),
                    Next::AwaitChange => None,
                };
                if let Some(due) = due {
                    self.wait(key, due, 0, None);
                }
                0
            }
            Finished::Badly(class, retry_after) => {
                let n_failures = entry.n_failures.saturating_add(1);
                let (soonest, latest) = waits(class, n_failures, retry_after);
                let wait = if is_again { soonest } else { latest };
                self.wait(key, now + wait, n_failures, Some(now + soonest));
                n_failures
            }
        }
    }

    fn wait(&mut self, key: K, due: Instant, n_failures: u32, not_before: Option<Instant>) {
        self.n_arrivals += 1;
        let arrival = self.n_arrivals;
        let entry = Entry {
            state: State::Waiting { due, arrival },
            n_failures,
            not_before,
        };
        if let Some(Entry {
            state: State::Waiting { due, arrival },
            ..
        }) = self.entries.insert(key.clone(), entry)
        {
            self.schedule.remove(&(due, arrival, key.clone()));
        }
        self.schedule.insert((due, arrival, key));
    }
}

/// How long a key stays away after its `n`-th failure in a row: at least, whatever triggers it, and at most.
fn waits(class: Class, n: u32, retry_after: Option<Duration>) -> (Duration, Duration) {
    let retry = Backoff::RETRY.wait(n).max(retry_after.unwrap_or_default());
    match class {
        Class::Conflict => {
            let wait = CONFLICT.wait(n.saturating_sub(1));
            (wait, wait)
        }
        Class::Retry => (retry, retry),
        // The first time soon, so that the refusal becomes a fact; then only a change of the input helps.
        Class::Invalid => (retry, retry.max(SLOW.wait(n.saturating_sub(1)))),
        Class::Bug => (retry, retry.max(SLOW.wait(n))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once_and_runs_once_at_a_time() {
        let mut queue = Queue::new();
        let now = Instant::now();
        queue.trigger("a", now);
        queue.trigger("b", now);
        queue.trigger("a", now);
        assert_eq!(queue.pop(now), Some("a"));
        queue.trigger("a", now);
        assert_eq!(queue.pop(now), Some("b"));
        assert_eq!(queue.pop(now), None);
        queue.finish("a", Finished::Well(Next::AwaitChange), now);
        assert_eq!(queue.pop(now), Some("a"));
        queue.finish("a", Finished::Well(Next::AwaitChange), now);
        queue.finish("b", Finished::Well(Next::AwaitChange), now);
        assert_eq!(queue.next_due(), None);
        assert!(queue.entries.is_empty(), "an idle key costs nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_brings_a_waiting_key_forward() {
        let mut queue = Queue::new();
        let now = Instant::now();
        queue.trigger("a", now);
        queue.pop(now);
        queue.finish("a", Finished::Well(Next::After(secs(60))), now);
        assert_eq!(queue.next_due(), Some(now + secs(60)));
        queue.trigger("a", now + secs(1));
        assert_eq!(queue.next_due(), Some(now + secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_start_goes_before_those_who_wait_but_not_for_long() {
        let mut queue = Queue::new();
        let (begin, now) = (Instant::now(), Instant::now() + secs(10));
        queue.trigger("waited long", begin);
        queue.trigger("waited", now - secs(1));
        queue.trigger("new", now - secs(5));
        for key in ["waited long", "new", "waited"] {
            assert_eq!(queue.pop(now), Some(key));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_does_not_shorten_a_back_off() {
        let mut queue = Queue::new();
        let now = Instant::now();
        queue.trigger("a", now);
        queue.pop(now);
        queue.finish("a", Finished::Badly(Class::Retry, Some(secs(7))), now);
        queue.trigger("a", now + secs(1));
        assert_eq!(queue.next_due(), Some(now + secs(7)));
    }

    #[test]
    fn waits_follow_the_class() {
        let ms = Duration::from_millis;
        let table = [
            (Class::Conflict, 1, ms(0), ms(0)),
            (Class::Conflict, 2, ms(50), ms(50)),
            (Class::Retry, 1, ms(100), ms(100)),
            (Class::Retry, 3, ms(400), ms(400)),
            (Class::Invalid, 1, ms(100), ms(100)),
            (Class::Invalid, 2, ms(200), secs(10)),
            (Class::Bug, 1, ms(100), secs(10)),
        ];
        for (class, n, soonest, latest) in table {
            assert_eq!(waits(class, n, None), (soonest, latest), "{class:?} {n}");
        }
    }
}
