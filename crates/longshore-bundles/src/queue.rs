//! In which order units are parsed, and when again. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use longshore_k8s::Backoff;

use crate::units::Affected;

/// The units of a bundle that wait to be parsed, and those that are being parsed.
///
/// First come units that have changed, then those that have read something that changed, then those that are parsed
/// again although nothing changed. Among equals the one that has waited longest comes first. No unit is parsed twice at
/// the same time: one that changes meanwhile is parsed again afterwards.
#[derive(Debug)]
pub struct ParseQueue {
    settings: QueueSettings,
    waiting: BTreeMap<String, Turn>,
    running: BTreeSet<String>,
    /// Units that went while they were parsed.
    gone: BTreeSet<String>,
    /// How often in a row nothing was learned about a unit.
    n_failures: BTreeMap<String, u32>,
    n_queued: u64,
}

/// How often units are parsed.
#[derive(Clone, Copy, Debug)]
pub struct QueueSettings {
    /// Units at the same time; default 2 (`[dag_processor] parsing_processes`).
    pub n_parallel: usize,
    /// From the end of a parse to the next one of a unit whose code has asked for what changes without its files; default
    /// 30 s (`[dag_processor] min_file_process_interval`).
    pub refresh_interval: SignedDuration,
    /// Between parses of a unit of which nothing was learned; default 1 s to 60 s.
    pub backoff: Backoff,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            n_parallel: 2,
            refresh_interval: SignedDuration::from_secs(30),
            backoff: Backoff {
                first: std::time::Duration::from_secs(1),
                max: std::time::Duration::from_secs(60),
            },
        }
    }
}

/// When a unit is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    class: Class,
    /// Not before. Among units of one class whose time has come, it does not count.
    due_at: Timestamp,
    /// The place in the order of coming.
    place: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Changed,
    Dependant,
    Again,
}

/// What was learned of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// What it holds, for as long as its files stay as they are.
    All,
    /// What it holds now. Its code has asked for what changes without its files.
    ForNow,
    /// Nothing: the parser could not be started, or was stopped.
    Nothing,
}

impl ParseQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            waiting: BTreeMap::new(),
            running: BTreeSet::new(),
            gone: BTreeSet::new(),
            n_failures: BTreeMap::new(),
            n_queued: 0,
        }
    }

    /// Takes up what a change means for the units.
    pub fn take(&mut self, affected: &Affected, now: Timestamp) {
        for unit in &affected.gone {
            self.waiting.remove(unit);
            self.n_failures.remove(unit);
            if self.running.contains(unit) {
                self.gone.insert(unit.clone());
            }
        }
        for unit in &affected.changed {
            self.gone.remove(unit);
            // Another content may have another outcome.
            self.n_failures.remove(unit);
            self.queue(unit, Class::Changed, now);
        }
        for unit in &affected.dependants {
            self.queue(unit, Class::Dependant, now);
        }
    }

    /// The next unit to parse, where there is one and a parser for it. It counts as being parsed until [`Self::ended`].
    pub fn begin(&mut self, now: Timestamp) -> Option<String> {
        if self.running.len() >= self.settings.n_parallel {
            return None;
        }
        let waiting = self.waiting.iter();
        let ready =
            waiting.filter(|(unit, turn)| turn.due_at <= now && !self.running.contains(*unit));
        let (unit, _) = ready.min_by_key(|(_, turn)| (turn.class, turn.place))?;
        let unit = unit.clone();
        self.waiting.remove(&unit);
        self.running.insert(unit.clone());
        Some(unit)
    }

    /// A parse has ended. Whether its result counts: that of a unit that went meanwhile does not.
    #[must_use]
    pub fn ended(&mut self, unit: &str, learned: Learned, now: Timestamp) -> bool {
        self.running.remove(unit);
        if self.gone.remove(unit) {
            return false;
        }
        match learned {
            Learned::All => {
                self.n_failures.remove(unit);
            }
            Learned::ForNow => {
                self.n_failures.remove(unit);
                self.queue(
                    unit,
                    Class::Again,
                    later(now, self.settings.refresh_interval),
                );
            }
            Learned::Nothing => {
                let n = self.n_failures.entry(unit.to_owned()).or_default();
                *n = n.saturating_add(1);
                let wait = self.settings.backoff.wait(*n);
                let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
                self.queue(unit, Class::Again, later(now, wait));
            }
        }
        true
    }

    /// When [`Self::begin`] may return a unit that it does not return now, if nothing else happens.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Timestamp> {
        let waiting = self.waiting.iter();
        let idle = waiting.filter(|(unit, _)| !self.running.contains(*unit));
        idle.map(|(_, turn)| turn.due_at).min()
    }

    /// A unit that waits already keeps the better of both turns.
    fn queue(&mut self, unit: &str, class: Class, due_at: Timestamp) {
        let turn = Turn {
            class,
            due_at,
            place: self.n_queued,
        };
        self.n_queued += 1;
        let waiting = self.waiting.entry(unit.to_owned()).or_insert(turn);
        if turn.class < waiting.class {
            *waiting = turn;
        }
    }
}

