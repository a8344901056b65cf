//! Which key is due when. Pure: the runner passes the instants in.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
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
///
/// Each key belongs to a group. Groups with due keys take turns, so that the thousands of keys of one group delay a key of
/// another by one turn only; within a group, the key that is due for the longest time comes first.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    /// The groups that have waiting keys.
    groups: HashMap<Name, Group<K>>,
    /// The groups that had due keys at the last look, in the order of their turns.
    turns: VecDeque<Name>,
    /// The other groups, by when their first keys are due.
    upcoming: BTreeSet<(Instant, Name)>,
    entries: HashMap<K, Entry>,
    n_waiting: usize,
    n_arrivals: u64,
}

/// The name of a group. Keys share it.
type Name = Arc<str>;

/// The waiting keys of a group. Those that run are not in it.
#[derive(Debug)]
struct Group<K> {
    /// By due time, then in the order of arrival.
    schedule: BTreeSet<(Instant, u64, K)>,
    /// Whether it is in `turns`, and not in `upcoming`.
    has_turn: bool,
}

#[derive(Debug)]
struct Entry {
    group: Name,
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

impl<K: Key> Group<K> {
    fn first_due(&self) -> Option<Instant> {
        self.schedule.first().map(|(due, _, _)| *due)
    }
}

impl<K: Key> Queue<K> {
    pub(crate) fn new() -> Self {
        Self {
            groups: HashMap::new(),
            turns: VecDeque::new(),
            upcoming: BTreeSet::new(),
            entries: HashMap::new(),
            n_waiting: 0,
            n_arrivals: 0,
        }
    }

    /// Something about `key`, which is of this group, changed. Where `now` is earlier, it goes before those of its group
    /// that have waited since then.
    pub(crate) fn trigger(&mut self, key: K, group: impl FnOnce(&K) -> &str, now: Instant) {
        match self.entries.get_mut(&key) {
            None => {
                let name = group(&key);
                let known = self.groups.get_key_value(name);
                let name = known.map_or_else(|| Name::from(name), |(name, _)| Arc::clone(name));
                self.wait(key, name, now, 0, None);
            }
            Some(entry) => match &mut entry.state {
                State::Running { again } => *again = true,
                State::Waiting { due, .. } => {
                    let wanted = entry.not_before.map_or(now, |at| at.max(now));
                    if wanted < *due {
                        let (n_failures, not_before) = (entry.n_failures, entry.not_before);
                        let group = Arc::clone(&entry.group);
                        self.wait(key, group, wanted, n_failures, not_before);
                    }
                }
            },
        }
    }