fn later(now: Timestamp, wait: SignedDuration) -> Timestamp {
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn changed(units: &[&str]) -> Affected {
        Affected {
            changed: names(units),
            ..Affected::default()
        }
    }

    fn queue(n_parallel: usize) -> ParseQueue {
        ParseQueue::new(QueueSettings {
            n_parallel,
            ..QueueSettings::default()
        })
    }

    /// Begins and ends all units that are ready, in order.
    fn drain(queue: &mut ParseQueue, now: Timestamp) -> Vec<String> {
        let mut units = Vec::new();
        while let Some(unit) = queue.begin(now) {
            assert!(queue.ended(&unit, Learned::All, now));
            units.push(unit);
        }
        units
    }

    #[test]
    fn changed_units_come_first_and_each_once() {
        let mut queue = queue(1);
        let affected = Affected {
            dependants: names(&["a", "b", "c"]),
            ..changed(&["z"])
        };
        queue.take(&affected, at(0));
        queue.take(&changed(&["b"]), at(1));
        assert_eq!(drain(&mut queue, at(1)), ["z", "b", "a", "c"]);
        assert_eq!(queue.wakes_at(), None);
    }

    #[test]
    fn only_so_many_are_parsed_at_the_same_time() {
        let mut queue = queue(2);
        queue.take(&changed(&["a", "b", "c"]), at(0));
        assert_eq!(queue.begin(at(0)).as_deref(), Some("a"));
        assert_eq!(queue.begin(at(0)).as_deref(), Some("b"));
        assert_eq!(queue.begin(at(0)), None);
        assert!(queue.ended("b", Learned::All, at(1)));
        assert_eq!(queue.begin(at(1)).as_deref(), Some("c"));
    }

    #[test]
    fn a_unit_that_changes_while_it_is_parsed_is_parsed_again_afterwards() {
        let mut queue = queue(2);
        queue.take(&changed(&["a"]), at(0));
        queue.begin(at(0)).unwrap();
        queue.take(&changed(&["a"]), at(1));
        assert_eq!(queue.begin(at(1)), None, "never twice at the same time");
        assert!(queue.ended("a", Learned::All, at(2)));
        assert_eq!(drain(&mut queue, at(2)), ["a"]);
    }

    #[test]
    fn the_result_of_a_unit_that_went_does_not_count() {
        let mut queue = queue(2);
        queue.take(&changed(&["a", "b"]), at(0));
        queue.begin(at(0)).unwrap();
        let gone = Affected {
            gone: names(&["a", "b"]),
            ..Affected::default()
        };
        queue.take(&gone, at(1));
        assert!(!queue.ended("a", Learned::All, at(2)));
        assert_eq!(queue.begin(at(2)), None);
        // One that came back in time counts, and is parsed again.
        queue.take(&changed(&["a"]), at(3));
        queue.begin(at(3)).unwrap();
        queue.take(&gone, at(4));
        queue.take(&changed(&["a"]), at(5));
        assert!(queue.ended("a", Learned::All, at(6)));
        assert_eq!(drain(&mut queue, at(6)), ["a"]);
    }

    #[test]
    fn a_unit_that_asks_for_rows_is_parsed_again_after_a_while() {
        let mut queue = queue(1);
        queue.take(&changed(&["a"]), at(0));
        queue.begin(at(0)).unwrap();
        assert!(queue.ended("a", Learned::ForNow, at(5)));
        assert_eq!(queue.wakes_at(), Some(at(35)));
        assert_eq!(queue.begin(at(34)), None);
        // A change does not wait for that.
        queue.take(&changed(&["a"]), at(34));
        assert_eq!(drain(&mut queue, at(34)), ["a"]);
        assert_eq!(queue.wakes_at(), None);
    }

    #[test]
    fn a_unit_of_which_nothing_is_learned_waits_longer_each_time() {
        let mut queue = queue(1);
        queue.take(&changed(&["a"]), at(0));
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            queue.begin(at(now)).unwrap();
            assert!(queue.ended("a", Learned::Nothing, at(now)));
            let next = queue.wakes_at().unwrap().as_second();
            waits.push(next - now);
            now = next;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        // Another content has another chance.
        queue.take(&changed(&["a"]), at(now));
        queue.begin(at(now)).unwrap();
        assert!(queue.ended("a", Learned::Nothing, at(now)));
        assert_eq!(queue.wakes_at(), Some(at(now + 1)));
    }
}