    /// Takes the key of the next group that is due for the longest time; it runs until [`finish`](Self::finish).
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        self.give_turns(now);
        let name = self.turns.pop_front()?;
        let group = self.groups.get_mut(&name)?;
        let (_, _, key) = group.schedule.pop_first()?;
        match group.first_due() {
            None => {
                self.groups.remove(&name);
            }
            Some(due) if due <= now => self.turns.push_back(name),
            Some(due) => {
                group.has_turn = false;
                self.upcoming.insert((due, name));
            }
        }
        self.n_waiting -= 1;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = State::Running { again: false };
        }
        Some(key)
    }

    /// Groups whose first keys have become due come after those that have a turn already.
    fn give_turns(&mut self, now: Instant) {
        while self.upcoming.first().is_some_and(|(due, _)| *due <= now)
            && let Some((_, name)) = self.upcoming.pop_first()
        {
            if let Some(group) = self.groups.get_mut(&name) {
                group.has_turn = true;
            }
            self.turns.push_back(name);
        }
    }

    /// Drops the keys that wait: from now on only those come that are triggered.
    pub(crate) fn clear(&mut self) {
        self.groups.clear();
        self.turns.clear();
        self.upcoming.clear();
        self.n_waiting = 0;
        self.entries.retain(|_, entry| match &mut entry.state {
            State::Waiting { .. } => false,
            State::Running { again } => {
                *again = false;
                true
            }
        });
    }

    /// How many keys wait, those that are due later included.
    pub(crate) fn n_waiting(&self) -> usize {
        self.n_waiting
    }

    /// When the next key is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let next = self.turns.front().and_then(|name| self.groups.get(name));
        let upcoming = || self.upcoming.first().map(|(due, _)| *due);
        next.and_then(Group::first_due).or_else(upcoming)
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
                    self.wait(key, entry.group, due, 0, None);
                }
                0
            }
            Finished::Badly(class, retry_after) => {
                let n_failures = entry.n_failures.saturating_add(1);
                let (soonest, latest) = waits(class, n_failures, retry_after);
                let wait = if is_again { soonest } else { latest };
                let not_before = Some(now + soonest);
                self.wait(key, entry.group, now + wait, n_failures, not_before);
                n_failures
            }
        }
    }

    fn wait(
        &mut self,
        key: K,
        name: Name,
        due: Instant,
        n_failures: u32,
        not_before: Option<Instant>,
    ) {
        self.n_arrivals += 1;
        let arrival = self.n_arrivals;
        let entry = Entry {
            group: Arc::clone(&name),
            state: State::Waiting { due, arrival },
            n_failures,
            not_before,
        };
        let before = self.entries.insert(key.clone(), entry);
        let group = self.groups.entry(Arc::clone(&name));
        let group = group.or_insert_with(|| Group {
            schedule: BTreeSet::new(),
            has_turn: false,
        });
        let first_before = group.first_due();
        if let Some(Entry {
            state: State::Waiting { due, arrival },
            ..
        }) = before
        {
            group.schedule.remove(&(due, arrival, key.clone()));
            self.n_waiting -= 1;
        }
        group.schedule.insert((due, arrival, key));
        self.n_waiting += 1;
        let first = group.first_due();
        // A group that has a turn keeps it: keys are brought forward, never put off.
        if !group.has_turn && first != first_before {
            if let Some(due) = first_before {
                self.upcoming.remove(&(due, Arc::clone(&name)));
            }
            self.upcoming.extend(first.map(|due| (due, name)));
        }
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

    /// All keys are of one group.
    fn one<K>(_: &K) -> &str {
        ""
    }

    /// `a/0` is of the group `a`.
    fn group(key: &str) -> &str {
        key.split('/').next().unwrap_or_default()
    }

    fn trigger(queue: &mut Queue<String>, key: &str, now: Instant) {
        queue.trigger(key.to_owned(), |key| group(key), now);
    }

    fn is_empty<K>(queue: &Queue<K>) -> bool {
        let has_no_turns = queue.turns.is_empty() && queue.upcoming.is_empty();
        has_no_turns && queue.groups.is_empty() && queue.entries.is_empty()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once_and_runs_once_at_a_time() {
        let mut queue = Queue::new();
        let now = Instant::now();
        queue.trigger("a", one, now);
        queue.trigger("b", one, now);
        queue.trigger("a", one, now);
        assert_eq!(queue.pop(now), Some("a"));
        queue.trigger("a", one, now);
        assert_eq!(queue.pop(now), Some("b"));
        assert_eq!(queue.pop(now), None);
        queue.finish("a", Finished::Well(Next::AwaitChange), now);
        assert_eq!(queue.pop(now), Some("a"));
        queue.finish("a", Finished::Well(Next::AwaitChange), now);
        queue.finish("b", Finished::Well(Next::AwaitChange), now);
        assert_eq!(queue.next_due(), None);
        assert!(is_empty(&queue), "an idle key costs nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_brings_a_waiting_key_forward() {
        let mut queue = Queue::new();
        let now = Instant::now();
        queue.trigger("a", one, now);
        queue.pop(now);
        queue.finish("a", Finished::Well(Next::After(secs(60))), now);
        assert_eq!(queue.next_due(), Some(now + secs(60)));
        queue.trigger("a", one, now + secs(1));
        assert_eq!(queue.next_due(), Some(now + secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_boosted_key_goes_before_those_that_wait_but_not_for_long() {
        let mut queue = Queue::new();
        let (begin, now) = (Instant::now(), Instant::now() + secs(10));
        queue.trigger("waited long", one, begin);
        queue.trigger("waited", one, now - secs(1));
        queue.trigger("new", one, now - secs(5));
        for key in ["waited long", "new", "waited"] {
            assert_eq!(queue.pop(now), Some(key));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_keys_of_one_group_delay_a_key_of_another_by_one_turn() {
        let mut queue = Queue::new();
        let begin = Instant::now();
        for n in 0..10_000 {
            trigger(&mut queue, &format!("a/{n:04}"), begin);
        }
        let now = begin + secs(10);
        assert_eq!(queue.pop(now).as_deref(), Some("a/0000"));
        trigger(&mut queue, "b/0", now);
        assert_eq!(queue.n_waiting(), 10_000);
        assert_eq!(queue.pop(now).as_deref(), Some("a/0001"));
        assert_eq!(queue.pop(now).as_deref(), Some("b/0"));
        // Also where the key comes back at once, each time.
        for n in 2..10_000 {
            queue.finish("b/0".to_owned(), Finished::Well(Next::After(secs(0))), now);
            assert_eq!(queue.pop(now), Some(format!("a/{n:04}")));
            assert_eq!(queue.pop(now).as_deref(), Some("b/0"));
        }
        assert_eq!(queue.pop(now), None);
        queue.finish("b/0".to_owned(), Finished::Well(Next::AwaitChange), now);
        for n in 0..10_000 {
            let key = format!("a/{n:04}");
            queue.finish(key, Finished::Well(Next::AwaitChange), now);
        }
        assert!(is_empty(&queue), "a group without keys costs nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn groups_take_turns_and_keys_of_a_group_come_in_the_order_of_their_due_times() {
        let mut queue = Queue::new();
        let now = Instant::now();
        // After the due times, in seconds.
        let keys = [
            ("a/2", 2),
            ("a/0", 0),
            ("b/1", 1),
            ("a/1", 1),
            ("a/9", 9),
            ("c/2", 2),
            ("b/0", 1),
        ];
        for (key, due) in keys {
            trigger(&mut queue, key, now + secs(due));
        }
        assert_eq!(queue.next_due(), Some(now));
        let at = |queue: &mut Queue<String>, seconds| -> Vec<String> {
            std::iter::from_fn(|| queue.pop(now + secs(seconds))).collect()
        };
        assert_eq!(at(&mut queue, 0), ["a/0"]);
        assert_eq!(queue.next_due(), Some(now + secs(1)));
        // The key is brought forward, and its group with it.
        trigger(&mut queue, "c/2", now + secs(1));
        let first = at(&mut queue, 3);
        assert_eq!(first, ["a/1", "b/1", "c/2", "a/2", "b/0"]);
        assert_eq!(queue.next_due(), Some(now + secs(9)));
        assert_eq!(queue.n_waiting(), 1);
        assert_eq!(at(&mut queue, 9), ["a/9"]);
        assert_eq!(queue.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_does_not_shorten_a_back_off() {
        let mut queue = Queue::new();
        let now = Instant::now();
        queue.trigger("a", one, now);
        queue.pop(now);
        queue.finish("a", Finished::Badly(Class::Retry, Some(secs(7))), now);
        queue.trigger("a", one, now + secs(1));
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
